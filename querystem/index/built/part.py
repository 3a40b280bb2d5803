"""A part of the query SteM: predicates that were built together, of which some were removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from querystem.expressions import Expression
from querystem.index.batch import ProbeBatch
from querystem.index.built.graph import BuiltGraph
from querystem.index.hashed.segment import KeyValue
from querystem.index.matches import RowLines, lines_of
from querystem.index.probe import ProbeGraph, probe

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


def probe_roots(graph: ProbeGraph, batch: ProbeBatch, roots: RootTable) -> RowLines:
    """Return the matches of predicates of a graph with a batch that has rows."""
    lines, words = probe(graph, batch, roots.nodes)
    return lines_of(roots.ids, lines, words, batch.first)


class BuiltPart:
    """Predicates in a graph that never changes: predicate `stored.ids[i]` is node `roots[i]`, and
    is removed unless `alive[i]`."""

    def __init__(
        self,
        stored: StoredPredicates,
        graph: BuiltGraph,
        roots: Int64s,
        combinations: FamilyCombinations,
    ) -> None:
        self.stored, self.graph = stored, graph
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

    def probe(self, batch: ProbeBatch, roots: RootTable) -> RowLines:
        """Return the matches of predicates with a batch that has rows."""
        return probe_roots(self.graph, batch, roots)

    def _place(self, predicate_id: int) -> int | None:
        ids = self.stored.ids
        place = int(np.searchsorted(ids, predicate_id))
        is_here = place < len(ids) and ids[place] == predicate_id and self.alive[place]
        return place if is_here else None

    def _check(self) -> None:
        assert (np.diff(self.stored.ids) > 0).all()
        assert len(self.stored.texts) == len(self._all_roots) == len(self.alive) == len(self.stored)
        assert self._live_count == self.alive.sum() > 0
        nodes = [axis.nodes for axis in self.graph.axes] + [self.graph.condition_nodes]
        nodes += [table[:, 0] for _, table in self.graph.groups()]
        assert (np.concatenate(nodes) == np.arange(self.graph.lines)).all()
        for _, table in self.graph.groups():
            assert (table[:, 1:] < table[:, :1]).all()
