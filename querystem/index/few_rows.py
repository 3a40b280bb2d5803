"""A few rows against a graph of formulas: a truth value for each node and row, instead of lines.

Lines of bits cost something for each node, however few the rows are. Here a node costs a byte for
each row.
"""

from __future__ import annotations

import numpy as np

from datastem.arrays import Int64s, Mask
from querystem.index.axes import IntervalAxis, PointAxis
from querystem.index.batch import ProbeBatch
from querystem.index.matches import RowLists
from querystem.index.probe import Arity, BindableAxis, RootPlan

# With more rows lines of bits are faster.
FEW_ROWS = 16


def probe_few(plan: RootPlan, batch: ProbeBatch, ids: Int64s) -> RowLists:
    """Return the matches of ascending predicates, whose roots are planned, with a batch of 1 to 64
    rows."""
    truths = _Truths(plan, batch)
    numbers, rows = truths.holds.take(plan.roots, axis=0).nonzero()
    counts = np.bincount(numbers, minlength=len(ids))
    occurs = counts.nonzero()[0]
    numbered = (rows + batch.first).astype(np.uint32)
    return RowLists(ids.take(occurs), counts.take(occurs), numbered)


class _Truths:
    """`holds[n, r]` says whether node n holds for row r."""

    def __init__(self, plan: RootPlan, batch: ProbeBatch) -> None:
        self._plan, self._batch = plan, batch
        self._evaluated: set[int] = set()
        self.holds = np.zeros((plan.graph.lines, batch.length), np.bool_)
        for axis in plan.axes:
            match axis:
                case IntervalAxis():
                    self._fill_intervals(axis)
                case PointAxis():
                    keys, valid = batch.keys(axis.operand)
                    equal = axis.points[:, None] == keys
                    self.holds[axis.nodes] = equal if valid is None else equal & valid
                case _:
                    self._fill(axis)
        self._evaluate(plan.late_leaves)
        for arity, table in plan.groups:
            self.holds[table[:, 0]] = self._combined(arity, table)

    def _fill_intervals(self, axis: IntervalAxis) -> None:
        keys, valid = self._batch.keys(axis.operand)
        # The place of the last cut that is not above the key.
        places = axis.cuts.searchsorted(keys, "right") - 1
        inside = (axis.begins[:, None] <= places) & (places < axis.ends[:, None])
        self.holds[axis.nodes] = inside if valid is None else inside & valid

    def _fill(self, axis: BindableAxis) -> None:
        bound = axis.bind(self._batch, self._plan.needed)
        # One word for each line: the first is empty, and the last is for the axis to use.
        lines = np.zeros((bound.count + 2, 1), np.uint64)
        bound.fill(slice(0, self._batch.length), 0, lines[1:])
        bits = np.unpackbits(lines.view(np.uint8), axis=1, bitorder="little")
        masks = bits[:, : self._batch.length].view(np.bool_)
        self.holds[bound.nodes] = masks.take(bound.plus, axis=0) & ~masks.take(bound.minus, axis=0)

    def _combined(self, arity: Arity, table: Int64s) -> Mask:
        """Return what nodes of one arity are; a row of the table is a node and its children."""
        join = np.logical_and if arity.is_every else np.logical_or
        combined = np.full((len(table), self._batch.length), arity.is_every)
        for place in range(1, 1 + arity.early):
            join(combined, self.holds.take(table[:, place], axis=0), out=combined)
        for place in range(1 + arity.early, table.shape[1]):
            # A conjunction without rows evaluates no further condition.
            nodes = np.flatnonzero(combined.any(axis=1)) if arity.is_every else slice(None)
            children = table[nodes, place]
            self._evaluate(children)
            combined[nodes] = join(combined[nodes], self.holds.take(children, axis=0))
        return combined

    def _evaluate(self, conditions: Int64s) -> None:
        for node in np.unique(conditions).tolist():
            if node not in self._evaluated:
                self.holds[node] = self._plan.graph.condition_mask(node, self._batch)
                self._evaluated.add(node)
