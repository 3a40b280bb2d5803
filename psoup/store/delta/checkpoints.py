"""Delta's checkpoints of a table: each replaces the commits up to its version.

`deltalake` writes them; this module syncs them before it removes any commit. The newest two are
kept with all commits from the older one on. If the newest can't be read, the older one and the
commits after it hold the same.

Each has a small file with its checksum beside it, written after the checkpoint was compared with
the commits. A checkpoint without that file is not trusted.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from psoup.store.delta.commits import Commits, Snapshot
from psoup.store.delta.durable import (
    remove,
    replace_file,
    sync_file,
    sync_folder,
    write_durably,
)
from psoup.store.delta.files import DataFile, data_file
from psoup.store.errors import CorruptStore

log = logging.getLogger("psoup.store")

# How long commits behind a checkpoint are kept, and the names of removed files in checkpoints. A
# busy log has 25 of each a second: with an hour of them a checkpoint took 0.5 s, most of it to list
# the folder, and the checkpoints of a busy store took 200 MB.
LOG_RETENTION_MINUTES = 10


class Checkpoints:
    def __init__(self, root: Path, commits: Commits) -> None:
        self._root = root
        self._commits = commits
        self._pointer = commits.log / "_last_checkpoint"

    def newest(self) -> int:
        """Return the version of the newest checkpoint, from Delta's pointer to it; 0 without a
        checkpoint."""
        try:
            content = self._pointer.read_bytes()
        except FileNotFoundError:
            return 0
        try:
            return int(json.loads(content)["version"])
        except (ValueError, KeyError, TypeError):
            # The pointer is damaged, but the folder shows the checkpoints, too.
            return max(self._commits.listing().base, 0)

    def before(self, version: int) -> Iterator[int]:
        """Yield the versions of checkpoints up to and including `version`, newest first."""
        pointed = self.newest()
        if 0 < pointed <= version:
            yield pointed
        for older in reversed(self._commits.listing().checkpoints):
            if older <= version and older != pointed:
                yield older

    def base(self, version: int) -> Snapshot | None:
        """Return the snapshot of the newest checkpoint up to `version` that can be read."""
        for candidate in self.before(version):
            try:
                return self.read(candidate)
            except CorruptStore as error:
                log.warning("%s; going back to the one before it", error)
        return None

    def read(self, version: int) -> Snapshot:
        """Read a checkpoint. Raise CorruptStore if it is missing or damaged."""
        return Snapshot(version, self._files(version, self._column(version, "add")))

    def _files(self, version: int, adds: list[dict[str, Any]]) -> dict[str, DataFile]:
        try:
            files = [
                data_file(add | {"partitionValues": dict(add["partitionValues"])}) for add in adds
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(version, error) from error
        return {file.path: file for file in files}

    def metadata(self) -> dict[str, Any] | None:
        """Return the metadata of the table in its newest checkpoint; None without a checkpoint."""
        for version in self._commits.listing().checkpoints[::-1]:
            try:
                return self._column(version, "metaData")[0]
            except (CorruptStore, IndexError):
                continue
        return None

    def _column(self, version: int, name: str) -> list[dict[str, Any]]:
        path = self._commits.checkpoint_path(version)
        try:
            content = path.read_bytes()
            self._check(version, content)
            return _rows(content, name)
        except (OSError, KeyError, pa.ArrowException) as error:
            raise self._damaged(version, error) from error

    def _check(self, version: int, content: bytes) -> None:
        """Raise OSError if these are not the bytes that were written."""
        try:
            recorded = json.loads(self._commits.check_path(version).read_bytes())
        except ValueError as error:
            raise OSError(f"{self._commits.check_path(version).name} is damaged") from error
        if recorded != _check_of(content):
            raise OSError("its checksum is wrong")

    def _damaged(self, version: int, error: Exception) -> CorruptStore:
        path = self._commits.checkpoint_path(version)
        return CorruptStore(
            f"the checkpoint {path} can't be read ({error})",
            f"{self._commits.table}/_delta_log/{path.name}",
        )

    # ---- writing, which only the engine does

    def write(self, snapshot: Snapshot) -> None:
        """Write the checkpoint of a snapshot and the pointer to it, durably."""
        version = snapshot.version
        # A listing that runs beside a writer may show a commit and miss earlier ones, which
        # `deltalake` takes for a gap. Up to a version that was read before, a listing is complete.
        deltalake.DeltaTable(self._root, version=version).create_checkpoint()
        # Synced before its checksum is written: commits are dropped on the word of a checkpoint
        # that has one.
        sync_file(self._commits.checkpoint_path(version))
        sync_file(self._pointer)
        sync_folder(self._commits.log)
        self._vouch(snapshot)

    def _vouch(self, snapshot: Snapshot) -> None:
        """Write the checksum of a checkpoint that holds what the snapshot holds, or raise
        CorruptStore.

        `deltalake` checks no hashes: from a damaged commit it would make a flawless checkpoint.
        """
        version = snapshot.version
        path, check = self._commits.checkpoint_path(version), self._commits.check_path(version)
        content = path.read_bytes()
        if self._files(version, _rows(content, "add")) != snapshot.files:
            # Delta's own readers check no checksums and would use it.
            remove([path])
            raise self._damaged(version, ValueError("it differs from the commits"))
        replace_file(check, json.dumps(_check_of(content)).encode())

    def begin(self, version: int, content: bytes) -> None:
        """Write a checkpoint of a table without files at `version`, durably, with the pointer to
        it."""
        path = self._commits.checkpoint_path(version)
        write_durably(path, lambda target: _write(target, content))
        # The pointer comes last, so that it always leads to a checkpoint that can be read.
        replace_file(self._commits.check_path(version), json.dumps(_check_of(content)).encode())
        replace_file(self._pointer, self.pointing_to(version))

    def is_below_floor(self, version: int) -> bool:
        """Return True if `version` is behind two checkpoints, so that its number may have been free
        a second time. It reads one small file unless a checkpoint is newer."""
        return version <= self.newest() and version < self._commits.listing().floor

    def below(self, version: int) -> list[Path]:
        """Return the files of commits and checkpoints below `version`, in the order in which they
        may be removed; none that are not below the floor. It lists the whole folder."""
        listing = self._commits.listing()
        # The floor is lower than it was if a damaged checkpoint was taken away.
        version = min(version, listing.floor)
        if not version:
            return []
        # Raises if the newest checkpoint can't be read: the commits are needed then.
        self.read(listing.base)
        # Ascending, so that no number is free while an earlier commit exists.
        obsolete = [
            self._commits.path(number) for number in sorted(listing.commits) if number < version
        ]
        for number in listing.checkpoints:
            if number < version:
                obsolete += [
                    self._commits.checkpoint_path(number),
                    self._commits.check_path(number),
                ]
        return obsolete

    def mend(self) -> None:
        """Remove checkpoints that can't be read, so that Delta's readers don't fail on them, and
        point to the newest readable one. Commits are not touched."""
        readable = None
        for version in reversed(self._commits.listing().checkpoints):
            try:
                readable = self.read(version)
                break
            except CorruptStore as error:
                log.warning("%s; it is removed, commits stand for it", error)
                remove([self._commits.checkpoint_path(version), self._commits.check_path(version)])
        if readable is None:
            remove([self._pointer])
        elif self._pointed() != readable.version:
            replace_file(self._pointer, self.pointing_to(readable.version))

    def _pointed(self) -> int | None:
        try:
            return int(json.loads(self._pointer.read_bytes())["version"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def pointing_to(self, version: int) -> bytes:
        """Return the content of the pointer to a checkpoint."""
        rows = pq.read_metadata(self._commits.checkpoint_path(version)).num_rows
        return json.dumps({"version": version, "size": rows}).encode()


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _rows(content: bytes, column: str) -> list[dict[str, Any]]:
    """Return the actions of one kind in a checkpoint."""
    actions = pq.ParquetFile(pa.BufferReader(content)).read(columns=[column]).column(column)
    rows: list[dict[str, Any]] = actions.drop_null().to_pylist()
    return rows


def _check_of(content: bytes) -> dict[str, Any]:
    return {"size": len(content), "crc32": f"{zlib.crc32(content):08x}"}
