"""One batch against a graph of formulas, by bitmaps.

A slice of the batch has a matrix of *source* lines: those of the axes, of the conditions, and of
the nodes that others use. A node is the rows of its line `plus` that are not in its line `minus`.
The lines of predicates are computed from these, a few at a time, and go straight to the result. A
node that the batch's values rule out costs nothing after that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from datastem.arrays import Int64s, Mask, UInt64s
from querystem.index.axes import BoundAxis, IntervalAxis
from querystem.index.batch import ProbeBatch
from querystem.index.matches import WORD, pack, words_for

# The source lines of a slice, and the lines worked on together, stay near the processor.
_SOURCE_BYTES = 4 << 20
_WORK_BYTES = 256 << 10
_MIN_SLICE_WORDS = 16
_MIN_WORK_LINES = 16
# The first two source lines: no row, and every row.
_EMPTY, _FULL = 0, 1


@dataclass(frozen=True, order=True, slots=True)
class Arity:
    """How many children a node has and of which kind; nodes of one arity are evaluated together.

    Lower levels come first. The `late` children, which are conditions, come after the `early` ones.
    """

    level: int
    is_every: bool
    early: int
    late: int


class BindableAxis(Protocol):
    """All factors on one operand."""

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        """Return the axis for a batch that has rows, at least the nodes of which the mask `needed`,
        over all nodes, is true."""


class ProbeGraph(Protocol):
    """A graph that a batch can be matched with. Its nodes are numbers below `lines`."""

    @property
    def lines(self) -> int: ...

    @property
    def axes(self) -> Iterable[BindableAxis]: ...

    @property
    def condition_nodes(self) -> Int64s: ...

    def condition_mask(self, node: int, batch: ProbeBatch) -> Mask: ...

    def groups(self) -> Iterable[tuple[Arity, Int64s]]:
        """Yield the inner nodes of each arity in the order of evaluation: a table whose rows are a
        node and its children."""


@dataclass(frozen=True, slots=True)
class _Task:
    """Nodes of one arity; `inner` and `out` are lines of the source and of the result, or -1."""

    arity: Arity
    plus: Int64s
    minus: Int64s
    late: Int64s
    inner: Int64s
    out: Int64s


class RootPlan:
    """What a probe of some roots needs of a graph, whatever the batch; the graph must not change
    meanwhile."""

    def __init__(self, graph: ProbeGraph, roots: Int64s) -> None:
        self.graph, self.roots = graph, roots
        self.is_root = np.zeros(graph.lines, np.bool_)
        self.is_root[roots] = True
        groups = [*graph.groups()]
        # A mask over nodes: the roots, and all that they are made of. From the highest level down:
        # the users of a node are in groups after its own.
        self.needed = self.is_root.copy()
        for _, table in reversed(groups):
            self.needed[table[self.needed[table[:, 0]], 1:]] = True
        self.axes = [
            axis.restricted(self.needed) if isinstance(axis, IntervalAxis) else axis
            for axis in graph.axes
        ]
        self.condition_nodes = graph.condition_nodes
        self.groups = [(arity, table[self.needed[table[:, 0]]]) for arity, table in groups]
        # A mask over nodes: those that a needed node is made of.
        self.used = np.zeros(graph.lines, np.bool_)
        is_leaf = self.is_root.copy()
        for _, table in self.groups:
            self.used[table[:, 1:]] = True
            is_leaf[table[:, 0]] = False
        is_late = np.zeros(graph.lines, np.bool_)
        is_late[self.condition_nodes] = True
        # The factors that are whole predicates.
        self.early_leaves = np.flatnonzero(is_leaf & ~is_late)
        self.late_leaves = np.flatnonzero(is_leaf & is_late)


class ProbePlan:
    """The tasks of a probe with a batch that has rows; the graph must not change meanwhile."""

    def __init__(self, roots: RootPlan, batch: ProbeBatch) -> None:
        self._roots = roots
        self.lines = 2
        self.results = 0
        # For each node its source lines, and its line of the result or -1.
        count = roots.graph.lines
        self.plus = np.zeros(count, np.int64)
        self._minus = np.zeros(count, np.int64)
        self._out = np.full(count, -1, np.int64)
        self.axes = [self._bind(axis.bind(batch, roots.needed)) for axis in roots.axes]
        self.plus[roots.condition_nodes] = self._new(len(roots.condition_nodes))
        self.tasks = [*self._leaves(), *self._groups()]

    def result_of(self, roots: Int64s) -> Int64s:
        """Return the line of the result of each root, -1 if the root has no rows."""
        return self._out[roots]

    def _new(self, count: int) -> Int64s:
        self.lines += count
        return np.arange(self.lines - count, self.lines)

    def _bind(self, axis: BoundAxis) -> tuple[slice, BoundAxis]:
        lines = np.append(_EMPTY, self._new(axis.count + 1))
        self.plus[axis.nodes] = lines[axis.plus]
        self._minus[axis.nodes] = lines[axis.minus]
        return slice(self.lines - axis.count - 1, self.lines), axis

    def _leaves(self) -> list[_Task]:
        """Return the tasks of factors that are whole predicates."""
        early, late = self._roots.early_leaves, self._roots.late_leaves
        return [
            self._task(Arity(0, True, 1, 0), early, early[:, None]),
            self._task(Arity(0, True, 0, 1), late, late[:, None]),
        ]

    def _groups(self) -> list[_Task]:
        tasks = []
        for arity, needed_table in self._roots.groups:
            table = needed_table[~self._ruled_out(arity, needed_table)]
            inner = self._roots.used[table[:, 0]]
            self.plus[table[inner, 0]] = self._new(int(inner.sum()))
            tasks.append(self._task(arity, table[:, 0], table[:, 1:], inner))
        return tasks

    def _ruled_out(self, arity: Arity, table: Int64s) -> Mask:
        early = table[:, 1 : 1 + arity.early]
        empty = self.plus[early] == self._minus[early]
        if arity.is_every:
            return np.asarray(empty.any(axis=1))
        return np.asarray(empty.all(axis=1) & (arity.late == 0))

    def _task(
        self, arity: Arity, ids: Int64s, children: Int64s, inner: Mask | None = None
    ) -> _Task:
        is_root = self._roots.is_root[ids]
        out = np.where(is_root, self.results + np.cumsum(is_root) - 1, -1)
        self.results += int(is_root.sum())
        self._out[ids] = out
        early = children[:, : arity.early]
        lines = np.full(len(ids), -1) if inner is None else np.where(inner, self.plus[ids], -1)
        late = children[:, arity.early :]
        return _Task(arity, self.plus[early], self._minus[early], late, lines, out)


def probe(roots: RootPlan, batch: ProbeBatch) -> tuple[Int64s, UInt64s]:
    """Return for each root its line, or -1 if it has no rows, and the matrix of lines."""
    plan = ProbePlan(roots, batch)
    width = words_for(batch.shift + batch.length)
    result = np.empty((plan.results, width), np.uint64)
    step = max(_SOURCE_BYTES // 8 // plan.lines, _MIN_SLICE_WORDS)
    conditions: dict[int, UInt64s] = {}
    for begin in range(0, width, step):
        words = slice(begin, min(begin + step, width))
        piece = _Slice(roots.graph, batch, plan, words, conditions)
        for task in plan.tasks:
            piece.run(task, result[:, words])
    return plan.result_of(roots.roots), result


class _Slice:
    """The source lines for a run of the batch's words."""

    def __init__(
        self,
        graph: ProbeGraph,
        batch: ProbeBatch,
        plan: ProbePlan,
        words: slice,
        conditions: dict[int, UInt64s],
    ) -> None:
        self._graph, self._batch, self._plan, self._words = graph, batch, plan, words
        self._conditions = conditions
        self._filled: set[int] = set()
        width = words.stop - words.start
        shift = 0 if words.start else batch.shift
        rows = slice(
            max(words.start * WORD - batch.shift, 0),
            min(words.stop * WORD - batch.shift, batch.length),
        )
        self._source = np.empty((plan.lines, width), np.uint64)
        self._source[_EMPTY] = 0
        self._source[_FULL] = pack(np.ones(rows.stop - rows.start, np.bool_), shift)
        for lines, axis in plan.axes:
            axis.fill(rows, shift, self._source[lines])
        self._step = max(_WORK_BYTES // 8 // width, _MIN_WORK_LINES)
        self._buffers = np.empty((3, self._step, width), np.uint64)

    def run(self, task: _Task, result: UInt64s) -> None:
        for begin in range(0, len(task.out), self._step):
            part = slice(begin, begin + self._step)
            lines = self._early(task, part)
            self._late(task, part, lines)
            for into, places in ((self._source, task.inner[part]), (result, task.out[part])):
                is_line = places >= 0
                if is_line.all():
                    into[places] = lines
                elif is_line.any():
                    into[places[is_line]] = lines[is_line]

    def _early(self, task: _Task, part: slice) -> UInt64s:
        plus, minus = task.plus[part], task.minus[part]
        lines: UInt64s
        lines, operands, less = self._buffers[:, : len(plus)]
        if not task.arity.early:
            lines[:] = self._source[_FULL if task.arity.is_every else _EMPTY]
        join = np.bitwise_and if task.arity.is_every else np.bitwise_or
        for place in range(task.arity.early):
            into = operands if place else lines
            self._source.take(plus[:, place], 0, out=into, mode="clip")
            if minus[:, place].any():
                self._source.take(minus[:, place], 0, out=less, mode="clip")
                np.bitwise_xor(into, less, out=into)
            if place:
                join(lines, operands, out=lines)
        return lines

    def _late(self, task: _Task, part: slice, lines: UInt64s) -> None:
        """Join the conditions to the lines. A conjunction without rows evaluates no further one."""
        late = task.late[part]
        for place in range(task.arity.late):
            if task.arity.is_every:
                remaining = np.flatnonzero(lines.any(axis=1))
                lines[remaining] &= self._condition(late[remaining, place])
            else:
                lines |= self._condition(late[:, place])

    def _condition(self, nodes: Int64s) -> UInt64s:
        for node in np.unique(nodes).tolist():
            if node not in self._filled:
                if node not in self._conditions:
                    mask = self._graph.condition_mask(node, self._batch)
                    self._conditions[node] = pack(mask, self._batch.shift)
                self._source[self._plan.plus[node]] = self._conditions[node][self._words]
                self._filled.add(node)
        lines: UInt64s = self._source[self._plan.plus[nodes]]
        return lines
