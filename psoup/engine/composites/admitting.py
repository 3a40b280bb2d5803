"""Admission: the rows of a leg that some local predicate matches, read from the pieces."""

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
    """The files of the matches table that may have pieces of some predicates, which ascend, over
    the rows `[low, high)` of a stream."""
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
    """The ascending ids in `[low, high)` of the rows that any of the predicates matches, as the
    pieces in some files of the matches table say."""
    blocks: dict[int, pyroaring.BitMap] = {}
    wanted = pa.array(predicates, pa.int64())
    for pieces in _pieces(root, files, predicates):
        chosen = pc.and_(
            pc.is_in(pieces.column("predicate_id"), value_set=wanted),
            pc.and_(pc.less(pieces.column("lo"), high), pc.greater(pieces.column("hi"), low)),
        )
        some = pieces.filter(chosen)
        numbers, bitmaps = some.column("block").to_pylist(), some.column("bitmap").to_pylist()
        for block, bitmap in zip(numbers, bitmaps, strict=True):
            own = blocks.setdefault(block, pyroaring.BitMap())
            own |= pyroaring.BitMap.deserialize(bitmap)
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
