"""The files of a table at one version, and a commit that takes it to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from psoup.store.datafile import DataFile


@dataclass(frozen=True, slots=True)
class Commit:
    version: int
    added: tuple[DataFile, ...]
    removed: tuple[str, ...]

    def change(self, files: dict[str, DataFile]) -> None:
        """Takes the files of the version before, by path, to this one."""
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
