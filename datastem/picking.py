"""Rows of a stem by their ids, wherever they are: in memory, or in files.

Of a block that is not in memory a few rows are read without the others, so that what an answer
reads follows from the rows that it needs, not from those that are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, Part
from datastem.stem_view import StemView

# If at most this many rows of a block are wanted, they are read without the others.
_FEW_ROWS = 256


@dataclass(frozen=True, slots=True)
class _BlockIds:
    """The ids that are wanted of one block, ascending; `remote` if these rows alone are read."""

    number: int
    ids: Int64s
    remote: bool


def pick_rows(stem: StemView, ids: Int64s, names: Sequence[str]) -> list[tuple[Part, Int64s]]:
    """Return the rows with these ascending ids, as places in parts by ascending id; ids without a
    row are left out.

    A part that was read for a few of its rows has only these rows, and only the named columns,
    `_row_id` and `_ts`; it is not cached.
    """
    blocks = _by_block(stem, ids)
    remote = _remote_part(stem, [block for block in blocks if block.remote], names)
    picked = []
    for block in blocks:
        if not block.remote:
            for part in stem.parts(block.number, stem.high):
                low, high = np.searchsorted(block.ids, [part.first, part.stop])
                if low < high:
                    picked.append((part, part.find(block.ids[low:high])))
        elif remote is not None:
            ends = np.searchsorted(remote.ids, [block.ids[0], block.ids[-1] + 1])
            picked.append((remote, np.arange(*ends.tolist())))
    return picked


def _by_block(stem: StemView, ids: Int64s) -> list[_BlockIds]:
    if not len(ids):
        return []
    blocks = ids >> BLOCK_BITS
    # An id is the first of its block if the block differs from that of the id before it.
    firsts = np.flatnonzero(np.diff(blocks, prepend=-1))
    pieces = np.split(ids, firsts[1:])
    return [
        _BlockIds(number, piece, len(piece) <= _FEW_ROWS and _is_remote(stem, number))
        for number, piece in zip(blocks[firsts].tolist(), pieces, strict=True)
    ]


def _is_remote(stem: StemView, number: int) -> bool:
    """Return True if all rows of a block are in files, and not all of them in memory."""
    stored = min((number + 1) << BLOCK_BITS, stem.high) <= stem.index.high
    return stored and stem.stem.picks and not stem.stem.holds(stem, number)


def _remote_part(stem: StemView, blocks: Sequence[_BlockIds], names: Sequence[str]) -> Part | None:
    """Return the wanted rows of some blocks, read from files; None if there are none."""
    # A segment may reach over the edge of a block, and is then listed under both.
    segments = {
        id(segment): segment
        for block in blocks
        for segment in stem.segments(block.number, (block.number + 1) << BLOCK_BITS)
    }
    if not segments:
        return None
    ids = np.concatenate([block.ids for block in blocks])
    columns = dict.fromkeys(["_row_id", "_ts", *names])
    part = stem.stem.pick([*segments.values()], ids, [*columns])
    return part if part.rows.num_rows else None
