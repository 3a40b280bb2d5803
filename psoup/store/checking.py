"""The check of a whole store: that its tables say what follows from its rows and its log.

`inspection` finds files that can't be read. This module compares what is in them: coverage with
rows and predicates, matches with the conditions evaluated again, closures with the rows, and the
epoch with the log. Combinations of composites are not made again. A pin keeps the files on the
disk, so it may run beside servers and the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s
from datastem.codec import HISTORY_COLUMNS
from datastem.history import all_closures
from datastem.keyed_rows import KeyedRows
from psoup.store import inspection
from psoup.store.backup.pins import Pin
from psoup.store.block_checking import (
    BlockCheck,
    CheckBlocks,
    StreamCheck,
    blocks_of,
    check_here,
)
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import DataFileGone, reader
from psoup.store.epochs import Epoch
from psoup.store.errors import CorruptStore, LogTrimmed
from psoup.store.layout import COVERAGE, SEGMENT_BITS
from psoup.store.log.events import Data
from psoup.store.state.erasures import StreamErasures
from psoup.store.state.predicates import Predicate
from psoup.store.state.state import State
from psoup.store.state.streams import StreamState
from psoup.store.store import Store
from psoup.store.tables import read_files
from results.id_sets import intersect, member, size
from results.stored_matches import StreamCoverage


@dataclass(slots=True)
class CheckReport:
    """What a check found: `problems` for people, and how much it has looked at. `uncovered` counts
    pairs of a row and a predicate that no match is stored for: servers compute those."""

    problems: list[str]
    rows: int = 0
    predicates: int = 0
    uncovered: int = 0
    blocks: int = 0
    checked_blocks: int = 0


def check(
    store: Store,
    share: float,
    *,
    dice: Random | None = None,
    progress: Callable[[str], None] = lambda stage: None,
    check_blocks: CheckBlocks = check_here,
) -> CheckReport:
    """Check a store; evaluate the matches of a `share` of its blocks again, of each stream at least
    one, by `check_blocks`. `progress` is called with the name of each stage. Raise CorruptStore if
    the log or the epoch can't be read."""
    with Pin(store.root):
        report = CheckReport([])
        progress("files")
        report.problems += _damage(store)
        _, epoch = store.epochs.latest()
        checker = _Checker(store, epoch, report, check_blocks)
        progress("log")
        checker.run(checker.log_problems)
        state = store.state(epoch)
        streams = [stream for stream in state.streams.values() if stream.id in epoch.streams]
        for stream in streams:
            if not stream.dropped:
                progress(f"stream {stream.schema.name}")
                checker.check_stream(state, stream, share, dice or Random())
        return report


def _damage(store: Store) -> Iterator[str]:
    """Yield what `psoup repair` would list, without losses that were accepted."""
    losses = inspection.losses(store)
    for finding in inspection.damage(store):
        rows = finding.rows
        if rows is None or not any(loss.contains(rows) for loss in losses.accepted):
            yield finding.problem


class _Checker:
    def __init__(
        self, store: Store, epoch: Epoch, report: CheckReport, check_blocks: CheckBlocks
    ) -> None:
        self._check_blocks = check_blocks
        self._store = store
        self._epoch = epoch
        self._report = report
        # Files that can't be read are in the report already.
        self._lost = {hole.file for hole in epoch.losses.holes}

    def run(self, problems: Callable[[], Iterator[str]]) -> None:
        """Add problems to the report. Files that can't be read were reported before."""
        try:
            self._report.problems += problems()
        except (CorruptStore, DataFileGone, LogTrimmed) as error:
            if str(error) not in self._report.problems:
                self._report.problems.append(str(error))

    # ---- the epoch and the log

    def log_problems(self) -> Iterator[str]:
        """Compare the epoch with the log: row ids and stamps go on after it without a gap."""
        epoch, log = self._epoch, self._store.log
        log.prove_end(epoch.log_version)
        if epoch.position.version > epoch.log_version:
            yield (
                f"epoch {epoch.number} is at position {epoch.position}, but has consumed the log "
                f"only up to version {epoch.log_version}"
            )
        highs = {stream_id: mark.high for stream_id, mark in epoch.streams.items()}
        last_stamp = epoch.clock
        for version in range(epoch.log_version + 1, log.latest_version(epoch.log_version) + 1):
            for entry in log.read(version, payloads=False):
                if entry.stamp < last_stamp:
                    yield f"version {version} of the log has a stamp before that of an earlier one"
                last_stamp = max(last_stamp, entry.stamp)
                event = entry.event
                if not isinstance(event, Data) or not event.rows:
                    continue
                high = highs.get(event.stream_id, 0)
                if event.first_row_id != high:
                    yield (
                        f"version {version} of the log begins at row {event.first_row_id} of "
                        f"stream number {event.stream_id}, which had {high} rows"
                    )
                highs[event.stream_id] = event.first_row_id + event.rows

    # ---- a stream

    def check_stream(self, state: State, stream: StreamState, share: float, dice: Random) -> None:
        _, predicates = state.columns
        ids = predicates.of_stream(stream.id)
        # Servers compute what is in quarantine, whatever the tables say.
        active = [id_ for id_ in ids.tolist() if id_ not in state.quarantine.predicates]
        files = self._stem_files(stream)
        self._report.rows += sum(file.rows for file in files)
        self._report.predicates += len(ids)
        erasures = state.erased(stream.id)
        self.run(lambda: self._stem_problems(stream, files, erasures))
        if (table := self._coverage_table) is not None:
            entries = table.filter(pc.equal(table.column("stream_id"), pa.scalar(stream.id)))
            high = self._epoch.streams[stream.id].high
            floor = min((file.low["_row_id"] for file in files if file.low), default=high)
            self.run(lambda: self._coverage_problems(stream, entries, floor, active))
            coverage = StreamCoverage.of(entries, high)
            tested = [state.predicates[id_] for id_ in active]
            self.run(lambda: self._match_problems(stream, files, coverage, tested, share, dice))
        if stream.schema.key and stream.id not in self._epoch.unclosed:
            self.run(lambda: self._closure_problems(stream, files))

    def _stem_files(self, stream: StreamState) -> list[DataFile]:
        snapshot = self._store.stem_snapshot(self._epoch, stream.id)
        lost, name = self._lost, f"stems/{stream.id}"
        return [file for path, file in snapshot.files.items() if f"{name}/{path}" not in lost]

    def _stem_problems(
        self, stream: StreamState, files: list[DataFile], erasures: StreamErasures
    ) -> Iterator[str]:
        """Compare the row ids of all files with each other, with the epoch and with erasures."""
        root, high = self._store.stem(stream.id).root, self._epoch.streams[stream.id].high
        count, is_past, is_repeated = 0, False, False
        # Of each erased row, whether the stem still has it.
        is_left = np.zeros(len(erasures.ids), np.bool_)
        # Not all ids at once: a stream may have more rows than this process has memory for.
        for group in overlapping(files):
            parts = [reader(root, file).read(["_row_id"]).column(0).to_numpy() for file in group]
            ids = np.sort(np.concatenate([np.empty(0, np.int64), *parts]))
            count += len(ids)
            is_left |= member(erasures.ids, ids)
            is_past |= bool(len(ids) and (ids[0] < 0 or ids[-1] >= high))
            if len(ids) and not _holds(group, int(ids[0]), int(ids[-1])):
                yield f"the stem of {stream.schema.name} has rows outside of its files' ranges"
            repeated = ids[1:][np.diff(ids) == 0]
            if repeated.size and not is_repeated:
                is_repeated = True
                yield f"the stem of {stream.schema.name} has the row {repeated[0]} twice"
        if is_past:
            yield f"the stem of {stream.schema.name} has rows past {high}, the end of the epoch"
        kept = high - int((~is_left).sum())
        if count < kept and not (is_repeated or self._has_left(stream)):
            yield f"the stem of {stream.schema.name} has {count} of {kept} rows"
        if is_left.any() and erasures.last <= self._epoch.erased:
            yield f"the stem of {stream.schema.name} has rows that were erased"

    # ---- coverage

    @cached_property
    def _coverage_table(self) -> pa.Table | None:
        """The coverage of all streams; None if it can't be read, which is in the report."""
        snapshot = self._store.snapshot(self._epoch, "coverage")
        try:
            return read_files(self._store.table("coverage"), snapshot, COVERAGE)
        except (CorruptStore, DataFileGone):
            return None

    def _coverage_problems(
        self, stream: StreamState, entries: pa.Table, floor: int, predicates: list[int]
    ) -> Iterator[str]:
        """Every predicate is matched with new rows, and with no row that does not exist."""
        name, high = stream.schema.name, self._epoch.streams[stream.id].high
        coverage = StreamCoverage.of(entries, high)
        # The entries without a last row: they grow with the stream.
        open_ids = entries.filter(pc.is_null(entries.column("row_hi")))
        bounds = [open_ids.column(side).to_numpy() for side in ("predicate_lo", "predicate_hi")]
        for predicate in predicates:
            if not ((bounds[0] <= predicate) & (predicate < bounds[1])).any():
                yield f"coverage: predicate {predicate} of {name} is not matched with new rows"
            ranges = coverage.ranges(predicate)
            if ranges and (ranges[0][0] < 0 or ranges[-1][1] > high):
                yield f"coverage: predicate {predicate} of {name} covers rows that do not exist"
            self._report.uncovered += high - floor - size(intersect(floor, high, ranges))

    # ---- matches

    def _match_problems(
        self,
        stream: StreamState,
        files: list[DataFile],
        coverage: StreamCoverage,
        predicates: list[Predicate],
        share: float,
        dice: Random,
    ) -> Iterator[str]:
        blocks = sorted({block for file in files for block in blocks_of(file)})
        count = min(len(blocks), max(1, round(share * len(blocks))))
        chosen = sorted(dice.sample(blocks, count))
        self._report.blocks += len(blocks)
        self._report.checked_blocks += count
        store = self._store
        folders = store.stem(stream.id).root, store.table("matches").root
        shared = StreamCheck(*folders, stream.schema, coverage, predicates)
        checks = [self._block_check(stream, files, block) for block in chosen]
        for problem in self._check_blocks(shared, checks) if checks else ():
            # A file that can't be read is in the report already, and several blocks need it.
            if problem not in self._report.problems:
                yield problem

    def _block_check(self, stream: StreamState, files: list[DataFile], block: int) -> BlockCheck:
        stem_files = tuple(file for file in files if block in blocks_of(file))
        match_files = self._match_files.get((stream.id, block >> SEGMENT_BITS), ())
        return BlockCheck(block, stem_files, tuple(match_files))

    @cached_property
    def _match_files(self) -> dict[tuple[int, int], list[DataFile]]:
        """The files of matches, by stream and segment."""
        files: dict[tuple[int, int], list[DataFile]] = {}
        for file in self._store.snapshot(self._epoch, "matches").files.values():
            key = int(file.partition["stream_id"]), int(file.partition["segment"])
            files.setdefault(key, []).append(file)
        return files

    # ---- closures

    def _closure_problems(self, stream: StreamState, files: list[DataFile]) -> Iterator[str]:
        """Compare the closures with those that follow from the rows."""
        root = self._store.stem(stream.id).root
        parts = [KeyedRows.of(reader(root, file).read(list(HISTORY_COLUMNS))) for file in files]
        rows = KeyedRows.joined(parts)
        derived = all_closures(rows.take(np.argsort(rows.ids)))
        expected = _triples([(part.ids, part.ends, part.by) for part in derived])
        stored = _triples(list(self._stored_closures(stream.id)))
        wrong = _late(expected, stored) if self._has_left(stream) else _different(expected, stored)
        if len(wrong):
            yield (
                f"closures: {len(wrong)} rows of {stream.schema.name} end at other instants than "
                f"later rows of their keys say, such as row {wrong[0]}"
            )

    def _has_left(self, stream: StreamState) -> bool:
        """Return True if rows of a stream may be gone, by retention or by loss."""
        losses = self._epoch.losses
        return stream.schema.retain is not None or bool(losses.holes or losses.accepted)

    def _stored_closures(self, stream_id: int) -> Iterator[tuple[Int64s, Int64s, Int64s]]:
        root = self._store.table("closures").root
        for file in self._store.snapshot(self._epoch, "closures").files.values():
            if file.partition["stream_id"] == str(stream_id):
                table = reader(root, file).read(["row_id", "end", "by"])
                ends = table.column("end").cast(pa.int64()).to_numpy()
                yield table.column("row_id").to_numpy(), ends, table.column("by").to_numpy()


def _holds(files: Sequence[DataFile], first: int, last: int) -> bool:
    """Return True if the ranges of ids that some files name hold two ids."""
    least = min(file.low["_row_id"] for file in files)
    return least <= first and last <= max(file.high["_row_id"] for file in files)


def overlapping(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Yield the files of a stem in groups: no id lies in the ranges of files of two groups. Files
    without rows are left out."""
    group: list[DataFile] = []
    end = -1
    for file in sorted((file for file in files if file.low), key=lambda file: file.low["_row_id"]):
        if group and file.low["_row_id"] > end:
            yield group
            group, end = [], -1
        group.append(file)
        end = max(end, file.high["_row_id"])
    if group:
        yield group


def _triples(parts: list[tuple[Int64s, Int64s, Int64s]]) -> Int64s:
    """Return closures as an array of (row id, end, by) in each row, sorted, without repetitions."""
    arrays = [np.stack(part, axis=1) for part in parts]
    triples: Int64s = np.unique(np.concatenate([np.empty((0, 3), np.int64), *arrays]), axis=0)
    return triples


def _different(expected: Int64s, stored: Int64s) -> Int64s:
    """Return the ids of rows with closures that only one of both has."""
    triples, counts = np.unique(np.concatenate([expected, stored]), axis=0, return_counts=True)
    ids: Int64s = np.unique(triples[counts == 1, 0])
    return ids


def _late(expected: Int64s, stored: Int64s) -> Int64s:
    """Return the ids of rows whose stored closures are missing, or later than expected. They may be
    earlier: the row that ended another one may be gone."""
    # The earliest end of each row, which comes first.
    ids, places = np.unique(expected[:, 0], return_index=True)
    stored_ids, stored_places = np.unique(stored[:, 0], return_index=True)
    _, common, stored_common = np.intersect1d(ids, stored_ids, return_indices=True)
    in_time = np.zeros(len(ids), np.bool_)
    in_time[common] = stored[stored_places[stored_common], 1] <= expected[places[common], 1]
    late: Int64s = ids[~in_time]
    return late
