"""The tail of the query SteM: predicates that were inserted one by one since the last build."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from querystem.index.batch import ProbeBatch, truth
from querystem.index.built.part import KeptPlan, RootTable, StoredPredicates
from querystem.index.dense_table import DenseTable
from querystem.index.formula import Formula
from querystem.index.graph import FormulaGraph
from querystem.index.matches import RowSets, lines_of, pack
from querystem.index.structures import Bitmaps, ByItself

# Up to this many formulas are faster evaluated one by one than together.
_FEW_FORMULAS = 2


class GraphTail:
    """Predicates in a graph that grows and shrinks. `texts` has the stored text of those that were
    inserted with one."""

    def __init__(self) -> None:
        self.graph = FormulaGraph()
        self.texts: dict[int, str] = {}
        # Rows of a predicate and its node.
        self._roots = DenseTable(2)
        # Of these until the next change.
        self._sorted: RootTable | None = None
        self._plan = KeptPlan()

    def __len__(self) -> int:
        return len(self._roots)

    def __contains__(self, predicate_id: int) -> bool:
        return predicate_id in self._roots

    def insert(self, predicate_id: int, formula: Formula, text: str | None = None) -> None:
        """Insert a predicate, whose id must not be here."""
        self._forget()
        self._roots.put(predicate_id, predicate_id, self.graph.acquire(formula))
        if text is not None:
            self.texts[predicate_id] = text

    def remove(self, predicate_id: int) -> Formula:
        """Remove a predicate, and return its formula."""
        self._forget()
        root = self._roots.get(predicate_id)[1]
        formula = self.graph.formula(root)
        self._roots.drop(predicate_id)
        self.graph.release(root)
        self.texts.pop(predicate_id, None)
        return formula

    def _forget(self) -> None:
        self._sorted = None
        self._plan.forget()

    def stored(self) -> StoredPredicates:
        """Return the predicates that have a text."""
        ids = sorted(self.texts)
        texts = pa.array([self.texts[id_] for id_ in ids], pa.string())
        return StoredPredicates(np.array(ids, np.int64), texts)

    def roots(self) -> RootTable:
        """Return the predicates, ascending, and their nodes."""
        if self._sorted is None:
            table = self._roots.table
            table = table[np.argsort(table[:, 0])]
            self._sorted = RootTable(table[:, 0], table[:, 1])
        return self._sorted

    def probe_direct(self, batch: ProbeBatch, roots: RootTable) -> tuple[list[RowSets], RootTable]:
        """Return no matches and all predicates: the tail has only its graph."""
        return [], roots

    def probe(self, batch: ProbeBatch, roots: RootTable) -> RowSets:
        """Return the matches of predicates with a batch that has rows. There must be one."""
        if len(roots) <= _FEW_FORMULAS:
            masks = [truth(self.graph.formula(node), batch) for node in roots.nodes.tolist()]
            words = np.stack([pack(mask, batch.shift) for mask in masks])
            return lines_of(roots.ids, np.arange(len(roots)), words, batch.first)
        return self._plan.probe(self.graph, batch, roots)

    def structure(self) -> Bitmaps | ByItself:
        """Return how the predicates are found."""
        return (ByItself if len(self) <= _FEW_FORMULAS else Bitmaps)(len(self))

    def _check(self) -> None:
        self._roots._check()
        self.graph._check(self._roots.table[:, 1].tolist())
        assert all(id_ in self._roots for id_ in self.texts)
