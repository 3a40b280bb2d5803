"""The live predicates of a stream and their texts, in columns: no object for each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from datastem.arrays import Int64s

# A part is merged into the one before it unless that is so many times as large.
_APART = 4


class Live:
    """Parts that are each sorted by id and share none. What is removed goes at the next merge."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def ids(self) -> Int64s:
        """In no order."""
        return np.concatenate([np.empty(0, np.int64), *[ids for ids, _ in self.parts()]])

    def parts(self) -> Iterator[tuple[Int64s, pa.Array]]:
        """Ids and their texts."""
        return (part.kept() for part in self._parts)

    def contains(self, ids: Int64s) -> npt.NDArray[np.bool_]:
        here = np.zeros(len(ids), np.bool_)
        for part in self._parts:
            places, found = part.find(ids)
            here[found] = part.alive[places[found]]
        return here

    def insert(self, ids: Int64s, texts: pa.Array) -> None:
        """The ids ascend, and none is here."""
        self._parts.append(_Part(ids, texts))
        while len(self._parts) > 1 and len(self._parts[-2]) < _APART * len(self._parts[-1]):
            kept = [self._parts.pop().kept(), self._parts.pop().kept()]
            joined = np.concatenate([ids for ids, _ in kept])
            order = np.argsort(joined)
            merged = pa.concat_arrays([texts for _, texts in kept]).take(pa.array(order))
            self._parts.append(_Part(joined[order], merged))

    def remove(self, ids: Int64s) -> None:
        """All of them are here."""
        for part in self._parts:
            places, found = part.find(ids)
            part.alive[places[found]] = False

    def _check(self) -> None:
        assert len(np.unique(self.ids())) == len(self.ids())
        for part in self._parts:
            assert (np.diff(part.ids) > 0).all() and len(part.ids) == len(part.texts)


class _Part:
    def __init__(self, ids: Int64s, texts: pa.Array) -> None:
        self.ids, self.texts = ids, texts
        self.alive = np.ones(len(ids), np.bool_)

    def __len__(self) -> int:
        return len(self.ids)

    def kept(self) -> tuple[Int64s, pa.Array]:
        if self.alive.all():
            return self.ids, self.texts
        return self.ids[self.alive], self.texts.filter(pa.array(self.alive))

    def find(self, ids: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Where each id would be, and whether it was ever."""
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return places, self.ids[places] == ids
