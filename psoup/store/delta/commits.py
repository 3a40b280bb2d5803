"""The commits of a Delta table: files `<version>.json` that follow each other without a hole.

A commit is synced before it is linked to its name, and is made only if the previous one exists. So
no power cut and no kill leaves a hole, an empty commit or half of one. Each of these is damage, and
reading stops there. Versions up to the newest checkpoint may be missing: the checkpoint replaces
them.

A commit holds a hash of itself. A commit without a hash is damage too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from psoup.store.delta.checksums import seal_holds, sealed, unsealed
from psoup.store.delta.durable import put_if_absent
from psoup.store.delta.files import DataFile, data_file
from psoup.store.errors import Conflict, CorruptStore, FileGone, LogTrimmed, StoreError


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a table: the files that it adds, and the paths of those that it removes."""

    version: int
    added: tuple[DataFile, ...]
    removed: tuple[str, ...]

    def change(self, files: dict[str, DataFile]) -> None:
        """Change the files of the version before, by path, into those of this version."""
        for path in self.removed:
            files.pop(path, None)
        files.update((added.path, added) for added in self.added)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a table at one version, by path."""

    version: int
    files: Mapping[str, DataFile] = field(default_factory=dict)

    def apply(self, commit: Commit) -> Snapshot:
        files = dict(self.files)
        commit.change(files)
        return Snapshot(commit.version, files)


_COMMIT = ".json"
_CHECKPOINT = ".checkpoint.parquet"
_CHECKPOINT_CHECK = ".checkpoint.psoup"
_DIGITS = 20

# Versions after the end that are checked for commits beyond a hole. A listing shows all of them,
# but takes 10 ms for ten minutes of a busy log; each check takes some 10 microseconds.
_LOOK_AHEAD = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Listing:
    """The versions that have a commit file, and those that have a checkpoint, ascending."""

    commits: frozenset[int]
    checkpoints: tuple[int, ...]

    @property
    def newest(self) -> int:
        """The newest version; -1 without a commit and a checkpoint."""
        return max(self.base, max(self.commits, default=-1))

    @property
    def base(self) -> int:
        """The newest checkpoint, -1 if there is none."""
        return self.checkpoints[-1] if self.checkpoints else -1

    @property
    def floor(self) -> int:
        """The version below which commits may be gone, and their numbers free again.

        It is the older of the two newest checkpoints. If there is only one, either none was dropped
        yet, or damaged ones were taken away.
        """
        if len(self.checkpoints) < 2 and 0 in self.commits:
            return 0
        return next(iter(self.checkpoints[-2:]), 0)


class Commits:
    """The commit files of one table."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._prefix = f"{log}/"
        table = log.parent
        within = table.parent.name
        self.table = f"{within}/{table.name}" if within in ("stems", "joins") else table.name

    def path(self, version: int) -> Path:
        return Path(self._name(version))

    def checkpoint_path(self, version: int) -> Path:
        return self.log / f"{version:0{_DIGITS}d}{_CHECKPOINT}"

    def check_path(self, version: int) -> Path:
        """Return the file that holds the checksum of a checkpoint."""
        return self.log / f"{version:0{_DIGITS}d}{_CHECKPOINT_CHECK}"

    def has(self, version: int) -> bool:
        return os.path.exists(self._name(version))

    def listing(self) -> Listing:
        """Return the versions in the folder. If a writer commits at the same time, a commit may be
        listed and an earlier one missing."""
        try:
            names = os.listdir(self.log)
        except FileNotFoundError:
            names = []
        return Listing(
            frozenset(_versions(names, _COMMIT)), tuple(sorted(_versions(names, _CHECKPOINT)))
        )

    # ---- the end

    def ends_at(self, version: int) -> bool:
        """Return True if a quick check finds nothing after `version`, which must exist."""
        return not any(self.has(version + step) for step in _LOOK_AHEAD)

    def end(self, at_least: int = 0) -> int:
        """Return the newest version, proved by a listing; `at_least` is a version that must exist.

        Raise CorruptStore if a version is missing that no checkpoint replaces.
        """
        # A new checkpoint may replace a version during the search: a second listing decides.
        first = self.listing()
        if self._hole(first, at_least) is None:
            return first.newest
        listing = self.listing()
        hole = self._hole(listing, at_least)
        if hole is None:
            return listing.newest
        raise self.missing(hole, max(listing.newest, at_least))

    def _hole(self, listing: Listing, at_least: int) -> int | None:
        last = max(listing.newest, at_least, 0)
        for version in range(listing.base + 1, last + 1):
            # A listing beside a writer may miss a commit, so the file itself decides.
            if version not in listing.commits and not self.has(version):
                return version
        return None

    def absence_of(self, version: int, newest: int) -> StoreError:
        """Return the error for a commit that does not exist: LogTrimmed if a checkpoint replaces
        it, CorruptStore otherwise."""
        if version <= self.listing().base:
            return LogTrimmed(f"version {version} of the table {self.table} is behind a checkpoint")
        return self.missing(version, newest)

    def missing(self, version: int, newest: int) -> CorruptStore:
        reason = f"although version {newest} was made" if newest > version else "but needed"
        return CorruptStore(
            f"version {version} of the table {self.table} is missing, {reason}: "
            f"{self.path(version)} is gone. Nothing is read or written past such a hole. "
            "Stop servers and engine and put that file back, or restore a back-up",
            self._file(version),
        )

    # ---- one commit

    def read(self, version: int) -> Commit | None:
        """Read a commit; None for a version that is not made yet, or behind a checkpoint."""
        actions = self.actions(version)
        if actions is None:
            return None
        try:
            added = tuple(data_file(action["add"]) for action in actions if "add" in action)
            removed = [action["remove"]["path"] for action in actions if "remove" in action]
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(version, repr(error)) from error
        return Commit(version, added, tuple(map(unquote, removed)))

    def actions(self, version: int) -> list[Mapping[str, Any]] | None:
        """Return the actions of a commit; None if it does not exist. Raise CorruptStore if it is
        damaged."""
        try:
            with open(self._name(version), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return None
        if not seal_holds(content):
            raise self._damaged(version, "its hash is wrong")
        try:
            actions = [json.loads(line) for line in content.splitlines() if line]
        except ValueError as error:
            raise self._damaged(version, str(error)) from error
        if not actions:
            raise self._damaged(version, "it is empty")
        return actions

    def _damaged(self, version: int, reason: str) -> CorruptStore:
        return CorruptStore(
            f"version {version} of the table {self.table} can't be read: {self.path(version)} is "
            f"damaged ({reason}). Restore that file from a back-up; `psoup repair STORE` lists "
            "all damage",
            self._file(version),
        )

    def _file(self, version: int) -> str:
        """Return the name of a commit file for messages."""
        return f"{self.table}/_delta_log/{self.path(version).name}"

    def put(
        self,
        version: int,
        info: Mapping[str, Any],
        actions: Iterable[Mapping[str, Any]],
        *,
        sync: bool = True,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Make `version`, with a `commitInfo` and other actions. Raise Conflict if another writer
        has, CorruptStore if it would stand on nothing or fill a hole, FileGone, and what `check`
        raises just before the link.

        A writer that stalls in the link may find a number that was used and is free again: the
        caller compares it with the floor afterwards.
        """
        self._check(version)
        lines = [{"commitInfo": {**unsealed(), **info}}, *actions]
        content = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
        try:
            put_if_absent(self.path(version), sealed(content.encode()), sync=sync, check=check)
        except FileExistsError:
            raise Conflict(self.log.parent.name, version) from None
        except FileNotFoundError as error:
            raise FileGone(f"the draft of version {version} of {self.table} is gone") from error

    def _check(self, version: int) -> None:
        before = version - 1
        # A checkpoint at `before` replaces the commit there. A later one shows that `version` was
        # made.
        if version > 0 and not self.has(before):
            base = self.listing().base
            if base >= version:
                raise Conflict(self.log.parent.name, version)
            if base < before:
                raise self.missing(before, before)
        if not self.ends_at(version) and not self.has(version):
            raise self.missing(version, version + 1)

    def _name(self, version: int) -> str:
        return f"{self._prefix}{version:0{_DIGITS}d}{_COMMIT}"


def _versions(names: Iterable[str], ending: str) -> Iterable[int]:
    length = _DIGITS + len(ending)
    return (
        int(name[:_DIGITS])
        for name in names
        if len(name) == length and name.endswith(ending) and name[:_DIGITS].isdigit()
    )
