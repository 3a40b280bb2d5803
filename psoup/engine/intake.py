"""What a step takes of the log: how far it goes, and which commits make a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psoup.engine.settings import EngineSettings
from psoup.store.delta import DeltaFolder


@dataclass(frozen=True, slots=True)
class LogFile:
    version: int
    path: str
    size: int


# Neighbours in the log, so that their rows are one run of ids in each stream.
Task = tuple[LogFile, ...]


def reach(log: DeltaFolder, version: int, settings: EngineSettings) -> int:
    """As far as one step may go from `version`; `version` itself where nothing is new."""
    size = 0
    for number in range(version + 1, version + 1 + settings.step_commits):
        commit = log.read_commit(number)
        if commit is None:
            return number - 1
        size += sum(file.size for file in commit.added)
        if size > settings.step_bytes:
            return max(number - 1, version + 1)
    return version + settings.step_commits


def tasks(log: DeltaFolder, start: int, end: int, parallelism: int, task_bytes: int) -> list[Task]:
    """The commits after `start` up to `end`, in at most `parallelism` tasks of about equal size."""
    files = list(_files(log, start, end))
    total = sum(file.size for file in files)
    count = min(parallelism, 1 + total // task_bytes)
    parts: list[list[LogFile]] = [[] for _ in range(count)]
    before = 0
    for file in files:
        parts[min(count - 1, before * count // max(total, 1))].append(file)
        before += file.size
    return [tuple(part) for part in parts if part]


def _files(log: DeltaFolder, start: int, end: int) -> Iterator[LogFile]:
    for version in range(start + 1, end + 1):
        commit = log.read_commit(version)
        for file in commit.added if commit else ():
            yield LogFile(version, str(log.path_of(file)), file.size)
