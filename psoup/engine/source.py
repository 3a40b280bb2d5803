"""The log as a streaming source: one row per commit, cut into tasks of about equal size.

An offset is the log version consumed and the tick (see `alarm`). Asking for the latest offset
waits a little for something new, so that a quiet store costs a look at the disk now and then and
a new commit is seen within milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from psoup.engine.alarm import Alarm
from psoup.engine.settings import EngineSettings
from psoup.store.delta import DeltaFolder

NAME = "psoup_log"
SCHEMA = "version long, path string"


@dataclass(frozen=True, slots=True)
class LogFile:
    version: int
    path: str
    size: int


class LogSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return LogReader(self.options)


def options(
    log: Path, alarm: Path, start: int, parallelism: int, settings: EngineSettings
) -> dict[str, str]:
    """What the source is told: where to look, the version consumed already, its limits."""
    told = {
        "log": log,
        "alarm": alarm,
        "start": start,
        "parallelism": parallelism,
        "poll": settings.poll,
        "wait": settings.wait,
        "step_commits": settings.step_commits,
        "step_bytes": settings.step_bytes,
        "task_bytes": settings.task_bytes,
    }
    return {name: str(value) for name, value in told.items()}


class LogReader(DataSourceStreamReader):
    def __init__(self, told: Mapping[str, str]) -> None:
        self._log = DeltaFolder(Path(told["log"]))
        self._alarm = Alarm(Path(told["alarm"]))
        self._start = int(told["start"])
        self._parallelism = int(told["parallelism"])
        self._poll, self._wait = float(told["poll"]), float(told["wait"])
        self._step_commits = int(told["step_commits"])
        self._step_bytes = int(told["step_bytes"])
        self._task_bytes = int(told["task_bytes"])

    def initialOffset(self) -> dict[str, int]:
        return {"version": self._start, "tick": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        deadline = time.monotonic() + self._wait
        while True:
            offset = {
                "version": self._reach(start["version"]),
                "tick": self._alarm.tick(start["tick"]),
            }
            if offset != start or time.monotonic() >= deadline:
                return offset
            time.sleep(self._poll)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        files = list(self._files(start["version"], end["version"]))
        return [InputPartition(part) for part in self._balance(files)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        files: list[LogFile] = partition.value
        versions = pa.array([file.version for file in files], pa.int64())
        paths = pa.array([file.path for file in files], pa.string())
        yield pa.RecordBatch.from_arrays([versions, paths], names=["version", "path"])

    def _reach(self, version: int) -> int:
        """As far as one step may go from `version`."""
        size = 0
        for number in range(version + 1, version + 1 + self._step_commits):
            commit = self._log.read_commit(number)
            if commit is None:
                return number - 1
            size += sum(file.size for file in commit.added)
            if size > self._step_bytes:
                return max(number - 1, version + 1)
        return version + self._step_commits

    def _files(self, start: int, end: int) -> Iterator[LogFile]:
        for version in range(start + 1, end + 1):
            commit = self._log.read_commit(version)
            for file in commit.added if commit else ():
                yield LogFile(version, str(self._log.path_of(file)), file.size)

    def _balance(self, files: list[LogFile]) -> list[list[LogFile]]:
        """Neighbours stay together, so that a task's rows are one run of ids in each stream."""
        total = sum(file.size for file in files)
        tasks = min(self._parallelism, 1 + total // self._task_bytes)
        parts: list[list[LogFile]] = [[] for _ in range(tasks)]
        before = 0
        for file in files:
            parts[min(tasks - 1, before * tasks // max(total, 1))].append(file)
            before += file.size
        return [part for part in parts if part]
