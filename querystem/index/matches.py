"""What a probe finds: which rows of the batch satisfy which predicate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.uint32]
# How many rows each line has, and those rows, line by line.
Piece = tuple[npt.NDArray[np.int64], Offsets]


@dataclass(frozen=True, slots=True)
class Matches:
    """Predicate `predicate_ids[i]`, ascending, has the rows `offsets[starts[i]:starts[i + 1]]`.

    Offsets count from the batch's first row and ascend; every predicate here has at least one.
    """

    predicate_ids: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.predicate_ids)

    def __iter__(self) -> Iterator[tuple[int, Offsets]]:
        for i, predicate_id in enumerate(self.predicate_ids.tolist()):
            yield predicate_id, self.offsets[self.starts[i] : self.starts[i + 1]]


def gather(predicate_ids: npt.NDArray[np.int64], pieces: Sequence[Piece]) -> Matches:
    """From pieces of a batch in their order. Line i stands for `predicate_ids[i]`, which ascend."""
    total = np.zeros(len(predicate_ids), np.int64)
    for counts, _ in pieces:
        total += counts
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(total)])
    found = total > 0
    return Matches(
        predicate_ids[found],
        np.append(starts[:-1][found], starts[-1]),
        pieces[0][1] if len(pieces) == 1 else _merge(starts, pieces),
    )


def _merge(starts: npt.NDArray[np.int64], pieces: Sequence[Piece]) -> Offsets:
    merged = np.empty(starts[-1], np.uint32)
    free = starts[:-1].copy()
    for counts, offsets in pieces:
        before = np.cumsum(counts) - counts
        merged[np.repeat(free - before, counts) + np.arange(len(offsets))] = offsets
        free += counts
    return merged
