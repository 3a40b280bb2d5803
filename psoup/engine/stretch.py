"""A stretch of the log: how far one step goes, and which commits make a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psoup.engine.settings import EngineSettings
from psoup.store.delta import DeltaFolder
from psoup.store.delta.files import DataFile


@dataclass(frozen=True, slots=True)
class LogFile:
    """The file of one commit of the log."""

    version: int
    file: DataFile

    @property
    def size(self) -> int:
        return self.file.size


@dataclass(frozen=True, slots=True)
class Stretch:
    """The files of the log's commits up to version `end`, in their order."""

    end: int
    files: tuple[LogFile, ...] = ()


# Neighbours in the log, so that their rows are one run of ids in each stream.
Task = tuple[LogFile, ...]


def next_stretch(log: DeltaFolder, version: int, settings: EngineSettings) -> Stretch:
    """The stretch that one step may take after `version`; it ends there where nothing is new."""
    files: list[LogFile] = []
    size, last = 0, version + settings.step_commits
    for number in range(version + 1, last + 1):
        commit = log.read_commit(number)
        if commit is None:
            return Stretch(number - 1, tuple(files))
        size += sum(file.size for file in commit.added)
        if size > settings.step_bytes and number > version + 1:
            return Stretch(number - 1, tuple(files))
        files += [LogFile(number, file) for file in commit.added]
    return Stretch(last, tuple(files))


def split_into_tasks(files: Sequence[LogFile], parallelism: int, task_bytes: int) -> list[Task]:
    """Splits log files into at most `parallelism` tasks of about equal size."""
    total = sum(file.size for file in files)
    count = min(parallelism, 1 + total // task_bytes)
    parts: list[list[LogFile]] = [[] for _ in range(count)]
    before = 0
    for file in files:
        parts[min(count - 1, before * count // max(total, 1))].append(file)
        before += file.size
    return [tuple(part) for part in parts if part]
