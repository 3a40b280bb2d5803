"""The check of the stored matches of a block: conditions are evaluated again over its rows.

A block is checked by itself, so that blocks may be checked one after the other in a process, or by
tasks of Spark. All values here can be pickled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, BLOCK_ROWS
from datastem.codec import are_rows, query_view, stem_schema, with_optional
from datastem.schema import StreamSchema
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import DataFileGone, reader, single_batch
from psoup.store.errors import CorruptStore
from psoup.store.state.predicates import Predicate
from querystem.expressions import from_json
from querystem.kernel import matches
from results.bitmaps import decode
from results.id_sets import Range, intersect
from results.stored_matches import StreamCoverage

_MATCH_COLUMNS = ("predicate_id", "block", "bitmap")


@dataclass(frozen=True, slots=True)
class StreamCheck:
    """What the checks of all blocks of a stream need: the folders of its stem and of the matches,
    its schema, and what is to be compared."""

    stem: Path
    matches: Path
    schema: StreamSchema
    coverage: StreamCoverage
    predicates: Sequence[Predicate]


@dataclass(frozen=True, slots=True)
class BlockCheck:
    """A block, with the files that may have rows or matches of it."""

    block: int
    stem_files: tuple[DataFile, ...]
    match_files: tuple[DataFile, ...]


class CheckBlocks(Protocol):
    def __call__(self, stream: StreamCheck, blocks: Sequence[BlockCheck]) -> Iterable[str]:
        """Return what `block_problems` returns for all blocks, in their order."""


def check_here(stream: StreamCheck, blocks: Sequence[BlockCheck]) -> Iterator[str]:
    """Check blocks one after the other in this process."""
    for block in blocks:
        yield from block_problems(stream, block)


def block_problems(stream: StreamCheck, block: BlockCheck) -> list[str]:
    """Return what is wrong with the matches of a block; a file that can't be read is a problem."""
    try:
        rows = _rows(stream, block)
        return list(_differences(stream, block.block, rows, _stored(stream, block)))
    except (CorruptStore, DataFileGone) as error:
        return [str(error)]


def blocks_of(file: DataFile) -> range:
    """Return the blocks that a file of a stem may have rows of."""
    if not file.low:
        return range(0)
    return range(file.low["_row_id"] >> BLOCK_BITS, (file.high["_row_id"] >> BLOCK_BITS) + 1)


def _rows(stream: StreamCheck, block: BlockCheck) -> pa.RecordBatch:
    """Return the rows of a block, in any order."""
    schema, lo = stream.schema, block.block << BLOCK_BITS
    names, parts = stem_schema(schema).names, []
    for file in block.stem_files:
        source = reader(stream.stem, file, schema.optional)
        part = source.between("_row_id", lo, lo + BLOCK_ROWS, names)
        parts.append(with_optional(part, names, schema.optional))
    return single_batch(pa.concat_tables(parts))


def _stored(stream: StreamCheck, block: BlockCheck) -> dict[int, list[Int64s]]:
    """Return the stored matches of a block: arrays of row ids by predicate."""
    stored: dict[int, list[Int64s]] = {}
    number = block.block
    for file in block.match_files:
        table = reader(stream.matches, file).between("block", number, number + 1, _MATCH_COLUMNS)
        for predicate, _, bitmap in zip(*table.to_pydict().values(), strict=True):
            lows = decode(bitmap).astype(np.int64) + (number << BLOCK_BITS)
            stored.setdefault(predicate, []).append(lows)
    return stored


def _differences(
    stream: StreamCheck, block: int, rows: pa.RecordBatch, stored: dict[int, list[Int64s]]
) -> Iterator[str]:
    ids, view, visible = rows.column("_row_id").to_numpy(), query_view(rows), are_rows(rows)
    name, lo = stream.schema.name, block << BLOCK_BITS
    for predicate in stream.predicates:
        ranges = intersect(lo, lo + BLOCK_ROWS, stream.coverage.ranges(predicate.id))
        if not ranges:
            continue
        where = from_json(json.loads(predicate.key))
        try:
            expected = np.sort(ids[matches(where, view) & visible])
        except (ArithmeticError, ValueError, pa.ArrowException) as error:
            yield f"predicate {predicate.id} of {name} fails: {error}"
            continue
        stored_ids = np.sort(np.concatenate([np.empty(0, np.int64), *stored.get(predicate.id, [])]))
        # Matches of rows that left the stem stay until their file is rewritten.
        stored_ids = stored_ids[np.isin(stored_ids, ids)]
        stored_ids, expected = _within(stored_ids, ranges), _within(expected, ranges)
        missing, extra = np.setdiff1d(expected, stored_ids), np.setdiff1d(stored_ids, expected)
        if len(missing) or len(extra):
            yield (
                f"matches: predicate {predicate.id} of {name} lacks {len(missing)} rows of block "
                f"{block} that match, and has {len(extra)} that do not"
            )


def _within(ids: Int64s, ranges: list[Range]) -> Int64s:
    """Return the ids, ascending, that are in one of the ranges."""
    bounds = np.array(ranges).reshape(-1)
    # An odd place is after the beginning of a range and before its end.
    inside: Int64s = ids[np.searchsorted(bounds, ids, side="right") % 2 == 1]
    return inside
