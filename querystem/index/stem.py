"""The query SteM: predicates are inserted, batches of rows probe them.

It consists of parts that are built in columns, of which the first is the largest, and a tail of
predicates that were inserted one by one. A part only loses predicates. Predicates that fix the same
operands by equality are a family; a large one is hashed, whichever parts it came with.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from querystem.expressions import Expression, columns_of
from querystem.index.batch import ProbeBatch
from querystem.index.built.part import BuiltPart, FamilyCombinations, FamilyKey, StoredPredicates
from querystem.index.built.reading import PredicateShape, TextReader, build_part, entries_of
from querystem.index.columns.templates import parse_text
from querystem.index.family import Family
from querystem.index.formula import Formula, formula_of
from querystem.index.hashed.conjunction import split_conjunction
from querystem.index.hashed.segment import HashedSegment
from querystem.index.matches import Matches, RowSets, words_for
from querystem.index.structures import Structure
from querystem.index.tail import GraphTail

# Fewer texts are inserted into the tail one by one.
_MIN_BUILT_PREDICATES = 64
# The tail is built into a part when it has this many texts, and a quarter of the last part.
_MAX_TAIL_PREDICATES = 1024
# A part is merged into the previous one unless that is this many times as large.
_PART_SIZE_RATIO = 4
_MAX_PARTS = 2
# The result lines of one slice of predicates. 100,000 intervals and 65,536 rows took 12 s and
# 840 MB at once, and 4 s in slices of this size: they need fewer lines of their axes at a time.
RESULT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class StemContent:
    """What a query SteM holds, as immutable parts and hashed segments by their fixed operands."""

    columns: Sequence[str]
    parts: Sequence[BuiltPart]
    hashed: Mapping[tuple[Expression, ...], Sequence[HashedSegment]]


class QueryStem:
    """All predicates over one stream.

    `probe` equals `kernel.matches` of each predicate by itself. Predicates that fix operands by
    equality are looked up by hash, if that is cheaper; the others are formulas in graphs, matched
    by bitmaps, equal factors once.

    Not thread safe: nothing may change while a probe runs, and only one probe runs at a time.
    """

    def __init__(self) -> None:
        self._parts: list[BuiltPart] = []
        self._tail = GraphTail()
        self._families: dict[FamilyKey, Family] = {}
        self._reader = TextReader()
        self.hashed_seconds = 0.0

    def __len__(self) -> int:
        hashed = sum(len(family) for family in self._families.values())
        return len(self._tail) + sum(map(len, self._parts)) + hashed

    def __contains__(self, predicate_id: int) -> bool:
        return (
            predicate_id in self._tail
            or any(predicate_id in part for part in self._parts)
            or any(predicate_id in family for family in self._families.values())
        )

    @property
    def graph_ids(self) -> Int64s:
        """The predicates that are not hashed, ascending."""
        ids = [self._tail.roots().ids, *[part.roots().ids for part in self._parts]]
        return np.sort(np.concatenate(ids))

    @property
    def columns(self) -> frozenset[str]:
        """Every column that a predicate reads, or has read before it was removed."""
        return frozenset(self._reader.columns)

    def insert(self, predicate_id: int, where: Expression) -> None:
        """Insert a predicate. Raise ValueError if its id is here already."""
        if predicate_id in self:
            raise ValueError(f"predicate {predicate_id} is already in the query SteM")
        self._insert(predicate_id, where)

    def insert_texts(self, ids: Int64s, texts: pa.Array) -> None:
        """Insert predicates from their stored texts; none of the ids may be here. Raise whatever a
        bad text raises; then the query SteM must not be used again.

        Many are read in columns, without an object for each.
        """
        if len(ids) >= _MIN_BUILT_PREDICATES:
            self._build(self._reader.read(StoredPredicates(ids, texts)))
            return
        for predicate_id, text in zip(ids.tolist(), texts.to_pylist(), strict=True):
            self._insert(predicate_id, parse_text(text), text)
        last = len(self._parts[-1]) if self._parts else 0
        if len(self._tail.texts) >= max(_MAX_TAIL_PREDICATES, last // _PART_SIZE_RATIO):
            self._build_tail()

    def remove(self, predicate_id: int) -> None:
        """Remove a predicate. Raise KeyError if its id is not here."""
        if predicate_id in self._tail:
            self._remove_from_tail(predicate_id)
        elif not self._remove_built(predicate_id) and not any(
            family.remove(predicate_id) for family in self._families.values()
        ):
            raise KeyError(f"predicate {predicate_id} is not in the query SteM")

    def structure(self, predicate_id: int) -> Structure:
        """Return the structure that finds a predicate. Raise KeyError if its id is not here."""
        for family in self._families.values():
            if family.group is not None and predicate_id in family:
                return family.group.structure(predicate_id)
        for part in self._parts:
            if predicate_id in part:
                return part.structure(predicate_id)
        if predicate_id not in self._tail:
            raise KeyError(f"predicate {predicate_id} is not in the query SteM")
        return self._tail.structure()

    def probe(self, batch: pa.RecordBatch | pa.Table, first: int = 0) -> Matches:
        """Return the rows of the batch that satisfy each predicate; rows are numbered from `first`
        on."""
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
        """Yield what `probe` returns for the predicates with lo <= id < hi, a slice at a time, so
        that a caller that keeps no slice needs about `result_bytes` for lines of formulas.

        Formulas outside of the range cost nothing. Predicates that are hashed, or found by another
        access than bitmaps, are all probed, since a range of them is hardly cheaper:
        `hashed_seconds` adds up what that takes.
        """
        rows = ProbeBatch(batch, first)
        if not rows.length:
            return
        most = max(result_bytes // (8 * words_for(rows.shift + rows.length)), 1)
        started = time.thread_time()
        hashed: list[RowSets] = []
        graph_roots = []
        for graph in self._graphs():
            direct, roots = graph.probe_direct(rows, graph.roots().between(lo, hi))
            hashed += direct
            graph_roots.append((graph, roots))
        self.hashed_seconds += time.thread_time() - started
        lines: list[RowSets] = []
        count = 0
        for graph, roots in graph_roots:
            while len(roots):
                if count == most:
                    yield Matches(tuple(lines))
                    lines, count = [], 0
                # As many predicates as the slice still has room for.
                chosen = roots.slice(0, most - count)
                lines.append(graph.probe(rows, chosen))
                count += len(chosen)
                roots = roots.slice(len(chosen), len(roots))
        # The last slice goes with the hashed predicates: usually it is the only one.
        started = time.thread_time()
        groups = [family.group for family in self._families.values() if family.group is not None]
        hashed += [part.between(lo, hi) for group in groups for part in group.probe(rows)]
        self.hashed_seconds += time.thread_time() - started
        yield Matches((*lines, *hashed))

    def _graphs(self) -> list[BuiltPart | GraphTail]:
        return [*self._parts, self._tail] if len(self._tail) else [*self._parts]

    # ---- as arrays

    def content(self) -> StemContent | None:
        """Return all that this holds; None if a predicate is in the tail or was removed from a
        part."""
        is_whole = all(len(part) == len(part.alive) for part in self._parts)
        groups = {key: f.group.segments() for key, f in self._families.items() if f.group}
        dead = any(segment.has_dead for segments in groups.values() for segment in segments)
        if len(self._tail) or not is_whole or dead:
            return None
        families = {self._families[key].fixed: segments for key, segments in groups.items()}
        return StemContent(sorted(self._reader.columns), self._parts, families)

    @classmethod
    def restored(cls, content: StemContent) -> QueryStem:
        """Return a query SteM that holds this."""
        stem = cls()
        stem._reader.columns.update(content.columns)
        stem._parts = list(content.parts)
        for part in content.parts:
            for key in part.combinations:
                stem._family(sorted(key, key=repr))
        for fixed, segments in content.hashed.items():
            stem._family(fixed).hash().restore(list(segments))
        stem._count_built()
        return stem

    # ---- the tail

    def _insert(self, predicate_id: int, where: Expression, text: str | None = None) -> None:
        self._reader.columns.update(columns_of(where))
        formula = formula_of(where)
        conjunction = split_conjunction(formula)
        if conjunction is None:
            self._tail.insert(predicate_id, formula, text)
            return
        family = self._family(conjunction.fixed)
        if family.group is not None:
            family.group.insert(predicate_id, conjunction)
            return
        self._tail.insert(predicate_id, formula, text)
        family.count(predicate_id, conjunction)
        if family.is_large():
            self._hash(family)
            self._build([])

    def _remove_from_tail(self, predicate_id: int) -> Formula:
        formula = self._tail.remove(predicate_id)
        conjunction = split_conjunction(formula)
        if conjunction is not None:
            self._family(conjunction.fixed).uncount(predicate_id, conjunction)
        return formula

    def _build_tail(self) -> None:
        """Move the predicates of the tail that have a text into a part."""
        stored = self._tail.stored()
        for predicate_id in stored.ids.tolist():
            self._remove_from_tail(predicate_id)
        self._build(self._reader.read(stored))

    # ---- parts

    def _build(self, new_shapes: list[PredicateShape]) -> None:
        """Insert shapes: those of large families are hashed, the others become a part, together
        with older parts that are not much larger."""
        shapes = self._insert_hashed(new_shapes)
        while self._parts and self._is_merged(sum(len(shape.rows) for shape in shapes)):
            shapes += self._insert_hashed(self._reader.read(self._parts.pop().live()))
        if shapes:
            self._parts.append(build_part(shapes, self._combinations(shapes)))
        self._count_built()

    def _count_built(self) -> None:
        for key, family in self._families.items():
            built = [part.combinations.get(key, frozenset()) for part in self._parts]
            family.count_built(frozenset().union(*built))

    def _is_merged(self, count: int) -> bool:
        """Return whether the last part is to be merged with a new one of `count` predicates."""
        # A part must not hold predicates of a family that was hashed since: whether a family is
        # hashed is decided for the whole stream.
        if any(family.group is not None and family.is_built for family in self._families.values()):
            return True
        is_alike = len(self._parts[-1]) < _PART_SIZE_RATIO * count
        return count > 0 and (is_alike or len(self._parts) >= _MAX_PARTS)

    def _insert_hashed(self, shapes: Sequence[PredicateShape]) -> list[PredicateShape]:
        """Insert the shapes of families that are hashed, or large enough to be hashed now. Return
        the other shapes."""
        remaining: list[PredicateShape] = []
        for key, of_family in _by_family(shapes).items():
            if not key:
                remaining += of_family
                continue
            family = self._family(of_family[0].fixed_operands)
            entries = entries_of(of_family, family.fixed)
            if family.group is None and family.is_large(family.combinations(entries)):
                self._hash(family)
            if family.group is None:
                remaining += of_family
            else:
                family.group.insert_many(entries)
        return remaining

    def _combinations(self, shapes: Sequence[PredicateShape]) -> FamilyCombinations:
        combinations = {}
        for key, of_family in _by_family(shapes).items():
            if key:
                family = self._families[key]
                combinations[key] = family.combinations(entries_of(of_family, family.fixed))
        return combinations

    def _remove_built(self, predicate_id: int) -> bool:
        for part in self._parts:
            if part.remove(predicate_id):
                if len(part) <= len(part.alive) // 2:
                    self._parts.remove(part)
                    self._build(self._reader.read(part.live()))
                return True
        return False

    # ---- families

    def _family(self, fixed: Collection[Expression]) -> Family:
        key = frozenset(fixed)
        if key not in self._families:
            self._families[key] = Family(tuple(fixed))
        return self._families[key]

    def _hash(self, family: Family) -> None:
        """Hash a family, and move its predicates there from the tail."""
        members = sorted(family.members)
        group = family.hash()
        for predicate_id in members:
            conjunction = split_conjunction(self._tail.remove(predicate_id))
            assert conjunction is not None
            group.insert(predicate_id, conjunction)

    def _check(self) -> None:
        """Assert every invariant."""
        self._tail._check()
        assert len(self._parts) <= _MAX_PARTS
        for part in self._parts:
            part._check()
        for family in self._families.values():
            family._check()
            assert all(member in self._tail for member in family.members)
            assert family.group is None or not family.is_built


def _by_family(shapes: Sequence[PredicateShape]) -> dict[FamilyKey, list[PredicateShape]]:
    """Return the predicates by family; the empty key has those that fix no operand."""
    groups: dict[FamilyKey, list[PredicateShape]] = {}
    for shape in shapes:
        groups.setdefault(frozenset(shape.fixed_operands), []).append(shape)
    return groups
