"""A part of the query SteM: predicates that were built together, of which some were removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from querystem.expressions import Expression
from querystem.index.batch import ProbeBatch
from querystem.index.built.alternatives import Alternatives
from querystem.index.built.boxes import BoxGrid
from querystem.index.built.graph import BuiltGraph
from querystem.index.few_rows import FEW_ROWS, probe_few
from querystem.index.hashed.conjunction import KeyValue
from querystem.index.matches import RowSets, lines_of
from querystem.index.probe import ProbeGraph, RootPlan, probe
from querystem.index.structures import Bitmaps, Structure

FamilyKey = frozenset[Expression]
# The combinations of values that predicates ask for, by family. Families in a part are small.
FamilyCombinations = Mapping[FamilyKey, frozenset[tuple[KeyValue, ...]]]


@dataclass(frozen=True, slots=True)
class StoredPredicates:
    """Predicates in their stored form: ids, which ascend, and a text for each."""

    ids: Int64s
    texts: pa.Array

    def __len__(self) -> int:
        return len(self.ids)


def join_texts(parts: Sequence[StoredPredicates]) -> StoredPredicates:
    """Return the predicates of all parts; no id may be in two of them."""
    ids = np.concatenate([part.ids for part in parts])
    order = np.argsort(ids, kind="stable")
    texts = pa.concat_arrays([part.texts for part in parts])
    return StoredPredicates(ids[order], texts.take(pa.array(order)))


@dataclass(frozen=True, slots=True)
class RootTable:
    """Predicates, which ascend, and the node of each in a graph."""

    ids: Int64s
    nodes: Int64s

    def __len__(self) -> int:
        return len(self.ids)

    def between(self, lo: int, hi: int) -> RootTable:
        """Return the predicates with lo <= id < hi."""
        return self.slice(*np.searchsorted(self.ids, [lo, hi]).tolist())

    def slice(self, begin: int, end: int) -> RootTable:
        """Return the predicates at these places."""
        return RootTable(self.ids[begin:end], self.nodes[begin:end])


class _AccessShare:
    """What accesses have of some roots: `chosen[i]` is a mask of the predicates of access i that
    are among the roots, or None if all are."""

    def __init__(
        self, key: object, roots: RootTable, accesses: Sequence[BoxGrid | Alternatives]
    ) -> None:
        self.key, self._roots = key, roots
        self._inside = [np.isin(roots.ids, access.ids) for access in accesses]
        masks = [np.isin(access.ids, roots.ids) for access in accesses]
        self.chosen = [None if mask.all() else mask for mask in masks]
        self._remaining: dict[tuple[int, ...], RootTable] = {}

    def without(self, answered: list[int]) -> RootTable:
        """Return the roots that none of these accesses has."""
        key = tuple(answered)
        if key not in self._remaining:
            remaining = np.ones(len(self._roots), np.bool_)
            for number in answered:
                remaining &= ~self._inside[number]
            roots = self._roots
            self._remaining[key] = RootTable(roots.ids[remaining], roots.nodes[remaining])
        return self._remaining[key]


class KeptPlan:
    """The plan of the last probe of a graph: the next one often has the same roots."""

    def __init__(self) -> None:
        self._plan: RootPlan | None = None

    def forget(self) -> None:
        """Drop the plan, because the graph changed."""
        self._plan = None

    def probe(self, graph: ProbeGraph, batch: ProbeBatch, roots: RootTable) -> RowSets:
        """Return the matches of predicates with a batch that has rows."""
        if self._plan is None or not np.array_equal(self._plan.roots, roots.nodes):
            self._plan = RootPlan(graph, roots.nodes)
        if batch.length <= FEW_ROWS:
            return probe_few(self._plan, batch, roots.ids)
        lines, words = probe(self._plan, batch)
        return lines_of(roots.ids, lines, words, batch.first)


class BuiltPart:
    """Predicates in a graph that never changes: predicate `stored.ids[i]` is node `roots[i]`, and
    is removed unless `alive[i]`. One of the `accesses` may have it as well."""

    def __init__(
        self,
        stored: StoredPredicates,
        graph: BuiltGraph,
        roots: Int64s,
        combinations: FamilyCombinations,
        accesses: Sequence[BoxGrid | Alternatives] = (),
    ) -> None:
        self.stored, self.graph, self.accesses = stored, graph, accesses
        self._plan = KeptPlan()
        self._share: _AccessShare | None = None
        self._all_roots = RootTable(stored.ids, roots)
        self.combinations = combinations
        self.alive = np.ones(len(stored), np.bool_)
        self._live_count = len(stored)

    def __len__(self) -> int:
        """The number of predicates that were not removed."""
        return self._live_count

    def __contains__(self, predicate_id: int) -> bool:
        return self._place(predicate_id) is not None

    def remove(self, predicate_id: int) -> bool:
        """Remove a predicate, and return whether it was here."""
        place = self._place(predicate_id)
        if place is None:
            return False
        self.alive[place] = False
        self._live_count -= 1
        for access in self.accesses:
            access.remove(predicate_id)
        return True

    def live(self) -> StoredPredicates:
        """Return the predicates that were not removed."""
        if self._live_count == len(self.alive):
            return self.stored
        texts = self.stored.texts.filter(pa.array(self.alive))
        return StoredPredicates(self.stored.ids[self.alive], texts)

    def roots(self) -> RootTable:
        """Return the predicates that were not removed, ascending, and their nodes."""
        if self._live_count == len(self.alive):
            return self._all_roots
        return RootTable(self.stored.ids[self.alive], self._all_roots.nodes[self.alive])

    def probe_direct(self, batch: ProbeBatch, roots: RootTable) -> tuple[list[RowSets], RootTable]:
        """Return the matches of those predicates that an access finds for a batch that has rows,
        and the other predicates, which remain for `probe`."""
        if not self.accesses or not len(roots):
            return [], roots
        lo, hi = int(roots.ids[0]), int(roots.ids[-1]) + 1
        # Roots are a run of those that were not removed, so these numbers tell which.
        key = self._live_count, lo, hi
        if self._share is None or self._share.key != key:
            self._share = _AccessShare(key, roots, self.accesses)
        answered: list[int] = []
        lists: list[RowSets] = []
        for number, access in enumerate(self.accesses):
            chosen = self._share.chosen[number]
            if chosen is not None and not chosen.any():
                continue
            matches = access.probe(batch, chosen)
            if matches is not None:
                lists += [part.between(lo, hi) for part in matches]
                answered.append(number)
        return lists, self._share.without(answered)

    def probe(self, batch: ProbeBatch, roots: RootTable) -> RowSets:
        """Return the matches of predicates with a batch that has rows."""
        return self._plan.probe(self.graph, batch, roots)

    def structure(self, predicate_id: int) -> Structure:
        """Return how a predicate of this part is found."""
        for access in self.accesses:
            if predicate_id in access.ids:
                return access.structure(predicate_id)
        return Bitmaps(len(self) - sum(len(access.ids) for access in self.accesses))

    def _place(self, predicate_id: int) -> int | None:
        ids = self.stored.ids
        place = int(np.searchsorted(ids, predicate_id))
        is_here = place < len(ids) and ids[place] == predicate_id and self.alive[place]
        return place if is_here else None

    def _check(self) -> None:
        assert (np.diff(self.stored.ids) > 0).all()
        assert len(self.stored.texts) == len(self._all_roots) == len(self.alive) == len(self.stored)
        assert self._live_count == self.alive.sum() > 0
        for access in self.accesses:
            access._check()
            assert np.isin(access.ids, self.stored.ids).all()
        nodes = [axis.nodes for axis in self.graph.axes] + [self.graph.condition_nodes]
        nodes += [table[:, 0] for _, table in self.graph.groups()]
        assert (np.concatenate(nodes) == np.arange(self.graph.lines)).all()
        for _, table in self.graph.groups():
            assert (table[:, 1:] < table[:, :1]).all()
