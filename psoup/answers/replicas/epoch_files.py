"""The engine's files: which of them an epoch names, and the rows of a stream read from them.

Rows that no file has yet are read from the log again if they have left memory.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.blocks import BLOCK_ROWS
from datastem.codec import empty_rows
from datastem.memory import Memory
from datastem.schema import StreamSchema
from datastem.segments import Inserts, RowSegment
from datastem.stem import SegmentReader
from psoup.store import (
    CorruptStore,
    Data,
    DataFile,
    Entry,
    Epoch,
    Hole,
    LogTrimmed,
    Snapshot,
    Store,
)
from psoup.store.epochs import GENESIS
from psoup.store.layout import COVERAGE, SEGMENT_BITS
from psoup.store.log.decoding import rows_of
from psoup.store.tables import read_files
from results.stored_matches import StreamCoverage

log = logging.getLogger("psoup.answers")

MatchFiles = Mapping[tuple[int, int], Sequence[DataFile]]


# ---- what an epoch names


@dataclass(frozen=True, slots=True)
class EpochView:
    """The files of an epoch, of rows, matches and heartbeats (`reached`), and the rows that the
    matches cover. `stem_bytes` and `match_bytes` are the sizes of each stream's files.

    Immutable: an answer keeps the view it began with.
    """

    epoch: Epoch
    version: int
    stems: Mapping[int, Snapshot]
    matches: Snapshot
    match_files: MatchFiles
    coverage: Mapping[int, StreamCoverage]
    reached: Snapshot
    stem_bytes: Mapping[int, int]
    match_bytes: Mapping[int, int]

    @property
    def number(self) -> int:
        return self.epoch.number

    def covering(self, stream_id: int) -> StreamCoverage:
        return self.coverage.get(stream_id) or StreamCoverage.nothing()

    def files_for(self, stream_id: int, block: int, predicate: int) -> list[DataFile]:
        """Return the files that hold all matches of a predicate in a block."""
        return [
            file
            for file in self.match_files.get((stream_id, block >> SEGMENT_BITS), ())
            if _may_hold(file, "block", block) and _may_hold(file, "predicate_id", predicate)
        ]

    def files_of(self, stream_id: int, predicate: int) -> list[DataFile]:
        """Return the files that hold all matches of a predicate."""
        return [
            file
            for (stream, _), files in self.match_files.items()
            for file in files
            if stream == stream_id and _may_hold(file, "predicate_id", predicate)
        ]


EMPTY = EpochView(GENESIS, 0, {}, Snapshot(0), {}, {}, Snapshot(0), {}, {})


def open_epoch_view(
    store: Store, version: int, epoch: Epoch, before: EpochView = EMPTY
) -> EpochView:
    """Return the view of an epoch, reusing what an earlier view has. `version` is that of the
    epochs table.

    Derived data that can't be read is left out: composites, and matches with their coverage.
    """
    stems = _stems(store, epoch, before)
    matches = _matches(store, epoch, before)
    same = matches.version == before.matches.version and before is not EMPTY
    match_files = before.match_files if same else _by_segment(matches.files.values())
    return EpochView(
        epoch,
        version,
        stems,
        matches,
        match_files,
        # Covered rows without a match are taken not to match, so without files none may be covered.
        {} if matches.version < 0 else _coverage(store, epoch, before),
        _advance(store, before.reached, epoch, "reached", before is EMPTY),
        {id_: _stem_bytes(before, id_, snapshot) for id_, snapshot in stems.items()},
        before.match_bytes if same else _match_bytes(match_files),
    )


def _stem_bytes(before: EpochView, stream_id: int, snapshot: Snapshot) -> int:
    if before.stems.get(stream_id) is snapshot:
        return before.stem_bytes[stream_id]
    return sum(file.size for file in snapshot.files.values())


def _match_bytes(match_files: MatchFiles) -> dict[int, int]:
    sizes: Counter[int] = Counter()
    for (stream_id, _), files in match_files.items():
        sizes[stream_id] += sum(file.size for file in files)
    return sizes


def _may_hold(file: DataFile, column: str, value: int) -> bool:
    # A file without statistics of the column may hold any value.
    return file.low.get(column, value) <= value <= file.high.get(column, value)


def _stems(store: Store, epoch: Epoch, before: EpochView) -> dict[int, Snapshot]:
    stems = {}
    for id_, mark in epoch.stems.items():
        try:
            stems[id_] = _advance_stem(store, before, epoch, id_, mark.version)
        except (CorruptStore, LogTrimmed) as error:
            # Rows of a stream can't be computed again, combinations can.
            if id_ in epoch.streams:
                raise
            # Damage is logged when it is first seen, not again for each epoch that still has it.
            if id_ in before.stems or id_ not in before.epoch.composites:
                log.error("%s; its combinations are joined here", error)
    return stems


def _matches(store: Store, epoch: Epoch, before: EpochView) -> Snapshot:
    """Return the files of the matches; none, at a version below all others, if their log is
    damaged."""
    try:
        return _advance(store, before.matches, epoch, "matches", before is EMPTY)
    except (CorruptStore, LogTrimmed) as error:
        if before.matches.version >= 0:
            log.error("%s; all matches are computed here until the engine writes it again", error)
        return Snapshot(-1)


def _advance(store: Store, snapshot: Snapshot, epoch: Epoch, name: str, fresh: bool) -> Snapshot:
    if fresh:
        return store.snapshot(epoch, name)
    return store.table(name).advance(snapshot, epoch.versions.get(name, 0))


def _advance_stem(
    store: Store, before: EpochView, epoch: Epoch, stream_id: int, version: int
) -> Snapshot:
    snapshot = before.stems.get(stream_id)
    if snapshot is None:
        return store.stem_snapshot(epoch, stream_id)
    if version == snapshot.version:
        return snapshot
    return store.stem(stream_id).advance(snapshot, version)


def _by_segment(files: Iterable[DataFile]) -> MatchFiles:
    by_segment: dict[tuple[int, int], list[DataFile]] = {}
    for file in files:
        key = int(file.partition["stream_id"]), int(file.partition["segment"])
        by_segment.setdefault(key, []).append(file)
    return by_segment


def _coverage(store: Store, epoch: Epoch, before: EpochView) -> dict[int, StreamCoverage]:
    old, new = before.epoch.versions.get("coverage", 0), epoch.versions.get("coverage", 0)
    if old == new:
        return {
            stream_id: cover.at(mark.high)
            for stream_id, cover in before.coverage.items()
            if (mark := epoch.stem(stream_id)) is not None
        }
    try:
        table = read_files(store.table("coverage"), store.snapshot(epoch, "coverage"), COVERAGE)
    except (CorruptStore, LogTrimmed, FileNotFoundError) as error:
        log.error("%s; all matches are computed here until the engine writes it again", error)
        return {}
    streams = table.column("stream_id")
    return {
        stream_id: StreamCoverage.of(
            table.filter(pc.equal(streams, pa.scalar(stream_id))), mark.high
        )
        for stream_id, mark in epoch.stems.items()
    }


# ---- the rows of a stream


class StemReader:
    """Reads the rows of one stream from files and from the log. Thread-safe.

    A place of Inserts is the version of a commit. The commit that was read last is cached under the
    memory's budget if it has more rows than a block, since the next block will need it again.
    `is_known` must return True for a hole that existed when its commit was first read: it has no
    rows.
    """

    def __init__(
        self,
        memory: Memory,
        stream_id: int,
        schema: StreamSchema,
        read_files: SegmentReader,
        read_log: Callable[[int], Sequence[Entry]],
        is_known: Callable[[Hole], bool],
    ) -> None:
        self._memory = memory
        self._stream_id = stream_id
        self._schema = schema
        self._read_files = read_files
        self._read_log = read_log
        self._is_known = is_known
        self._last: tuple[int, StreamSchema, list[pa.RecordBatch]] = (0, schema, [])

    def alter(self, schema: StreamSchema) -> None:
        """Read rows with the columns of another schema from now on."""
        self._schema = schema

    def read(
        self, segments: Sequence[RowSegment], lo: int, hi: int, names: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return the rows of segments with ids in `[lo, hi)`; with `names`, only those columns.

        Raises FileNotFoundError or LogTrimmed if the engine has removed them since, CorruptStore if
        rows were lost since.
        """
        logged = [segment for segment in segments if isinstance(segment.source, Inserts)]
        if not logged:
            return self._read_files(segments, lo, hi, names)
        stored = [segment for segment in segments if segment not in logged]
        batches = [self._read_files(stored, lo, hi, names)]
        for segment in logged:
            first, stop = max(lo, segment.row_lo), min(hi, segment.row_hi)
            for version in segment.source.places(first, stop):
                batches += [_between(batch, first, stop) for batch in self._commit(version)]
        # Ids in the log are greater than those in files, so the batches ascend. A thread may alter
        # the stream meanwhile: files or commits then lack its new columns, which stay left out.
        present = [set(batch.schema.names) for batch in batches]
        columns = [name for name in batches[0].schema.names if all(name in p for p in present)]
        return pa.concat_batches([batch.select(columns) for batch in batches])

    def _commit(self, version: int) -> list[pa.RecordBatch]:
        """Return the rows of the stream in one commit of the log."""
        # One tuple, so that threads never see those of different commits or schemas.
        schema = self._schema
        cached_version, cached_schema, batches = self._last
        if cached_version == version and cached_schema is schema:
            return batches
        batches = [
            self._decode(entry, entry.event, schema)
            for entry in self._read_log(version)
            if isinstance(entry.event, Data)
            and entry.event.stream_id == self._stream_id
            and entry.event.rows
        ]
        if sum(batch.num_rows for batch in batches) > BLOCK_ROWS:
            self._last = version, schema, batches
            self._memory.hold((self, 0), sum(batch.nbytes for batch in batches))
        return batches

    def _decode(self, entry: Entry, event: Data, schema: StreamSchema) -> pa.RecordBatch:
        file = f"version {entry.position.version}"
        rows = rows_of(entry, event, schema, file)
        if not isinstance(rows, Hole):
            return rows
        if not self._is_known(rows):
            raise CorruptStore(f"the answer needs lost {rows.text(schema.name)}", rows.file)
        return empty_rows(schema)

    def forget(self) -> None:
        self._memory.drop((self, 0))
        self.evict(0)

    def evict(self, number: int) -> None:
        """Drop the cached commit. Called by the memory when it needs the room."""
        self._last = (0, self._schema, [])


def _between(batch: pa.RecordBatch, lo: int, hi: int) -> pa.RecordBatch:
    """Return the rows with ids in `[lo, hi)`."""
    ids = batch.column("_row_id").to_numpy()
    first, stop = np.searchsorted(ids, [lo, hi]).tolist()
    return batch.slice(first, stop - first)
