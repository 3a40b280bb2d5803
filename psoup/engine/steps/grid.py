"""The grid of a step: tasks are chunks of rows × groups of predicates.

A chunk is a run of neighbouring log files: a part of a step with enough bytes, or with enough work
by what tasks of earlier steps reported. A group is a range of predicate ids. Most chunks have one
group with all predicates. A chunk has more if its graph predicates (intervals, OR, LIKE) would take
one task more than a second. Hashed predicates cost too little to divide: each group probes all of
them, and keeps the matches of its own.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from datastem.arrays import Doubles, Int64s
from datastem.schema import StreamSchema
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import Outcome, Probed, Spent
from psoup.engine.steps.pieces import IdRange
from psoup.engine.steps.worker import Intake, LogFile, Task

# Less matching than this is no chunk: a task costs some 10 ms, and writes files of its own. To read
# and store the rows takes about as long as to match them.
_CHUNK_SECONDS = 0.125
# Less work than this is not divided by predicates: each group decodes the rows of its chunk again.
_GROUP_SECONDS = 1.0
# Groups of a chunk may repeat at most this much of its divided work: rows decoded, hashed probes.
_REPEATED_SHARE = 0.2
# Tasks of a step, for each core: with more than one, an uneven division delays the step less.
_TASKS_PER_CORE = 2
# Shorter steps say little about how long a large one takes.
_TELLING_SECONDS = 1.0
# The default of a step's size: bytes as tasks for each core, and commits for each core.
_STEP_TASKS_PER_CORE, _STEP_COMMITS_PER_CORE = 8, 128


@dataclass(frozen=True, slots=True)
class StepLimits:
    """How much of the log one step may take."""

    commits: int
    bytes: int


@dataclass(slots=True)
class StreamCost:
    """The processor time of matching one row of a stream, in seconds: what groups divide, and what
    each of them repeats. `ids` are some graph predicates, ascending, each of which stands for
    `weights` many."""

    divided: float
    repeated: float
    ids: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    weights: Doubles = field(default_factory=lambda: np.empty(0))

    def edges(self, groups: int) -> list[int]:
        """Return the ids at which groups with about equally many graph predicates begin, without
        the first group."""
        # The number of graph predicates up to each id.
        counts = np.cumsum(self.weights)
        shares = counts[-1] * np.arange(1, groups) / groups if len(counts) else []
        return sorted({int(self.ids[place]) for place in np.searchsorted(counts, shares)})


class StepCosts:
    """What steps have cost so far: an engine's memory of it, never stored."""

    def __init__(self) -> None:
        self._streams: dict[int, StreamCost] = {}
        self._byte_seconds: float | None = None

    def limits(self, settings: EngineSettings, parallelism: int) -> StepLimits:
        """Return the limits of the next step. They follow the cluster, and the time that the last
        steps took."""
        commits = settings.step_commits or _STEP_COMMITS_PER_CORE * max(parallelism, 2)
        size = (
            settings.step_bytes or _STEP_TASKS_PER_CORE * max(parallelism, 2) * settings.task_bytes
        )
        if self._byte_seconds:
            affordable = int(parallelism * settings.step_seconds / self._byte_seconds)
            size = min(size, max(affordable, settings.task_bytes))
        return StepLimits(commits, size)

    def chunks(self, rows: Mapping[int, int]) -> int:
        """Return how many chunks the work of some rows of each stream is worth, by what it costs to
        match them."""
        costs = ((self._streams[id_], rows[id_]) for id_ in self._streams.keys() & rows.keys())
        seconds = sum((cost.divided + cost.repeated) * count for cost, count in costs)
        return int(seconds / _CHUNK_SECONDS)

    def groups(self, stream_id: int, rows: int, most: int, end: int) -> list[IdRange]:
        """Return the ranges of predicate ids for the tasks of a chunk with some rows of a stream,
        at most `most`; together they hold all ids below `end`."""
        cost = self._streams.get(stream_id)
        if cost is None or most <= 1:
            return [(0, end)]
        divided, repeated = cost.divided * rows, cost.repeated * rows
        count = min(most, math.ceil(divided / _GROUP_SECONDS))
        if repeated:
            count = min(count, 1 + int(_REPEATED_SHARE * divided / repeated))
        edges = [edge for edge in cost.edges(count) if 0 < edge < end] if count > 1 else []
        return list(pairwise([0, *edges, end]))

    def note(self, outcomes: Iterable[Outcome], size: int) -> None:
        """Remember what the tasks of a step over `size` bytes of the log reported."""
        outcomes = list(outcomes)
        seconds = sum(outcome.seconds for outcome in outcomes if isinstance(outcome, Spent))
        # The fixed cost of tasks makes up most of a short step.
        if size and seconds >= _TELLING_SECONDS:
            self._byte_seconds = _smoothed(self._byte_seconds, seconds / size)
        streams: dict[int, list[Probed]] = {}
        for outcome in outcomes:
            if isinstance(outcome, Probed):
                streams.setdefault(outcome.stream_id, []).append(outcome)
        for stream_id, probed in streams.items():
            self._note(stream_id, probed)

    def _note(self, stream_id: int, probed: Sequence[Probed]) -> None:
        # Each row is in one first group.
        rows = sum(part.rows for part in probed if not part.lo)
        if not rows:
            return
        repeated = sum(part.repeated for part in probed) / sum(part.rows for part in probed)
        divided = sum(part.seconds - part.repeated for part in probed) / rows
        cost = self._streams.setdefault(stream_id, StreamCost(divided, repeated))
        cost.divided = _smoothed(cost.divided, divided)
        cost.repeated = _smoothed(cost.repeated, repeated)
        # The groups of different chunks may overlap: those of one chunk hold each predicate once.
        samples = {part.lo: part for part in probed if part.sample}
        if samples:
            ids = np.concatenate([np.array(part.sample) for part in samples.values()])
            weights = np.concatenate(
                [
                    np.full(len(part.sample), part.graph / len(part.sample))
                    for part in samples.values()
                ]
            )
            order = np.argsort(ids)
            cost.ids, cost.weights = ids[order], weights[order]


def _smoothed(previous: float | None, latest: float) -> float:
    return latest if previous is None else (previous + latest) / 2


def split_into_chunks(
    files: Sequence[LogFile], parallelism: int, task_bytes: int, worth: int = 1
) -> list[Task]:
    """Return log files split into at most `parallelism` chunks of about equal size: as many as they
    are `worth`, or as have at least `task_bytes`."""
    total = sum(file.size for file in files)
    count = min(parallelism, max(1 + total // task_bytes, worth))
    parts: list[list[LogFile]] = [[] for _ in range(count)]
    before = 0
    for file in files:
        # A file belongs to the part with its middle byte, so each part is a run of neighbours,
        # and as many files of about equal size as parts get one each.
        middle = before + file.size // 2
        parts[min(count - 1, middle * count // max(total, 1))].append(file)
        before += file.size
    return [tuple(part) for part in parts if part]


def cells(
    chunks: Sequence[Task],
    rows: Mapping[int, Mapping[int, int]],
    schemas: Mapping[int, StreamSchema],
    ends: Mapping[int, int],
    costs: StepCosts,
    parallelism: int,
) -> list[Intake]:
    """Return the tasks of a step: the cells of chunks × groups.

    `rows` has the number of rows by log version and stream. Streams in `ends` are matched with the
    predicates below that id only.
    """
    counted = [(files, _rows_of(files, rows, schemas)) for files in chunks]
    counted = [(files, counts) for files, counts in counted if counts]
    most = -(-_TASKS_PER_CORE * parallelism // max(len(counted), 1)) if parallelism > 1 else 1
    units: list[Intake] = []
    for files, counts in counted:
        groups: dict[int, list[IdRange]] = {}
        for stream_id, count in counts.items():
            end = ends.get(stream_id, sys.maxsize)
            groups[stream_id] = costs.groups(stream_id, count, most, end)
            _check(groups[stream_id], end)
        for number in range(max(map(len, groups.values()))):
            ranges = {id_: parts[number] for id_, parts in groups.items() if number < len(parts)}
            units.append(Intake(files, {id_: schemas[id_] for id_ in ranges}, ranges, number == 0))
    return units


def _rows_of(
    files: Task, rows: Mapping[int, Mapping[int, int]], streams: Container[int]
) -> dict[int, int]:
    """Return how many rows a chunk has of each of these streams that it has rows of."""
    counts: Counter[int] = Counter()
    for file in files:
        counts.update(rows.get(file.version, {}))
    return {stream_id: count for stream_id, count in counts.items() if stream_id in streams}


def _check(ranges: Sequence[IdRange], end: int) -> None:
    """Assert that each predicate id below `end` is in exactly one range."""
    assert ranges[0][0] == 0 and ranges[-1][1] == end
    assert all(lo <= hi for lo, hi in ranges)
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
