"""A table of numbers that grows and shrinks by rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from datastem.arrays import Array


class DenseTable:
    """A table of numbers without gaps, whose rows come and go.

    A row has `width` values of one kind, and a key; the order of rows means nothing. `put` and
    `drop` cost the same however many rows there are.
    """

    def __init__(self, width: int, dtype: npt.DTypeLike = np.int64) -> None:
        self._table = np.zeros((8, width), dtype)
        self._keys: list[int] = []
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: int) -> bool:
        return key in self._places

    @property
    def table(self) -> Array:
        """All rows as one array, which is valid until the next change."""
        return self._table[: len(self._keys)]

    def get(self, key: int) -> list[Any]:
        row: list[Any] = self._table[self._places[key]].tolist()
        return row

    def put(self, key: int, *row: Any) -> None:
        place = len(self._keys)
        if place == len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        self._table[place] = row
        self._keys.append(key)
        self._places[key] = place

    def drop(self, key: int) -> None:
        """Remove a row; the last row takes its place."""
        place, last = self._places.pop(key), self._keys.pop()
        if last != key:
            self._table[place] = self._table[len(self._keys)]
            self._keys[place] = last
            self._places[last] = place

    def _check(self) -> None:
        assert [self._places[key] for key in self._keys] == list(range(len(self._keys)))
        assert len(self._places) == len(self._keys) <= len(self._table)
