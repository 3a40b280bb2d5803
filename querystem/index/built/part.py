"""A part of the query SteM: predicates that were built together, of which some were removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from querystem.expressions import Expression
from querystem.index.batch import ProbeBatch
from querystem.index.built.boxes import BoxGrid
from querystem.index.built.graph import BuiltGraph
from querystem.index.hashed.segment import KeyValue
from querystem.index.like.axis import LikeAxis
from querystem.index.like.roots import LikeRoots
from querystem.index.matches import RowLines, RowLists, lines_of
from querystem.index.probe import RootPlan, probe

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


def probe_roots(plan: RootPlan, batch: ProbeBatch, ids: Int64s) -> RowLines:
    """Return the matches of predicates, whose roots are planned, with a batch that has rows."""
    lines, words = probe(plan, batch)
    return lines_of(ids, lines, words, batch.first)


class BuiltPart:
    """Predicates in a graph that never changes: predicate `stored.ids[i]` is node `roots[i]`, and
    is removed unless `alive[i]`. Boxes may be in one of the `grids` as well."""

    def __init__(
        self,
        stored: StoredPredicates,
        graph: BuiltGraph,
        roots: Int64s,
        combinations: FamilyCombinations,
        grids: Sequence[BoxGrid] = (),
    ) -> None:
        self.stored, self.graph, self.grids = stored, graph, grids
        # Of the last probe: the next one often has the same roots.
        self._plan: RootPlan | None = None
        self._shares: tuple[object, list[tuple[Mask, Mask | None]]] | None = None
        self._all_roots = RootTable(stored.ids, roots)
        self.combinations = combinations
        self.alive = np.ones(len(stored), np.bool_)
        self._live_count = len(stored)
        self._likes: tuple[list[LikeRoots], Mask] | None = None

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
        self._likes = None
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

    def probe_boxes(self, batch: ProbeBatch, roots: RootTable) -> tuple[list[RowLists], RootTable]:
        """Return the matches of those predicates that grids answer for a batch that has rows, and
        the other predicates."""
        if not self.grids or not len(roots):
            return [], roots
        lists: list[RowLists] = []
        remaining = np.ones(len(roots), np.bool_)
        for grid, (inside, chosen) in zip(self.grids, self._shared(roots), strict=True):
            matches = grid.probe(batch, chosen)
            if matches is not None:
                lists.append(matches)
                remaining &= ~inside
        if not lists:
            return [], roots
        return lists, RootTable(roots.ids[remaining], roots.nodes[remaining])

    def _shared(self, roots: RootTable) -> list[tuple[Mask, Mask | None]]:
        """Return for each grid a mask of the roots that it has, and one of its boxes that are among
        the roots (None: all)."""
        # Roots are a run of those that were not removed, so these numbers tell which.
        key = self._live_count, int(roots.ids[0]), int(roots.ids[-1])
        if self._shares is None or self._shares[0] != key:
            masks = [
                (np.isin(roots.ids, grid.ids), np.isin(grid.ids, roots.ids)) for grid in self.grids
            ]
            shares = [(inside, None if chosen.all() else chosen) for inside, chosen in masks]
            self._shares = key, shares
        return self._shares[1]

    def probe_likes(self, batch: ProbeBatch, roots: RootTable) -> tuple[list[RowLists], RootTable]:
        """Return the matches of all predicates that are a single LIKE with a batch that has rows,
        if they are many; and those of the roots that remain for `probe`."""
        if self._likes is None:
            self._likes = self._split_likes()
        likes, is_like = self._likes
        lists = [matches for group in likes if (matches := group.probe(batch)) is not None]
        if not likes or len(lists) < len(likes):
            return [], roots
        remaining = ~is_like[roots.nodes]
        return lists, RootTable(roots.ids[remaining], roots.nodes[remaining])

    def _split_likes(self) -> tuple[list[LikeRoots], Mask]:
        """Return the predicates that are a single LIKE, and a mask of their nodes among all."""
        roots, likes, is_like = self.roots(), [], np.zeros(self.graph.lines, np.bool_)
        for axis in self.graph.axes:
            if isinstance(axis, LikeAxis):
                like_roots, is_root = LikeRoots.of(axis, roots.ids, roots.nodes)
                if like_roots is not None:
                    likes.append(like_roots)
                    is_like[roots.nodes[is_root]] = True
        return likes, is_like

    def probe(self, batch: ProbeBatch, roots: RootTable) -> RowLines:
        """Return the matches of predicates with a batch that has rows."""
        if self._plan is None or not np.array_equal(self._plan.roots, roots.nodes):
            self._plan = RootPlan(self.graph, roots.nodes)
        return probe_roots(self._plan, batch, roots.ids)

    def _place(self, predicate_id: int) -> int | None:
        ids = self.stored.ids
        place = int(np.searchsorted(ids, predicate_id))
        is_here = place < len(ids) and ids[place] == predicate_id and self.alive[place]
        return place if is_here else None

    def _check(self) -> None:
        assert (np.diff(self.stored.ids) > 0).all()
        assert len(self.stored.texts) == len(self._all_roots) == len(self.alive) == len(self.stored)
        assert self._live_count == self.alive.sum() > 0
        for grid in self.grids:
            grid._check()
            assert np.isin(grid.ids, self.stored.ids).all()
        nodes = [axis.nodes for axis in self.graph.axes] + [self.graph.condition_nodes]
        nodes += [table[:, 0] for _, table in self.graph.groups()]
        assert (np.concatenate(nodes) == np.arange(self.graph.lines)).all()
        for _, table in self.graph.groups():
            assert (table[:, 1:] < table[:, :1]).all()
