"""What a probe finds: which rows of the batch satisfy which predicate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.uint32]


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


def gather(
    predicate_ids: npt.NDArray[np.int64],
    pieces: Sequence[tuple[npt.NDArray[np.int64], Offsets]],
) -> Matches:
    """From (line, offset) pairs, sorted within each piece and ascending from piece to piece.

    Line i stands for `predicate_ids[i]`, which ascend.
    """
    counts = [np.bincount(lines, minlength=len(predicate_ids)) for lines, _ in pieces]
    total = np.sum(counts, axis=0, dtype=np.int64, initial=0) if counts else np.zeros(0, np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(total)])
    found = total > 0
    return Matches(
        predicate_ids[found],
        np.append(starts[:-1][found], starts[-1]),
        _merge(starts, counts, pieces),
    )


def _merge(
    starts: npt.NDArray[np.int64],
    counts: Sequence[npt.NDArray[np.int64]],
    pieces: Sequence[tuple[npt.NDArray[np.int64], Offsets]],
) -> Offsets:
    if len(pieces) == 1:
        return pieces[0][1]
    merged = np.empty(starts[-1], np.uint32)
    free = starts[:-1].copy()
    for count, (lines, offsets) in zip(counts, pieces, strict=True):
        before = np.cumsum(count) - count
        merged[(free - before)[lines] + np.arange(len(lines))] = offsets
        free += count
    return merged
