"""Large answers kept as row ids, whose rows are read chunk by chunk as the client reads them.

A row never changes, so its id stands for it. A chunk is read from the files of the newest epoch.
Rows that have left that epoch are read from the files of the epoch that the answer began with. The
engine keeps those for its grace period; after that the answer ends with RowsGone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, BLOCK_MASK, Part, Picked
from datastem.instants import SINCE_EVER
from datastem.stem_view import StemView
from psoup.answers.planning.plan import LegPlan
from psoup.answers.rows.leg_rows import LegRows, outputs_of
from psoup.errors import RowsGone
from psoup.store import Position
from psoup.store.errors import StoreError
from querystem.query import Query
from results.bitmaps import decode, encode
from results.row_order import time_order

# Python objects around the ids of one run.
_RUN_OVERHEAD_BYTES = 200
# The blocks that may be read for all chunks of an answer, for each block and chunk that it has.
# More are needed only if rows came in an order that has little to do with their ts.
_MAX_READS = 4
# The number of rows on which the size of an output row is measured.
_SAMPLE_ROWS = 1024


@dataclass(frozen=True, slots=True)
class IdRun:
    """Ascending ids of one block. Their low bits are those at the places `[start, stop)` of a range
    or of a roaring bitmap."""

    block: int
    lows: range | bytes
    start: int
    stop: int

    @classmethod
    def of(cls, ids: Int64s) -> IdRun:
        """Return the run of some ids, at least one."""
        first, last = int(ids[0]), int(ids[-1])
        lows: range | bytes
        # Ids ascend and are distinct, so a run without gaps is a range and needs no bitmap.
        if last - first + 1 == len(ids):
            lows = range(first & BLOCK_MASK, (last & BLOCK_MASK) + 1)
        else:
            lows = encode((ids & BLOCK_MASK).astype(np.uint16))
        return cls(first >> BLOCK_BITS, lows, 0, len(ids))

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def ids(self) -> Int64s:
        base = self.block << BLOCK_BITS
        if isinstance(self.lows, range):
            first = base + self.lows.start
            return np.arange(first + self.start, first + self.stop)
        return decode(self.lows)[self.start : self.stop].astype(np.int64) + base

    def slice(self, start: int, stop: int) -> IdRun:
        return IdRun(self.block, self.lows, self.start + start, self.start + stop)


# The ids of rows that follow each other in an answer, in the order of (ts, row id).
Chunk: TypeAlias = tuple[IdRun, ...]


@dataclass(frozen=True)
class ChosenRows:
    """The rows of an answer of a plain query over one leg, as chunks of ids.

    `leg` is as it was when the rows were chosen, but released.
    """

    query: Query
    leg: LegPlan
    chunks: Sequence[Chunk]
    position: Position
    computed_rows: int
    joined_pairs: int = 0
    # How many rows of the last chunk the answer has, if not all.
    max_last_rows: int | None = None

    @property
    def stream_id(self) -> int:
        return self.leg.stream_id

    @cached_property
    def row_count(self) -> int:
        return sum(len(run) for chunk in self.chunks for run in chunk)

    @cached_property
    def nbytes(self) -> int:
        runs = [run for chunk in self.chunks for run in chunk]
        # The slices of a run share its bitmap, which counts once.
        bitmaps = {id(run.lows): run.lows for run in runs if isinstance(run.lows, bytes)}
        return _RUN_OVERHEAD_BYTES * len(runs) + sum(map(len, bitmaps.values()))

    def first(self, max_rows: int) -> ChosenRows:
        """Return the answer with at most its first `max_rows` rows, and at least one chunk."""
        chunks, missing = [self.chunks[0]], max_rows
        for chunk in self.chunks[1:]:
            size = sum(map(len, chunks[-1]))
            if missing <= size:
                break
            missing -= size
            chunks.append(chunk)
        return replace(self, chunks=chunks, max_last_rows=missing)

    def take(self, number: int, newest: StemView | None) -> Sequence[pa.RecordBatch]:
        """Return the outputs of a chunk.

        `newest` is the leg's stem of now, None if the stream was dropped. Raises RowsGone if
        neither that nor the answer's own epoch has all rows, FileNotFoundError or LogTrimmed if a
        file is gone that the newest epoch names.
        """
        chunk = self.chunks[number]
        rows = None if newest is None else _rows(newest, chunk)
        if rows is None:
            try:
                rows = _rows(self.leg.stem, chunk)
            except (FileNotFoundError, StoreError):
                # Files that no epoch names any more may be deleted, or damaged for all it matters.
                rows = None
        if rows is None:
            raise RowsGone(
                "the answer was read so slowly that the engine has deleted rows of it",
                hint="ask again, and read within the engine's --grace; or keep a copy with Sync, "
                "which goes on where it was interrupted",
            )
        batches = outputs_of(self.query, self.leg.schema, rows)
        # The ids of a chunk are not in the order of its rows, so rows are cut, not ids.
        if self.max_last_rows is not None and number == len(self.chunks) - 1:
            return first_rows(batches, self.max_last_rows)
        return batches


def first_rows(batches: Sequence[pa.RecordBatch], max_rows: int) -> list[pa.RecordBatch]:
    """Return at most the first `max_rows` rows of batches, in one batch or more."""
    kept = [batches[0].slice(0, max_rows)]
    for batch in batches[1:]:
        max_rows -= kept[-1].num_rows
        if max_rows <= 0:
            break
        kept.append(batch.slice(0, max_rows))
    return kept


def _rows(stem: StemView, chunk: Chunk) -> Picked | None:
    """Return the rows of a chunk; None if the stem lacks one."""
    picked = [piece for run in chunk for piece in _rows_of(stem, run)]
    complete = sum(len(places) for _, places in picked) == sum(map(len, chunk))
    return picked if complete else None


def _rows_of(stem: StemView, run: IdRun) -> Iterator[tuple[Part, Int64s]]:
    ids = run.ids
    for part in stem.parts(run.block, stem.high):
        places = part.find(ids)
        if len(places):
            yield part, places


# ---- choosing


def choose_in_chunks(
    query: Query, rows: LegRows, chunk_bytes: int
) -> tuple[Picked | None, Sequence[Chunk]]:
    """Return the rows of a leg that a plain query has: picked, if they fit into one chunk;
    otherwise None, and chunks of about `chunk_bytes`.

    There are no chunks if the rows came in an order so different from that of their ts that each
    chunk would need most of the blocks.
    """
    parts, picked, size = rows.parts(), [], 0.0
    for part in parts:
        places = rows.places(part)
        if len(places):
            picked.append((part, places))
            size += len(places) * _output_bytes(query, rows, part, places)
        if size > chunk_bytes:
            break
    else:
        return picked, ()
    step = max(1, int(chunk_bytes * sum(len(places) for _, places in picked) / size))
    # From here on only ids are held: blocks may leave the memory.
    runs, latest, ordered = [], SINCE_EVER, True
    for part, places in chain(_popped(picked), _places(rows, parts)):
        low, high = part.bounds
        # Ids ascend from part to part, so rows of equal ts at a border are in order too.
        ordered = ordered and part.in_order and low >= latest
        latest = high
        runs.append(IdRun.of(part.ids[places]))
    return None, _cut(runs, step) if ordered else _sorted(rows.leg.stem, runs, step)


def _popped(picked: list[tuple[Part, Int64s]]) -> Iterator[tuple[Part, Int64s]]:
    while picked:
        # Popping lets go of each part as soon as its ids are taken.
        yield picked.pop(0)


def _places(rows: LegRows, parts: Iterator[Part]) -> Iterator[tuple[Part, Int64s]]:
    """Yield the chosen rows of parts that have any."""
    for part in parts:
        places = rows.places(part)
        if len(places):
            yield part, places


def _cut(runs: Sequence[IdRun], step: int) -> list[Chunk]:
    """Return chunks of `step` rows, from runs that are in the order of the answer."""
    chunks: list[Chunk] = []
    chunk, missing = list[IdRun](), step
    for run in runs:
        start = 0
        while start < len(run):
            stop = min(len(run), start + missing)
            chunk.append(run.slice(start, stop))
            missing -= stop - start
            start = stop
            if not missing:
                chunks.append(tuple(chunk))
                chunk, missing = [], step
    return [*chunks, tuple(chunk)] if chunk else chunks


def _sorted(stem: StemView, runs: Sequence[IdRun], step: int) -> list[Chunk]:
    """Return chunks of `step` rows by (ts, row id), from runs of ascending ids; none if they take
    too many reads."""
    moments = [
        (part.ts[places], part.ids[places]) for run in runs for part, places in _rows_of(stem, run)
    ]
    ts, ids = (np.concatenate(pieces) for pieces in zip(*moments, strict=True))
    order = time_order(ts, ids)
    # The chosen rows may be in order although the rows of their parts are not.
    if order is None:
        return _cut(runs, step)
    ordered = ids[order]
    chunks, reads = [], 0
    max_reads = _MAX_READS * (len({run.block for run in runs}) + -(-len(ids) // step))
    for start in range(0, len(ids), step):
        # A run has ascending ids of one block, so a chunk is sorted by id and cut where the block
        # changes. `outputs_of` restores the order of time.
        chunk_ids = np.sort(ordered[start : start + step])
        by_block = np.split(chunk_ids, np.flatnonzero(np.diff(chunk_ids >> BLOCK_BITS)) + 1)
        reads += len(by_block)
        if reads > max_reads:
            return []
        chunks.append(tuple(map(IdRun.of, by_block)))
    return chunks


def _output_bytes(query: Query, rows: LegRows, part: Part, places: Int64s) -> float:
    """Return the bytes of an output row, measured on a sample of a part's rows."""
    step = -(-len(places) // _SAMPLE_ROWS)
    (sample,) = outputs_of(query, rows.leg.schema, [(part, places[::step])])
    return float(max(sample.nbytes / sample.num_rows, 8 * len(query.outputs)))
