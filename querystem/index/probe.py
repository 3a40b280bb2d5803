"""One batch against the graph of formulas, by bitmaps.

A slice of the batch has a matrix of *source* lines: those of the axes, of the conditions, and of
the nodes that others use. A node is the rows of its line `plus` that are not in its line `minus`.
The lines of predicates are computed from these, some at a time, and go straight to the result. A
node that the batch's values rule out costs nothing after that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s, Mask, UInt64s
from querystem.index.axes import BoundAxis
from querystem.index.batch import ProbeBatch
from querystem.index.graph import Arity, FormulaGraph
from querystem.index.matches import WORD, pack, words_for

# The source lines of a slice, and the lines worked on together, stay near the processor.
_SOURCE_BYTES = 4 << 20
_WORK_BYTES = 256 << 10
_FEWEST_WORDS = 16
_EMPTY, _FULL = 0, 1


@dataclass(frozen=True, slots=True)
class _Task:
    """Nodes of one arity; `inner` and `out` are lines of the source and of the result, or -1."""

    arity: Arity
    plus: Int64s
    minus: Int64s
    late: Int64s
    inner: Int64s
    out: Int64s


class ProbePlan:
    """The tasks of a probe with a batch that has rows; the graph must not change meanwhile."""

    def __init__(self, nodes: FormulaGraph, batch: ProbeBatch, roots: Int64s) -> None:
        self._nodes = nodes
        self.lines = 2
        self.results = 0
        self.plus = np.zeros(nodes.lines, np.int64)
        self._minus = np.zeros(nodes.lines, np.int64)
        self._out = np.full(nodes.lines, -1, np.int64)
        self._is_root = np.zeros(nodes.lines, np.bool_)
        self._is_root[roots] = True
        self._needed = self._needed_by(roots)
        self.axes = [self._bind(axis.bind(batch, self._needed)) for axis in nodes.axes.values()]
        self.plus[list(nodes.conditions)] = self._new(len(nodes.conditions))
        self.tasks = [*self._leaves(roots), *self._groups()]

    def result_of(self, roots: Int64s) -> Int64s:
        """The line of the result of each root, -1 where the root has no rows."""
        return self._out[roots]

    def _new(self, count: int) -> Int64s:
        self.lines += count
        return np.arange(self.lines - count, self.lines)

    def _bind(self, axis: BoundAxis) -> tuple[slice, BoundAxis]:
        lines = np.append(_EMPTY, self._new(axis.count + 1))
        self.plus[axis.nodes] = lines[axis.plus]
        self._minus[axis.nodes] = lines[axis.minus]
        return slice(self.lines - axis.count - 1, self.lines), axis

    def _leaves(self, roots: Int64s) -> list[_Task]:
        """The tasks of factors that are whole predicates."""
        inner = np.zeros(self._nodes.lines, np.bool_)
        for _, group in self._nodes.groups():
            inner[group.table[:, 0]] = True
        leaves = roots[~inner[roots]]
        is_late = np.isin(leaves, list(self._nodes.conditions))
        early, late = leaves[~is_late, None], leaves[is_late, None]
        return [
            self._task(Arity(0, True, 1, 0), early[:, 0], early),
            self._task(Arity(0, True, 0, 1), late[:, 0], late),
        ]

    def _needed_by(self, roots: Int64s) -> Mask:
        """Return a mask over nodes: the roots, and all that they are made of."""
        needed = np.zeros(self._nodes.lines, np.bool_)
        needed[roots] = True
        # From the highest level down: the users of a node are in groups after its own.
        for _, group in reversed([*self._nodes.groups()]):
            needed[group.table[needed[group.table[:, 0]], 1:]] = True
        return needed

    def _groups(self) -> list[_Task]:
        used = np.zeros(self._nodes.lines, np.bool_)
        groups = [
            (arity, group.table[self._needed[group.table[:, 0]]])
            for arity, group in self._nodes.groups()
        ]
        for _, table in groups:
            used[table[:, 1:]] = True
        tasks = []
        for arity, table in groups:
            table = table[~self._ruled_out(arity, table)]
            inner = used[table[:, 0]]
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
        is_root = self._is_root[ids]
        out = np.where(is_root, self.results + np.cumsum(is_root) - 1, -1)
        self.results += int(is_root.sum())
        self._out[ids] = out
        early = children[:, : arity.early]
        lines = np.full(len(ids), -1) if inner is None else np.where(inner, self.plus[ids], -1)
        late = children[:, arity.early :]
        return _Task(arity, self.plus[early], self._minus[early], late, lines, out)


def probe(nodes: FormulaGraph, batch: ProbeBatch, roots: Int64s) -> tuple[Int64s, UInt64s]:
    """A matrix of lines, and for each root its line, or -1 where it has no rows."""
    plan = ProbePlan(nodes, batch, roots)
    width = words_for(batch.shift + batch.length)
    result = np.empty((plan.results, width), np.uint64)
    step = max(_SOURCE_BYTES // 8 // plan.lines, _FEWEST_WORDS)
    conditions: dict[int, UInt64s] = {}
    for begin in range(0, width, step):
        words = slice(begin, min(begin + step, width))
        piece = _Slice(nodes, batch, plan, words, conditions)
        for task in plan.tasks:
            piece.run(task, result[:, words])
    return plan.result_of(roots), result


class _Slice:
    """The source lines for some words of the batch."""

    def __init__(
        self,
        nodes: FormulaGraph,
        batch: ProbeBatch,
        plan: ProbePlan,
        words: slice,
        conditions: dict[int, UInt64s],
    ) -> None:
        self._nodes, self._batch, self._plan, self._words = nodes, batch, plan, words
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
        self._step = max(_WORK_BYTES // 8 // width, 16)
        self._buffers = np.empty((3, self._step, width), np.uint64)

    def run(self, task: _Task, result: UInt64s) -> None:
        for begin in range(0, len(task.out), self._step):
            part = slice(begin, begin + self._step)
            lines = self._early(task, part)
            self._late(task, part, lines)
            for into, places in ((self._source, task.inner[part]), (result, task.out[part])):
                wanted = places >= 0
                if wanted.all():
                    into[places] = lines
                elif wanted.any():
                    into[places[wanted]] = lines[wanted]

    def _early(self, task: _Task, part: slice) -> UInt64s:
        plus, minus = task.plus[part], task.minus[part]
        lines: UInt64s
        lines, others, less = self._buffers[:, : len(plus)]
        if not task.arity.early:
            lines[:] = self._source[_FULL if task.arity.is_every else _EMPTY]
        join = np.bitwise_and if task.arity.is_every else np.bitwise_or
        for place in range(task.arity.early):
            into = others if place else lines
            self._source.take(plus[:, place], 0, out=into, mode="clip")
            if minus[:, place].any():
                self._source.take(minus[:, place], 0, out=less, mode="clip")
                np.bitwise_xor(into, less, out=into)
            if place:
                join(lines, others, out=lines)
        return lines

    def _late(self, task: _Task, part: slice, lines: UInt64s) -> None:
        """Joins the conditions to the lines; a conjunction without rows asks for no further one."""
        late = task.late[part]
        for place in range(task.arity.late):
            if task.arity.is_every:
                left = np.flatnonzero(lines.any(axis=1))
                lines[left] &= self._condition(late[left, place])
            else:
                lines |= self._condition(late[:, place])

    def _condition(self, nodes: Int64s) -> UInt64s:
        for node in np.unique(nodes).tolist():
            if node not in self._filled:
                if node not in self._conditions:
                    mask = self._batch.mask(self._nodes.conditions[node])
                    self._conditions[node] = pack(mask, self._batch.shift)
                self._source[self._plan.plus[node]] = self._conditions[node][self._words]
                self._filled.add(node)
        lines: UInt64s = self._source[self._plan.plus[nodes]]
        return lines
