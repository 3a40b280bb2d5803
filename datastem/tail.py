"""Where rows can be read again that no file of their stem has yet."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Inserts:
    """The inserts some rows of one block came with: the place of each, and the id its rows end at.

    A place is a number that means something to the stem's reader: 16 bytes an insert, however many
    rows it has. The arrays are shared with later versions of the same block and only ever grow; a
    version is of those between `first` and `count`.
    """

    first: int = 0
    count: int = 0
    _places: array[int] = field(default_factory=lambda: array("q"))
    _ends: array[int] = field(default_factory=lambda: array("q"))

    def places(self, lo: int, hi: int) -> list[int]:
        """The places of rows with ids in `[lo, hi)`, each once, as they came."""
        first = bisect_right(self._ends, lo, self.first, self.count)
        last = min(bisect_left(self._ends, hi, first, self.count) + 1, self.count)
        return list(dict.fromkeys(self._places[first:last]))

    def extended(self, place: int, end: int) -> Inserts:
        """With one more insert. Only of the newest version, and by one thread at a time."""
        self._places.append(place)
        self._ends.append(end)
        return replace(self, count=self.count + 1)

    def from_id(self, low: int) -> Inserts:
        """Without the inserts that end below `low`."""
        return replace(self, first=bisect_right(self._ends, low, self.first, self.count))
