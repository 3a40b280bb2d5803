"""PSoup-C: the current answer of every query is kept current, batch by batch.

An answer is a list of row ids, as the paper's is a list of pointers to rows. All lists live in one
array, each a ring of its own, so that a batch costs what it adds and what leaves with it, with no
loop over queries.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from benchmarks.paper.workload import Array
from datastem.arrays import Int64s
from querystem.index import Matches

_LEAST = 8


class Complete:
    """The answers of `queries` queries over the newest `window` rows."""

    def __init__(self, queries: int, window: int) -> None:
        self._window = window
        self._rings = Rings(queries)
        self._recent: deque[_Arrived] = deque()

    @property
    def nbytes(self) -> int:
        return self._rings.nbytes

    def insert(self, matches: Matches, first: int, stop: int) -> None:
        """The matches of a batch with the ids `[first, stop)`; what the window leaves goes."""
        low = stop - self._window
        arrived, _ = _arrived(matches, first).cut(low)
        while self._recent and self._recent[0].last < low:
            self._leave(self._recent.popleft())
        if self._recent and self._recent[0].least < low:
            self._recent[0], expired = self._recent[0].cut(low)
            self._leave(expired)
        if len(arrived.ids):
            self._rings.append(arrived.queries, arrived.counts, arrived.ids)
            self._recent.append(arrived)

    def _leave(self, expired: _Arrived) -> None:
        self._rings.drop(expired.queries, expired.counts)

    def find(self, number: int) -> Int64s:
        """The ids of the answer, ascending."""
        return self._rings.get(number)


def _arrived(matches: Matches, first: int) -> _Arrived:
    parts = [part.lists() for part in matches.parts]
    none = np.empty(0, np.int64)
    return _Arrived(
        np.concatenate([none, *[part.ids for part in parts]]),
        np.concatenate([none, *[part.counts for part in parts]]),
        np.concatenate([none, *[part.rows.astype(np.int64) + first for part in parts]]),
    )


class _Arrived:
    """Matches of one batch: query `queries[i]` has the next `counts[i]` of `ids`."""

    def __init__(self, queries: Array, counts: Array, ids: Array) -> None:
        self.queries = queries
        self.counts = counts
        self.ids = ids.astype(np.int64)
        self.least = int(self.ids.min()) if len(ids) else 0
        self.last = int(self.ids.max()) if len(ids) else -1

    def cut(self, low: int) -> tuple[_Arrived, _Arrived]:
        """The matches with ids from `low` on, and the matches before."""
        if not len(self.ids) or self.least >= low:
            return self, _Arrived(self.queries[:0], self.counts[:0], self.ids[:0])
        stays = self.ids >= low
        lines = np.repeat(np.arange(len(self.queries)), self.counts)
        return self._of(lines, stays), self._of(lines, ~stays)

    def _of(self, lines: Array, chosen: Array) -> _Arrived:
        counts = np.bincount(lines[chosen], minlength=len(self.queries))
        nonempty = counts > 0
        return _Arrived(self.queries[nonempty], counts[nonempty], self.ids[chosen])


class Rings:
    """A queue of integers for each of `count` numbers; sizes are powers of two."""

    def __init__(self, count: int) -> None:
        self._cap = np.full(count, _LEAST, np.int64)
        self._base = np.arange(count, dtype=np.int64) * _LEAST
        self._head = np.zeros(count, np.int64)
        self._size = np.zeros(count, np.int64)
        self._used = count * _LEAST
        self._heap = np.zeros(self._used, np.int64)

    @property
    def nbytes(self) -> int:
        """The bytes that the queues need; room left behind by those that moved is not counted."""
        return int(8 * self._cap.sum() + 4 * self._cap.nbytes)

    def append(self, numbers: Array, counts: Array, values: Array) -> None:
        """`counts[i]` of the values to the end of queue `numbers[i]`, in order."""
        for place in np.flatnonzero(self._size[numbers] + counts > self._cap[numbers]).tolist():
            number = int(numbers[place])
            self._grow(number, int(self._size[number] + counts[place]))
        ends = np.cumsum(counts)
        rank = np.arange(len(values)) - np.repeat(ends - counts, counts)
        begin = np.repeat(self._head[numbers] + self._size[numbers], counts)
        mask, base = (
            np.repeat(self._cap[numbers] - 1, counts),
            np.repeat(self._base[numbers], counts),
        )
        self._heap[base + ((begin + rank) & mask)] = values
        self._size[numbers] += counts

    def drop(self, numbers: Array, counts: Array) -> None:
        """The oldest `counts[i]` of queue `numbers[i]`."""
        self._head[numbers] = (self._head[numbers] + counts) & (self._cap[numbers] - 1)
        self._size[numbers] -= counts

    def get(self, number: int) -> Int64s:
        base, cap = int(self._base[number]), int(self._cap[number])
        head, size = int(self._head[number]), int(self._size[number])
        whole = self._heap[base + head : base + min(head + size, cap)]
        if head + size <= cap:
            return whole
        return np.concatenate([whole, self._heap[base : base + head + size - cap]])

    def _grow(self, number: int, size: int) -> None:
        ids, cap = self.get(number).copy(), 1 << (size - 1).bit_length()
        if self._used + cap > len(self._heap):
            room = np.zeros(max(len(self._heap), cap), np.int64)
            self._heap = np.concatenate([self._heap, room])
        self._base[number], self._cap[number], self._head[number] = self._used, cap, 0
        self._heap[self._used : self._used + len(ids)] = ids
        self._used += cap
