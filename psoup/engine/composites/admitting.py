"""Admission: the rows of a leg that a local predicate matches, read from the pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyroaring

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import reader, row_groups

_COLUMNS = ["predicate_id", "block", "lo", "hi", "bitmap"]


def piece_files(
    files: Iterable[DataFile], stream_id: int, predicates: Sequence[int], low: int, high: int
) -> tuple[DataFile, ...]:
    """Return the files of the matches table that may have pieces of the predicates, whose ids must
    ascend, over the rows `[low, high)` of a stream."""
    if not predicates:
        return ()
    return tuple(
        file
        for file in files
        if file.partition["stream_id"] == str(stream_id)
        and file.low
        and file.low["lo"] < high
        and file.high["hi"] > low
        and file.low["predicate_id"] <= predicates[-1]
        and file.high["predicate_id"] >= predicates[0]
    )


def matching_ids(
    root: Path, files: Iterable[DataFile], predicates: Sequence[int], low: int, high: int
) -> Int64s:
    """Return the ascending ids in `[low, high)` of the rows that any of the predicates matches, by
    the pieces in these files of the matches table."""
    # The matching rows of each block, as the low bits of their ids.
    blocks: dict[int, pyroaring.BitMap] = {}
    predicate_ids = pa.array(predicates, pa.int64())
    for pieces in _pieces(root, files, predicates):
        chosen = pc.and_(
            pc.is_in(pieces.column("predicate_id"), value_set=predicate_ids),
            pc.and_(pc.less(pieces.column("lo"), high), pc.greater(pieces.column("hi"), low)),
        )
        selected = pieces.filter(chosen)
        numbers, bitmaps = (
            selected.column("block").to_pylist(),
            selected.column("bitmap").to_pylist(),
        )
        for block, bitmap in zip(numbers, bitmaps, strict=True):
            block_rows = blocks.setdefault(block, pyroaring.BitMap())
            block_rows |= pyroaring.BitMap.deserialize(bitmap)
    # Ascending ids, as the blocks are sorted and each bitmap lists its rows in order.
    parts = [
        np.frombuffer(rows.to_array(), np.uint32).astype(np.int64) + (block << BLOCK_BITS)
        for block, rows in sorted(blocks.items())
    ]
    ids = np.concatenate([np.empty(0, np.int64), *parts])
    return ids[np.searchsorted(ids, low) : np.searchsorted(ids, high)]


def _pieces(root: Path, files: Iterable[DataFile], predicates: Sequence[int]) -> Iterator[pa.Table]:
    for file in files:
        source = reader(root, file)
        groups = row_groups(source.metadata, "predicate_id", predicates[0], predicates[-1] + 1)
        if groups:
            yield source.row_groups(groups, _COLUMNS)
