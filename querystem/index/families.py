"""Which index a predicate belongs to.

Predicates that fix the same operands by equality are a family. While they ask for few different
combinations of values each matches a good share of the rows, and bitmaps are cheaper; from
`HASHED_FROM` on the family is hashed, and goes back when few are left.
"""

from __future__ import annotations

from collections import Counter

from querystem.expressions import Expression
from querystem.index.formula import Formula
from querystem.index.hashed import Group, Split
from querystem.index.hashed.split import Key

HASHED_FROM = 128
UNHASHED_BELOW = HASHED_FROM // 4


class Family:
    """`group` has the predicates once they are hashed; until then they are only counted here."""

    def __init__(self, fixed: tuple[Expression, ...]) -> None:
        self.fixed = fixed
        self.group: Group | None = None
        self.members: set[int] = set()
        self._combinations: Counter[tuple[Key, ...]] = Counter()

    def __len__(self) -> int:
        """Predicates that are hashed."""
        return 0 if self.group is None else len(self.group)

    def __contains__(self, id_: int) -> bool:
        """Whether it is here, hashed."""
        return self.group is not None and id_ in self.group

    @property
    def is_large(self) -> bool:
        return len(self._combinations) >= HASHED_FROM

    def count(self, id_: int, split: Split) -> None:
        self.members.add(id_)
        self._combinations.update(split.combinations(self.fixed))

    def uncount(self, id_: int, split: Split) -> None:
        self.members.remove(id_)
        self._combinations.subtract(split.combinations(self.fixed))
        self._combinations += Counter()

    def hash(self) -> Group:
        """From now on; those counted are the caller's to move."""
        self.group = Group(self.fixed)
        self.members.clear()
        self._combinations.clear()
        return self.group

    def unhash(self) -> list[tuple[int, Formula]]:
        """From now on; those that were hashed are the caller's to insert again."""
        assert self.group is not None
        formulas = list(self.group.formulas())
        self.group = None
        return formulas

    def _check(self) -> None:
        assert self.group is None or not self.members
        assert all(count > 0 for count in self._combinations.values())
        if self.group is not None:
            self.group._check()
