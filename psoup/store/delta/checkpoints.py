"""Delta's checkpoints of a table: each stands for the commits up to its version.

`deltalake` writes them; they are synced here before anything behind them goes. The newest two are
kept with all commits from the older one on, so that if the newest can't be read the older one and
the commits after it say the same.

A checksum of each is kept in a small file beside it, made when the checkpoint was found to say what
the commits say. Without it a checkpoint is not believed.
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

# How long Delta's own log keeps a commit behind a checkpoint, and a checkpoint the names of files
# that were removed. A busy log has 25 of each a second: with an hour of them a checkpoint took
# 0.5 s, most of it to list the folder, and the checkpoints of a busy store 200 MB.
LOG_RETENTION_MINUTES = 10


class Checkpoints:
    def __init__(self, root: Path, commits: Commits) -> None:
        self._root = root
        self._commits = commits
        self._pointer = commits.log / "_last_checkpoint"

    def newest(self) -> int:
        """Return the version of the newest checkpoint, as Delta's pointer says; 0 if there is
        none."""
        try:
            content = self._pointer.read_bytes()
        except FileNotFoundError:
            return 0
        try:
            return int(json.loads(content)["version"])
        except (ValueError, KeyError, TypeError):
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

    def description(self) -> str | None:
        """Return the description of the table in its newest checkpoint; None without a
        checkpoint."""
        for version in self._commits.listing().checkpoints[::-1]:
            try:
                return str(self._column(version, "metaData")[0]["description"])
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
            raise OSError("its bytes are not those that were written")

    def _damaged(self, version: int, error: Exception) -> CorruptStore:
        path = self._commits.checkpoint_path(version)
        return CorruptStore(
            f"the checkpoint {path} can't be read ({error})",
            f"{self._commits.table}/_delta_log/{path.name}",
        )

    # ---- writing, which only the engine does

    def write(self, snapshot: Snapshot) -> None:
        """Return when the checkpoint of a snapshot and the pointer to it are on the disk."""
        version = snapshot.version
        # A listing taken while commits are made may show one and miss those before it, which
        # `deltalake` takes for a gap; up to a version seen before, a listing is whole.
        deltalake.DeltaTable(self._root, version=version).create_checkpoint()
        sync_file(self._commits.checkpoint_path(version))
        sync_file(self._pointer)
        sync_folder(self._commits.log)
        self._vouch(snapshot)

    def _vouch(self, snapshot: Snapshot) -> None:
        """Make the checksum of a checkpoint that says what the snapshot says.

        `deltalake` looks at no hash: of a damaged commit it makes a checkpoint without a flaw.
        """
        version = snapshot.version
        path, check = self._commits.checkpoint_path(version), self._commits.check_path(version)
        content = path.read_bytes()
        if self._files(version, _rows(content, "add")) != snapshot.files:
            remove([path])
            raise self._damaged(version, ValueError("it does not say what the commits say"))
        replace_file(check, json.dumps(_check_of(content)).encode())

    def begin(self, version: int, content: bytes) -> None:
        """Put a checkpoint of a table without files at `version`, durably, with the pointer to
        it."""
        path = self._commits.checkpoint_path(version)
        write_durably(path, lambda target: _write(target, content))
        replace_file(self._commits.check_path(version), json.dumps(_check_of(content)).encode())
        replace_file(self._pointer, self._pointing_to(version))

    def is_below_floor(self, version: int) -> bool:
        """Return True if `version` is behind two checkpoints, so that its number may have been free
        a second time. It reads one small file unless a checkpoint is newer."""
        return version <= self.newest() and version < self._commits.listing().floor

    def drop_below(self, version: int) -> None:
        """Remove commits and checkpoints below `version`, and none that are not below the floor. It
        lists the whole folder."""
        listing = self._commits.listing()
        # The floor is lower than it was if a damaged checkpoint was taken away.
        version = min(version, listing.floor)
        if not version:
            return
        self.read(listing.base)
        # Ascending: while a commit is there, those after it are, and none of their numbers is free.
        obsolete = [
            self._commits.path(number) for number in sorted(listing.commits) if number < version
        ]
        for number in listing.checkpoints:
            if number < version:
                obsolete += [
                    self._commits.checkpoint_path(number),
                    self._commits.check_path(number),
                ]
        remove(obsolete)

    def mend(self) -> None:
        """Take away checkpoints that can't be read, so that Delta's readers don't fail over them,
        and points to the newest one left. Commits are left alone."""
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
            replace_file(self._pointer, self._pointing_to(readable.version))

    def _pointed(self) -> int | None:
        try:
            return int(json.loads(self._pointer.read_bytes())["version"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _pointing_to(self, version: int) -> bytes:
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
