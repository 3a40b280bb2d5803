"""Families: the predicates that fix the same operands by equality."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from querystem.expressions import Expression
from querystem.index.hashed.combinations import DistinctRows, take
from querystem.index.hashed.conjunction import FixedConjunction, KeyValue
from querystem.index.hashed.entries import Entries
from querystem.index.hashed.group import HashedGroup

# From this many combinations of values on a family is hashed. With fewer, each predicate matches a
# good share of the rows, and bitmaps are cheaper.
HASHED_COMBINATIONS = 128

Combination = tuple[KeyValue, ...]


class Family:
    """Predicates that fix the same operands. Once they are hashed, `group` has them; until then
    this only counts the combinations of values that they ask for."""

    def __init__(self, fixed: tuple[Expression, ...]) -> None:
        self.fixed = fixed
        self.group: HashedGroup | None = None
        # The predicates of the tail, and the combinations of those and of the built parts.
        self.members: set[int] = set()
        self._tail: Counter[Combination] = Counter()
        self._built: frozenset[Combination] = frozenset()

    def __len__(self) -> int:
        """The number of hashed predicates."""
        return 0 if self.group is None else len(self.group)

    def __contains__(self, id_: int) -> bool:
        """Whether a predicate is hashed here."""
        return self.group is not None and id_ in self.group

    @property
    def is_built(self) -> bool:
        """Whether a built part has predicates of this family."""
        return bool(self._built)

    def is_large(self, more: Iterable[Combination] = ()) -> bool:
        """Return whether the family, with more combinations, is to be hashed."""
        return len({*self._tail, *self._built, *more}) >= HASHED_COMBINATIONS

    def combinations(self, entries: Entries) -> frozenset[Combination]:
        """Return the distinct combinations of values of entries: all of them, or as many as make
        the family large."""
        first = DistinctRows.of(entries.fixed).first[:HASHED_COMBINATIONS]
        columns = [take(column, first).tolist() for column in entries.fixed]
        return frozenset(zip(*columns, strict=True))

    def count(self, id_: int, conjunction: FixedConjunction) -> None:
        """Count a predicate of the tail."""
        self.members.add(id_)
        self._tail.update(conjunction.combinations(self.fixed))

    def uncount(self, id_: int, conjunction: FixedConjunction) -> None:
        """Stop counting a predicate of the tail."""
        self.members.remove(id_)
        self._tail.subtract(conjunction.combinations(self.fixed))
        self._tail += Counter()

    def count_built(self, combinations: frozenset[Combination]) -> None:
        """Count the predicates of the built parts: these and no others."""
        self._built = combinations

    def hash(self) -> HashedGroup:
        """Make a group; the caller moves the predicates into it."""
        self.group = HashedGroup(self.fixed)
        self.members.clear()
        self._tail.clear()
        return self.group

    def remove(self, id_: int) -> bool:
        """Remove a hashed predicate, and return whether it was here."""
        if self.group is None or not self.group.remove(id_):
            return False
        if not len(self.group):
            self.group = None
        return True

    def _check(self) -> None:
        assert self.group is None or not self.members
        assert all(count > 0 for count in self._tail.values())
        if self.group is not None:
            self.group._check()
