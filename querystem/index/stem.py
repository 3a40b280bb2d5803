"""The query SteM: predicates are inserted, batches of rows probe them.

Predicates that fix the same operands by equality are a family. While they ask for few different
combinations of values each matches a good share of the rows, and bitmaps are cheaper; from
`HASHED_FROM` combinations on the family is hashed, and it goes back when few predicates are left.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from querystem.expressions import Expression, columns_of
from querystem.index.axes import DenseTable
from querystem.index.batch import ProbeBatch, truth
from querystem.index.formula import Formula, formula_of
from querystem.index.graph import FormulaGraph
from querystem.index.hashed_group import HashedGroup
from querystem.index.hashed_segment import FixedConjunction, KeyValue, split_conjunction
from querystem.index.matches import Matches, RowLines, lines_of, pack, words_for
from querystem.index.probe import probe
from querystem.index.stored_templates import TemplateRows, by_template

HASHED_FROM = 128
UNHASHED_BELOW = HASHED_FROM // 4


class Family:
    """Predicates that fix the same operands: `group` has them once they are hashed; until then they
    are only counted here."""

    def __init__(self, fixed: tuple[Expression, ...]) -> None:
        self.fixed = fixed
        self.group: HashedGroup | None = None
        self.members: set[int] = set()
        self._combinations: Counter[tuple[KeyValue, ...]] = Counter()

    def __len__(self) -> int:
        """The number of hashed predicates."""
        return 0 if self.group is None else len(self.group)

    def __contains__(self, id_: int) -> bool:
        """Whether a predicate is hashed here."""
        return self.group is not None and id_ in self.group

    @property
    def is_large(self) -> bool:
        return len(self._combinations) >= HASHED_FROM

    def count(self, id_: int, conjunction: FixedConjunction) -> None:
        self.members.add(id_)
        self._combinations.update(conjunction.combinations(self.fixed))

    def uncount(self, id_: int, conjunction: FixedConjunction) -> None:
        self.members.remove(id_)
        self._combinations.subtract(conjunction.combinations(self.fixed))
        self._combinations += Counter()

    def hash(self) -> HashedGroup:
        """Makes a group; the caller moves the predicates into it."""
        self.group = HashedGroup(self.fixed)
        self.members.clear()
        self._combinations.clear()
        return self.group

    def unhash(self) -> list[tuple[int, Formula]]:
        """Gives up the group; the caller inserts its predicates, which are returned, again."""
        assert self.group is not None
        formulas = list(self.group.formulas())
        self.group = None
        return formulas

    def _check(self) -> None:
        assert self.group is None or not self.members
        assert all(count > 0 for count in self._combinations.values())
        if self.group is not None:
            self.group._check()


# Up to this many formulas are faster evaluated one by one than together.
_FEW = 2
# The result lines of one slice of predicates. 100,000 intervals and 65,536 rows took 12 s and
# 840 MB at once, and 4 s in slices of this size: they need fewer lines of their axes at a time.
RESULT_BYTES = 64 << 20


class QueryStem:
    """All predicates over one stream.

    `probe` equals `kernel.matches` of each predicate by itself. Predicates that fix operands by
    equality are found by hash, where that is cheaper; the others are formulas in one graph, matched
    by bitmaps, equal factors once. The cost of `insert` and `remove` follows from the predicate
    alone, but for the rare ones that move other predicates.

    Not thread safe: nothing may change while a probe runs, and only one probe runs at a time.
    """

    def __init__(self) -> None:
        self._formulas = FormulaGraph()
        self._roots = DenseTable(2)
        self._families: dict[frozenset[Expression], Family] = {}
        self._columns: set[str] = set()
        self.hashed_seconds = 0.0

    def __len__(self) -> int:
        return len(self._roots) + sum(len(family) for family in self._families.values())

    def __contains__(self, predicate_id: int) -> bool:
        return predicate_id in self._roots or any(
            predicate_id in family for family in self._families.values()
        )

    @property
    def graph_ids(self) -> Int64s:
        """The predicates that are not hashed, ascending."""
        ids: Int64s = np.sort(self._roots.table[:, 0])
        return ids

    @property
    def columns(self) -> frozenset[str]:
        """Every column a predicate reads, or has read before it was removed."""
        return frozenset(self._columns)

    def insert(self, predicate_id: int, where: Expression) -> None:
        """Inserts a predicate; raises ValueError where the id is here already."""
        if predicate_id in self:
            raise ValueError(f"predicate {predicate_id} is already in the query SteM")
        self._parse(predicate_id, where)

    def insert_texts(self, ids: Int64s, texts: pa.Array) -> None:
        """Inserts many predicates from their stored texts; none of the ids may be here.

        Predicates of a template that gets hashed are read in columns, without an object for each.
        """
        for some in by_template(texts):
            self._insert_rows(some, ids)

    def remove(self, predicate_id: int) -> None:
        """Removes a predicate; raises KeyError where the id is not here."""
        if predicate_id in self._roots:
            found = split_conjunction(self._ungraph(predicate_id))
            if found is not None:
                self._family(found.fixed).uncount(predicate_id, found)
            return
        for family in self._families.values():
            if family.group is not None and family.group.remove(predicate_id):
                if len(family.group) < UNHASHED_BELOW:
                    self._unhash(family)
                return
        raise KeyError(f"predicate {predicate_id} is not in the query SteM")

    def probe(self, batch: pa.RecordBatch | pa.Table, first: int = 0) -> Matches:
        """The rows of the batch that satisfy each predicate; rows are numbered from `first` on."""
        slices = self.probe_slices(batch, first)
        return Matches(tuple(part for matches in slices for part in matches.parts))

    def probe_slices(
        self,
        batch: pa.RecordBatch | pa.Table,
        first: int = 0,
        *,
        lo: int = 0,
        hi: int = sys.maxsize,
        result_bytes: int = RESULT_BYTES,
    ) -> Iterator[Matches]:
        """Yield what `probe` returns for the predicates with lo <= id < hi, some of them at a time,
        so that a caller that keeps no slice needs about `result_bytes` for lines of formulas.

        Formulas outside of the range cost nothing. Hashed predicates are all probed, since a range
        of them is hardly cheaper: `hashed_seconds` adds up what that takes.
        """
        rows = ProbeBatch(batch, first)
        if not rows.length:
            return
        # The predicates and roots of the formulas, by ascending predicate id.
        table = self._roots.table[np.argsort(self._roots.table[:, 0])]
        table = table[slice(*np.searchsorted(table[:, 0], [lo, hi]))]
        count = max(result_bytes // (8 * words_for(rows.shift + rows.length)), 1)
        # The last slice goes with the hashed predicates: usually it is the only one.
        last = max(len(table) - 1, 0) // count * count
        for begin in range(0, last, count):
            yield Matches((self._lines(rows, table[begin : begin + count]),))
        graph = [self._lines(rows, table[last:])] if len(table) else []
        started = time.thread_time()
        groups = [family.group for family in self._families.values() if family.group is not None]
        hashed = [part.between(lo, hi) for group in groups for part in group.probe(rows)]
        self.hashed_seconds += time.thread_time() - started
        yield Matches((*graph, *hashed))

    def _lines(self, rows: ProbeBatch, table: Int64s) -> RowLines:
        """Return the matches of formulas, given their predicates, ascending, and roots."""
        roots, places = np.unique(table[:, 1], return_inverse=True)
        if len(roots) <= _FEW:
            masks = [truth(self._formulas.formula(root), rows) for root in roots.tolist()]
            words = np.stack([pack(mask, rows.shift) for mask in masks])
            return lines_of(table[:, 0], places, words, rows.first)
        lines, words = probe(self._formulas, rows, roots)
        return lines_of(table[:, 0], lines[places], words, rows.first)

    def _parse(self, predicate_id: int, where: Expression) -> None:
        self._columns.update(columns_of(where))
        self._insert(predicate_id, formula_of(where))

    def _insert(self, predicate_id: int, formula: Formula) -> None:
        found = split_conjunction(formula)
        if found is None:
            self._graph(predicate_id, formula)
            return
        family = self._family(found.fixed)
        if family.group is not None:
            family.group.insert(predicate_id, found)
            return
        self._graph(predicate_id, formula)
        family.count(predicate_id, found)
        if family.is_large:
            self._hash(family)

    def _insert_rows(self, some: TemplateRows, ids: Int64s) -> None:
        """Inserts predicates of one template: one by one until their family is hashed, the others
        in columns, and those with special constants one by one again."""
        while len(some.rows):
            family = self._family(some.fixed) if some.fixed else None
            if family is not None and family.group is not None:
                self._columns.update(some.columns)
                entries, unread = some.read(family.fixed, ids)
                family.group.insert_many(entries)
                some = some.one_by_one(unread)
                continue
            for row in some.rows[:HASHED_FROM].tolist():
                self._parse(int(ids[row]), some.expression(row))
            some = some.after(HASHED_FROM)

    def _family(self, fixed: Collection[Expression]) -> Family:
        key = frozenset(fixed)
        if key not in self._families:
            self._families[key] = Family(tuple(fixed))
        return self._families[key]

    def _graph(self, predicate_id: int, formula: Formula) -> None:
        self._roots.put(predicate_id, predicate_id, self._formulas.acquire(formula))

    def _ungraph(self, predicate_id: int) -> Formula:
        root = self._roots.get(predicate_id)[1]
        formula = self._formulas.formula(root)
        self._roots.drop(predicate_id)
        self._formulas.release(root)
        return formula

    def _hash(self, family: Family) -> None:
        members = sorted(family.members)
        group = family.hash()
        for predicate_id in members:
            found = split_conjunction(self._ungraph(predicate_id))
            assert found is not None
            group.insert(predicate_id, found)

    def _unhash(self, family: Family) -> None:
        for predicate_id, formula in family.unhash():
            self._insert(predicate_id, formula)

    def _check(self) -> None:
        """Asserts every invariant."""
        self._roots._check()
        self._formulas._check(self._roots.table[:, 1].tolist())
        for family in self._families.values():
            family._check()
            assert all(member in self._roots for member in family.members)
