"""Erasure on disk: files are written again without the rows that were erased.

Commits of the log are never rewritten: they are trimmed once they are consumed. Of stems, closures,
matches, composites and their joins, files that may have an erased row are read, and written again
if they have one. The epoch that names none of the old files any more says up to which position
erased rows are gone. `Vacuum` then deletes the files, and `Wipe` waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyroaring
from pyspark.sql import SparkSession

from datastem.arrays import Int64s, Mask
from datastem.blocks import BLOCK_BITS
from psoup.engine.composites.boxes import edges_of
from psoup.engine.composites.lookup.edges import all_sides
from psoup.engine.composites.worker import write_joins
from psoup.engine.ledger import JOINS, STEM, Ledger, joins_name, stem_name, stream_of
from psoup.engine.maintain.merge import with_partition, write_closures
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import Outcome, SearchedFile, SparkJob, by_table, job_of, run_tasks
from psoup.engine.steps.pieces import ROW_SEGMENT_BITS
from psoup.engine.steps.worker import insert, write_pieces
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import reader
from psoup.store.layout import SEGMENTED, combination_part
from psoup.store.log.position import Position
from results.bitmaps import encode
from results.id_sets import member


@dataclass(frozen=True, slots=True)
class FileErasure:
    """A file that may have erased rows. `ids` are by column of row ids: those that are erased,
    ascending. In joins, `sides` are by side of the table instead."""

    table: str
    stream_id: int
    segment: int
    file: DataFile
    ids: Mapping[str, Int64s]
    sides: Mapping[int, Int64s]


class EraseFromFiles:
    """The chore that removes erased rows from the tables.

    A file without one is not read again by this engine: `_clean` has the paths of those. While
    `is_busy` returns True, a job beside the loop may bring files made from erased rows.
    """

    def __init__(
        self, spark: SparkSession, settings: EngineSettings, is_busy: Callable[[], bool]
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._is_busy = is_busy
        self._clean: set[tuple[str, str]] = set()
        self._aim: Position | None = None

    def advance(self, ledger: Ledger) -> bool:
        aim = _last_erasure(ledger)
        # Closures that are being derived are those of the rows that were there.
        if aim is None or ledger.unclosed.keys() & ledger.state.erasures.keys():
            return False
        if aim != self._aim:
            # Files that have no row of earlier erasures may have one of this.
            self._aim, self._clean = aim, set()
        chosen = list(self._batch(ledger))
        if chosen:
            self._erase(ledger, chosen)
            return True
        # A damaged file may be restored, and is written again then.
        if self._is_busy() or _has_damaged(ledger) or _has_ended(ledger):
            return False
        ledger.erased = aim
        ledger.publish("erase")
        self._clean = set()
        return True

    def _batch(self, ledger: Ledger) -> Iterator[FileErasure]:
        """Yield as many files as one job may read, and at least one if there is any."""
        size = 0
        for erasure in _erasures(ledger):
            if (erasure.table, erasure.file.path) in self._clean:
                continue
            if size and size + erasure.file.size > self._settings.merge_bytes:
                return
            size += erasure.file.size
            yield erasure

    def _erase(self, ledger: Ledger, erasures: list[FileErasure]) -> None:
        outcomes = run_tasks(self._spark, job_of(ledger), erase_from_file, erasures)
        changed = {
            (outcome.table, outcome.path)
            for outcome in outcomes
            if isinstance(outcome, SearchedFile) and outcome.changed
        }
        written, removed = by_table(outcomes), dict[str, list[DataFile]]()
        for erasure in erasures:
            if (erasure.table, erasure.file.path) in changed:
                removed.setdefault(erasure.table, []).append(erasure.file)
                ledger.histories.forget(erasure.stream_id)
            else:
                self._clean.add((erasure.table, erasure.file.path))
        self._clean.update((name, file.path) for name, files in written.items() for file in files)
        if removed:
            changes = {name: (written.get(name, ()), files) for name, files in removed.items()}
            ledger.commit_all(changes, operation="ERASE")
            ledger.publish("erase")


def _last_erasure(ledger: Ledger) -> Position | None:
    """Return the last erasure whose rows may be in the tables; None if there is none.

    One that names no rows counts, too: old files may have rows that no table has any more.
    """
    erasures = ledger.state.erasures.values()
    last = max((e.records[-1].position for e in erasures), default=ledger.erased)
    return last if last > ledger.erased else None


def _has_damaged(ledger: Ledger) -> bool:
    """Return True if a damaged file that a table still names may have erased rows."""
    for hole in ledger.state.losses.holes:
        ids = ledger.state.erased(hole.stream_id).since(ledger.erased)
        low, high = np.searchsorted(ids, [hole.row_lo, hole.row_hi])
        name, _, path = hole.file.rpartition("/")
        if low < high and name in ledger.tables and path in ledger.tables[name].files:
            return True
    return False


def _has_ended(ledger: Ledger) -> bool:
    """Return True if a table still names files of dropped streams or ended composites, which may
    have erased rows: `Retain` removes them."""
    tables = (name for name in ledger.tables if name.startswith((STEM, JOINS)))
    if any(ledger.tables[name].files and not ledger.is_live(stream_of(name)) for name in tables):
        return True
    return any(
        not ledger.is_live(int(file.partition["stream_id"]))
        for name in SEGMENTED
        for file in ledger.files(name)
    )


def _erasures(ledger: Ledger) -> Iterator[FileErasure]:
    """Yield the files that may have rows of erasures that are not done yet."""
    pending = {
        stream_id: ids
        for stream_id, erasures in ledger.state.erasures.items()
        if ledger.is_live(stream_id) and len(ids := erasures.since(ledger.erased))
    }
    for stream_id, ids in pending.items():
        yield from _of_stem(ledger, stream_id, ids)
        for name, column in (("closures", "row_id"), ("matches", "bitmap")):
            yield from _of_segments(ledger, name, stream_id, column, ids)
    for composite_id, composite in ledger.state.composites.items():
        legs = dict(enumerate(pending.get(leg) for leg in composite.legs))
        erased = {leg: ids for leg, ids in legs.items() if ids is not None}
        if erased:
            yield from _of_composite(ledger, composite_id, erased)


def _of_stem(ledger: Ledger, stream_id: int, ids: Int64s) -> Iterator[FileErasure]:
    name = stem_name(stream_id)
    for file in ledger.files(name) if name in ledger.tables else ():
        inside = _between(ids, file, "_row_id")
        if len(inside):
            segment = file.low["_row_id"] >> ROW_SEGMENT_BITS
            yield FileErasure(name, stream_id, segment, file, {"_row_id": inside}, {})


def _of_segments(
    ledger: Ledger, name: str, stream_id: int, column: str, ids: Int64s
) -> Iterator[FileErasure]:
    segments = set(np.unique(ids >> ROW_SEGMENT_BITS).tolist())
    for file in ledger.files(name):
        segment = int(file.partition["segment"])
        if int(file.partition["stream_id"]) == stream_id and segment in segments:
            yield FileErasure(name, stream_id, segment, file, {column: ids}, {})


def _of_composite(
    ledger: Ledger, composite_id: int, erased: Mapping[int, Int64s]
) -> Iterator[FileErasure]:
    name = stem_name(composite_id)
    parts = {combination_part(leg): ids for leg, ids in erased.items()}
    for file in ledger.files(name) if name in ledger.tables else ():
        segment = file.low["_row_id"] >> ROW_SEGMENT_BITS if file.low else 0
        yield FileErasure(name, composite_id, segment, file, parts, {})
    name = joins_name(composite_id)
    composite = ledger.state.composites[composite_id]
    sides = {
        side.number: erased[side.leg]
        for side in all_sides(edges_of(*composite.identity))
        if side.leg in erased
    }
    for file in ledger.files(name) if name in ledger.tables else ():
        yield FileErasure(name, composite_id, 0, file, {}, sides)


def _between(ids: Int64s, file: DataFile, column: str) -> Int64s:
    """Return the ids within the bounds of a file; all of them if it has none."""
    if column not in file.low:
        return ids
    low, high = np.searchsorted(ids, [file.low[column], file.high[column] + 1])
    return ids[low:high]


def erase_from_file(job: SparkJob, erasure: FileErasure) -> list[Outcome]:
    """Write a file again without its erased rows, if it has any; runs in an executor."""
    table, name = reader(Path(job.root) / erasure.table, erasure.file).whole(), erasure.table
    if name == "matches":
        remaining, changed = _without_matches(table, erasure.ids["bitmap"])
    else:
        mask = _erased_rows(table, erasure)
        remaining, changed = table.filter(pa.array(~mask)), bool(mask.any())
    checked = SearchedFile(name, erasure.file.path, changed)
    if not changed or not remaining.num_rows:
        return [checked]
    return [checked, *_write(job, erasure, remaining)]


def _write(job: SparkJob, erasure: FileErasure, rows: pa.Table) -> list[Outcome]:
    name, stream_id = erasure.table, erasure.stream_id
    if name in ("matches", "closures"):
        whole = with_partition(rows, name, stream_id, erasure.segment)
        write = write_pieces if name == "matches" else write_closures
        return write(job, stream_id, whole)
    if erasure.sides:
        return write_joins(job, stream_id, rows)
    return insert(job, stream_id, rows, tuple(erasure.file.low))


def _erased_rows(table: pa.Table, erasure: FileErasure) -> Mask:
    """Return a mask of the rows to leave out."""
    mask = np.zeros(table.num_rows, np.bool_)
    for column, ids in erasure.ids.items():
        mask |= member(table.column(column).to_numpy(), ids)
    if erasure.sides:
        sides, row_ids = (table.column(name).to_numpy() for name in ("side", "row_id"))
        for side, ids in erasure.sides.items():
            mask |= (sides == side) & member(row_ids, ids)
    return mask


def _without_matches(pieces: pa.Table, ids: Int64s) -> tuple[pa.Table, bool]:
    """Return pieces without the bits of erased rows, and whether they had any. Pieces without a
    match are left out."""
    blocks, bitmaps = pieces.column("block").to_numpy(), pieces.column("bitmap").to_pylist()
    counts = pieces.column("count").to_numpy().copy()
    touched = np.flatnonzero(np.isin(blocks, np.unique(ids >> BLOCK_BITS)))
    changed = False
    for place in touched.tolist():
        start = int(blocks[place]) << BLOCK_BITS
        low, high = np.searchsorted(ids, [start, start + (1 << BLOCK_BITS)])
        bits = pyroaring.BitMap.deserialize(bitmaps[place])
        remaining = bits - pyroaring.BitMap((ids[low:high] - start).tolist())
        if len(remaining) < len(bits):
            changed, counts[place] = True, len(remaining)
            bitmaps[place] = encode(np.array(list(remaining), np.uint16))
    if not changed:
        return pieces, False
    names = pieces.column_names
    rewritten = pieces.set_column(names.index("count"), "count", pa.array(counts)).set_column(
        names.index("bitmap"), "bitmap", pa.array(bitmaps, pa.binary())
    )
    return rewritten.filter(pa.array(counts > 0)), True
