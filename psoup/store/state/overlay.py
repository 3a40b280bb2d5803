"""Changes of a mapping that can be dropped again."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from functools import cached_property
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Overlay(MutableMapping[K, V]):
    """An overlay that reads through to `base`, which never changes; dropping it undoes
    everything."""

    def __init__(self, base: MutableMapping[K, V]) -> None:
        self._base = base
        self._removed: set[K] = set()

    @property
    def _changed(self) -> MutableMapping[K, V]:
        return self._layer

    @cached_property
    def _layer(self) -> MutableMapping[K, V]:
        return {}

    def __getitem__(self, key: K) -> V:
        if key in self._changed:
            return self._changed[key]
        if key in self._removed:
            raise KeyError(key)
        return self._base[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._removed.discard(key)
        self._changed[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._changed.pop(key, None)
        self._removed.add(key)

    def __iter__(self) -> Iterator[K]:
        yield from self._changed
        for key in self._base:
            if key not in self._changed and key not in self._removed:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)
