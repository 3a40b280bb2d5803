"""A Delta table whose commits are compare-and-set.

`commit` succeeds only at exactly the version named, and what it adds is synced before readers can
see it. `deltalake` writes Delta's own checkpoints; its commits are not used, because they can't be
synced before they are visible, and take longer (measured in
docs/explanation/decisions/durability.md).

Readers and one writer may use a table from any number of processes. Nothing here is cached, so a
`DeltaFolder` may be shared between threads.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pyarrow as pa

from psoup.store.delta import durable
from psoup.store.delta.checkpoints import LOG_RETENTION_MINUTES, Checkpoints
from psoup.store.delta.commits import Commit, Commits, Snapshot
from psoup.store.delta.durable import make_folder
from psoup.store.delta.files import DataFile, add_action, remove_action
from psoup.store.errors import Conflict, CorruptStore, FileGone, LogTrimmed, Unconfirmed

_LOG_RETENTION = f"interval {LOG_RETENTION_MINUTES} minutes"


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What a table is created with. A field of `schema` may have the metadata `comment`, which
    readers of Delta tables show. Without a `name` the table has that of its folder."""

    schema: pa.Schema
    name: str = ""
    partition_by: tuple[str, ...] = ()


class DeltaFolder:
    """A Delta table in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "_delta_log"
        self._commits = Commits(self.log)
        self._checkpoints = Checkpoints(root, self._commits)

    @property
    def exists(self) -> bool:
        """True if any commit or checkpoint of the table exists, even a damaged one."""
        return self._commits.has(0) or self._commits.listing().newest >= 0

    def create(
        self,
        definition: TableDefinition,
        *,
        description: str = "",
        sync: bool = True,
    ) -> None:
        """Create the table durably, unless it exists. If two processes call it at once, one creates
        it and both return."""
        if self.exists:
            return
        make_folder(self.log, levels=3, sync=sync)
        protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
        metadata = self._metadata(definition, description)
        with contextlib.suppress(Conflict):
            actions: list[Mapping[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
            self._commits.put(0, _info("CREATE TABLE"), actions, sync=sync)

    def _metadata(self, definition: TableDefinition, description: str) -> dict[str, Any]:
        return {
            "id": str(uuid.uuid4()),
            "name": definition.name or self.root.name,
            "description": description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": deltalake.Schema.from_arrow(definition.schema).to_json(),
            "partitionColumns": list(definition.partition_by),
            "createdTime": _milliseconds(),
            "configuration": {
                "delta.logRetentionDuration": _LOG_RETENTION,
                "delta.deletedFileRetentionDuration": _LOG_RETENTION,
            },
        }

    def _changed_metadata(self, definition: TableDefinition) -> dict[str, Any]:
        """Return the metadata of another definition, with what never changes in a table."""
        before = self._known_metadata()
        unchanged = {name: before[name] for name in ("id", "description", "createdTime")}
        return self._metadata(definition, "") | unchanged

    @property
    def description(self) -> str:
        """The description of the table, which never changes."""
        return str(self._known_metadata()["description"])

    def _known_metadata(self) -> Mapping[str, Any]:
        """Return the metadata in the newest checkpoint, or else those the table was made with."""
        metadata = self._checkpoints.metadata()
        if metadata is not None:
            return metadata
        for action in self._commits.actions(0) or ():
            if "metaData" in action:
                first: Mapping[str, Any] = action["metaData"]
                return first
        raise self._commits.missing(0, max(self._commits.listing().newest, 0))

    def restart(self, definition: TableDefinition, after: int, *, sync: bool = True) -> Snapshot:
        """Empty the table, although its log can't be read. Only the table's one writer may call it.

        A checkpoint replaces all earlier versions. Its version is greater than `after` and every
        version in the folder, so that no version gets a second meaning.
        """
        version = max(self._commits.listing().newest, after) + 1
        make_folder(self.log, levels=3, sync=sync)
        # `deltalake` writes checkpoints only of tables it can read, so it writes that of a blank
        # one.
        with TemporaryDirectory(prefix="psoup-") as scratch:
            blank = DeltaFolder(Path(scratch) / self.root.name)
            blank.create(definition, sync=False)
            blank.checkpoint(0)
            content = blank._commits.checkpoint_path(0).read_bytes()
        self._checkpoints.begin(version, content)
        return Snapshot(version)

    def remove(self) -> None:
        """Remove the table with all its files. No epoch may name it."""
        durable.remove_folder(self.root)

    def commit(
        self,
        version: int,
        added: Iterable[DataFile] = (),
        removed: Iterable[DataFile] = (),
        *,
        operation: str,
        data_change: bool = True,
        sync: bool = True,
        since: float | None = None,
        definition: TableDefinition | None = None,
    ) -> None:
        """Make `version`, or raises Conflict. The files added must be synced already.

        With a `definition` the table gets its name and its columns: it may have more than before.
        `data_change` False means that the same rows are in other files now. `since` is when the
        first added file was begun, if another process removes unnamed files from this table.

        Raise CorruptStore if the version before is missing or a later one exists; FileGone if an
        added file is gone or may be removed soon; Unconfirmed if the commit took so long that its
        number may have been used before.
        """
        added = list(added)
        moment = _milliseconds()
        actions = [remove_action(file, moment, data_change) for file in removed]
        actions += [add_action(file, moment, data_change) for file in added]
        if definition is not None:
            actions.insert(0, {"metaData": self._changed_metadata(definition)})
        info = _info(operation)
        self._commits.put(
            version, info, actions, sync=sync, check=lambda: self._check(added, since)
        )
        # Checked after the link: until then a stalled writer can't know that its number was
        # dropped.
        if self.is_below_floor(version):
            raise Unconfirmed(
                f"version {version} of the table {self._commits.table} is behind two checkpoints "
                "by now; its commit may never be read"
            )

    def _check(self, added: Iterable[DataFile], since: float | None) -> None:
        for file in added:
            if not self.path_of(file).exists():
                raise FileGone(f"{self.path_of(file)} is gone before the commit that names it")
        # Unnamed files of MIN_GRACE_SECONDS may be removed. Half of that leaves time for the link.
        age = 0.0 if since is None else durable.seconds() - since
        if age >= durable.MIN_GRACE_SECONDS / 2:
            raise FileGone(f"the files of this commit were begun {age:.0f} seconds ago")

    def read_commit(self, version: int) -> Commit | None:
        """Return a commit; None for a version that does not exist yet, or is behind a checkpoint.

        Raise CorruptStore if the commit is damaged.
        """
        return self._commits.read(version)

    def has_commit(self, version: int) -> bool:
        """Return whether there is a file of a commit, which may be damaged."""
        return self._commits.has(version)

    def is_below_floor(self, version: int) -> bool:
        """Return True if a commit found at `version` may be a late writer's, never to be read.

        Numbers below the floor, the older of the two newest checkpoints, may be free again.
        """
        return self._checkpoints.is_below_floor(version)

    def floor(self) -> int:
        """Return the version below which two checkpoints replace all commits; 0 without
        checkpoints. It lists the whole folder."""
        return self._commits.listing().floor

    def versions(self) -> list[int]:
        """List the versions that have a commit file, ascending."""
        return sorted(self._commits.listing().commits)

    def latest_version(self, at_least: int = 0) -> int:
        """Return the newest version, given one that was read before.

        If nothing is newer this costs a few checks of files. Otherwise, and if `at_least` is 0, the
        folder is listed. Raise CorruptStore if a version before the newest is missing.
        """
        if (
            at_least > 0
            and self._commits.ends_at(at_least)
            and self._checkpoints.newest() <= at_least
        ):
            return at_least
        return self._commits.end(at_least)

    def prove_end(self, at_least: int = 0) -> int:
        """Return the newest version, proved by a listing that includes `at_least`."""
        return self._commits.end(at_least)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the files at `version`, by default the newest.

        Raise LogTrimmed if Delta's own log no longer reaches back to that version, CorruptStore if
        a commit is missing that no checkpoint replaces.
        """
        goal = self.latest_version() if version is None else version
        return self._extend(self._checkpoints.base(goal) or Snapshot(-1), goal)

    def advance(self, snapshot: Snapshot, version: int) -> Snapshot:
        """Return the snapshot at another version; falls back to a checkpoint where commits are
        gone."""
        if version < snapshot.version:
            return self.snapshot(version)
        try:
            return self._extend(snapshot, version)
        except (CorruptStore, LogTrimmed):
            # Only a checkpoint after the snapshot can replace the commits that are missing.
            if next(self._checkpoints.before(version), 0) <= snapshot.version:
                raise
        return self.snapshot(version)

    def _extend(self, snapshot: Snapshot, version: int) -> Snapshot:
        files = dict(snapshot.files)
        for number in range(snapshot.version + 1, version + 1):
            commit = self.read_commit(number)
            if commit is None:
                raise self._commits.absence_of(number, version)
            commit.change(files)
        return Snapshot(version, files)

    def cut_log(self, version: int, end: int) -> dict[str, bytes]:
        """Return the files of a Delta log, by name, that lead to `version` and to every later
        version up to `end`: the newest readable checkpoint at or before `version`, and the commits
        after it.

        Raise CorruptStore or LogTrimmed if a commit is missing.
        """
        base = self._checkpoints.base(version)
        files: dict[str, bytes] = {}
        if base is not None:
            checkpoint = self._commits.checkpoint_path(base.version)
            for path in (checkpoint, self._commits.check_path(base.version)):
                files[path.name] = path.read_bytes()
            files["_last_checkpoint"] = self._checkpoints.pointing_to(base.version)
        for number in range(0 if base is None else base.version + 1, end + 1):
            # Read first: it raises if the commit is damaged.
            if self.read_commit(number) is None:
                raise self._commits.absence_of(number, end)
            files[self._commits.path(number).name] = self._commits.path(number).read_bytes()
        return files

    def checkpoint(self, version: int | None = None) -> None:
        """Write a Delta checkpoint at a version, the newest by default, durably."""
        self._checkpoints.write(self.snapshot(version))

    def obsolete_commits(self, below: int) -> list[Path]:
        """Return the files of commits below a version, and none that are not below the floor, in
        the order in which they may be removed. It lists the whole folder."""
        return self._checkpoints.below(below)

    def drop_commits(self, below: int) -> None:
        """Remove the obsolete commits below a version. Only the table's one cleaner may call
        it."""
        durable.remove(self.obsolete_commits(below))

    def mend(self) -> None:
        """Remove checkpoints that can't be read. Only the table's one writer may call it."""
        self._checkpoints.mend()

    def commit_path(self, version: int) -> Path:
        """Return the file of a commit."""
        return self._commits.path(version)

    def path_of(self, file: DataFile) -> Path:
        return self.root / file.path


def _info(operation: str) -> Mapping[str, Any]:
    return {"timestamp": _milliseconds(), "operation": operation, "engineInfo": "psoup"}


def _milliseconds() -> int:
    return int(time.time() * 1000)
