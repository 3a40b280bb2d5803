"""A Delta table whose commits are compare-and-set.

`commit` succeeds only at exactly the version named, and what it adds is synced before it can be
seen. `deltalake` creates tables and writes Delta's own checkpoints; its commits are not used,
because they can't be synced before they show and cost 10 to 40 ms where this costs under one
(docs/architecture.md has the measurement).

Readers and one writer may use a table from any number of processes. Nothing here is cached but
the version last seen, so a `DeltaFolder` may be shared between threads.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from psoup.store.datafile import DataFile, add_action, data_file, remove_action
from psoup.store.durable import put_if_absent, sync_tree
from psoup.store.errors import Conflict, CorruptStore

__all__ = ["Commit", "DataFile", "DeltaFolder", "Snapshot"]

# How long Delta's own log keeps a commit behind a checkpoint, and a checkpoint the names of files
# that were removed. A busy log has 25 of each a second: with an hour of them a checkpoint took
# 0.5 s, most of it to list the folder, and the checkpoints of a busy store 200 MB.
_REMEMBERED = "interval 10 minutes"


@dataclass(frozen=True, slots=True)
class Commit:
    version: int
    added: tuple[DataFile, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a table at one version, by path."""

    version: int
    files: Mapping[str, DataFile] = field(default_factory=dict)

    def apply(self, commit: Commit) -> Snapshot:
        files = dict(self.files)
        _apply(commit, files)
        return Snapshot(commit.version, files)


class DeltaFolder:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "_delta_log"
        self._log_name = str(self.log)

    @property
    def exists(self) -> bool:
        return self._commit_path(0).exists() or (self.log / "_last_checkpoint").exists()

    def create(
        self,
        schema: pa.Schema,
        *,
        partition_by: Iterable[str] = (),
        description: str = "",
    ) -> None:
        """Makes the table; of two that try at once, one does and both return."""
        if self.exists:
            return
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            deltalake.DeltaTable.create(
                self.root,
                schema,
                mode="ignore",
                partition_by=list(partition_by) or None,
                name=self.root.name,
                description=description,
                configuration={
                    "delta.logRetentionDuration": _REMEMBERED,
                    "delta.deletedFileRetentionDuration": _REMEMBERED,
                },
            )
        except Exception:
            if not self.exists:
                raise
        sync_tree([self.log, self.root, self.root.parent])

    @property
    def description(self) -> str:
        return str(self._settled().metadata().description)

    def commit(
        self,
        version: int,
        added: Iterable[DataFile] = (),
        removed: Iterable[DataFile] = (),
        *,
        operation: str,
        data_change: bool = True,
        sync: bool = True,
    ) -> None:
        """Makes `version`, or raises Conflict. The files added must be synced already.

        `data_change` False says that the same rows stand in other files than before.
        """
        moment = int(time.time() * 1000)
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"timestamp": moment, "operation": operation, "engineInfo": "psoup"}}
        ]
        actions += [remove_action(gone, moment, data_change) for gone in removed]
        actions += [add_action(new, moment, data_change) for new in added]
        content = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions)
        try:
            put_if_absent(self._commit_path(version), content.encode(), sync=sync)
        except FileExistsError:
            raise Conflict(self.root.name, version) from None

    def read_commit(self, version: int) -> Commit | None:
        """None where that version is not there: not made yet, or behind a checkpoint."""
        try:
            with open(self._commit_name(version), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return None
        actions = [json.loads(line) for line in content.splitlines() if line]
        return Commit(
            version,
            tuple(data_file(action["add"]) for action in actions if "add" in action),
            tuple(unquote(action["remove"]["path"]) for action in actions if "remove" in action),
        )

    def latest_version(self, seen: int = 0) -> int:
        """The newest version, given one that was seen before.

        With nothing newer this costs one look; n versions later about 2 log n, because commits
        follow each other without a gap.
        """
        version, step = max(seen, 0), 1
        if not self._has(version + 1):
            version = max(version, self._checkpoint_version())
        while self._has(version + step):
            version += step
            step *= 2
        while step > 1:
            step //= 2
            if self._has(version + step):
                version += step
        return version

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The files at `version`, by default the newest.

        Raises CorruptStore where Delta's own log no longer reaches back to that version.
        """
        checkpoint = self._checkpoint_before(version)
        snapshot = self._read_checkpoint(checkpoint) if checkpoint else Snapshot(0)
        goal = self.latest_version(snapshot.version) if version is None else version
        return self.advance(snapshot, goal)

    def advance(self, snapshot: Snapshot, version: int) -> Snapshot:
        """The snapshot at a later version; falls back to a checkpoint where commits are gone."""
        files = dict(snapshot.files)
        for number in range(snapshot.version + 1, version + 1):
            commit = self.read_commit(number)
            if commit is None:
                if self._checkpoint_before(version) > snapshot.version:
                    return self.snapshot(version)
                raise CorruptStore(f"{self.root.name}: version {number} is missing")
            _apply(commit, files)
        return Snapshot(version, files)

    def checkpoint(self, version: int | None = None) -> None:
        """Writes a Delta checkpoint at a version, the newest by default."""
        self._settled(version).create_checkpoint()

    def drop_commits(self, version: int | None = None) -> None:
        """Those behind a checkpoint leave Delta's log, but for the ones of the last ten minutes.
        It lists the whole folder."""
        self._settled(version).cleanup_metadata()

    def path_of(self, file: DataFile) -> Path:
        return self.root / file.path

    def _settled(self, version: int | None = None) -> deltalake.DeltaTable:
        """The table at a version that is there already, the newest or the given one.

        A listing taken while commits are made may show one and miss those before it, which
        `deltalake` takes for a gap; up to a version seen before, a listing is whole.
        """
        return deltalake.DeltaTable(
            self.root, version=self.latest_version() if version is None else version
        )

    def _commit_path(self, version: int) -> Path:
        return self.log / f"{version:020d}.json"

    def _commit_name(self, version: int) -> str:
        """The same, for looks that are taken hundreds of times a second."""
        return f"{self._log_name}/{version:020d}.json"

    def _has(self, version: int) -> bool:
        return os.path.exists(self._commit_name(version))

    def _checkpoint_version(self) -> int:
        try:
            with open(f"{self._log_name}/_last_checkpoint", "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return 0
        return int(json.loads(content)["version"])

    def _checkpoint_before(self, version: int | None) -> int:
        newest = self._checkpoint_version()
        if version is None or newest <= version:
            return newest
        found = (int(path.name.split(".")[0]) for path in self.log.glob("*.checkpoint.parquet"))
        return max((number for number in found if number <= version), default=0)

    def _read_checkpoint(self, version: int) -> Snapshot:
        path = self.log / f"{version:020d}.checkpoint.parquet"
        adds = pq.read_table(path, columns=["add"]).column("add").drop_null().to_pylist()
        files = [data_file(add | {"partitionValues": dict(add["partitionValues"])}) for add in adds]
        return Snapshot(version, {file.path: file for file in files})


def _apply(commit: Commit, files: dict[str, DataFile]) -> None:
    for path in commit.removed:
        files.pop(path, None)
    files.update((added.path, added) for added in commit.added)
