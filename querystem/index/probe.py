"""One batch against all nodes, slice by slice."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from querystem.expressions import Expression
from querystem.index.bitmaps import WORD, Words, pack, words_for
from querystem.index.nodes import Nodes, Shape
from querystem.kernel import Frame
from querystem.kernel.vector import Vector

# The matrix of a slice has about this many bytes, so that it stays near the processor.
_MATRIX_BYTES = 16 << 20
_FEWEST_WORDS = 16


class Probe:
    """Lives as long as one batch is matched; the nodes must not change meanwhile."""

    def __init__(self, nodes: Nodes, frame: Frame) -> None:
        self._nodes = nodes
        self._frame = frame
        self._operands: dict[Expression, Vector] = {}
        self._conditions: dict[int, Words] = {}
        self._is_condition = np.zeros(nodes.lines, np.bool_)
        self._is_condition[list(nodes.conditions)] = True

    def slices(self) -> list[slice]:
        """The rows to take at a time; each begins at a whole word."""
        affordable = _MATRIX_BYTES // 8 // max(self._nodes.lines, 1)
        step = max(affordable, _FEWEST_WORDS) * WORD
        length = self._frame.length
        return [slice(at, min(at + step, length)) for at in range(0, length, step)]

    def lines(self, rows: slice, roots: npt.NDArray[np.int64]) -> Words:
        """For each root the rows of the slice that satisfy it."""
        matrix = np.zeros((self._nodes.lines, words_for(rows.stop - rows.start)), np.uint64)
        for axes in (self._nodes.intervals, self._nodes.members):
            for operand, axis in axes.items():
                axis.fill(self._operand(operand), rows, matrix)
        slice_ = _Slice(self, rows, matrix)
        for shape, group in self._nodes.groups():
            evaluate = slice_.every if shape.is_every else slice_.some
            evaluate(shape, group.table)
        slice_.fill(roots)
        return matrix[roots]

    def condition(self, node: int, words: slice) -> Words:
        """Evaluated for the whole batch when first asked for."""
        condition = self._nodes.conditions[node]
        if node not in self._conditions:
            vector = self._operand(condition.expression)
            mask = vector.where_true() if condition.wanted else vector.where_false()
            self._conditions[node] = pack(np.broadcast_to(mask, self._frame.length))
        return self._conditions[node][words]

    def conditions_among(self, nodes: npt.NDArray[np.int64]) -> list[int]:
        found: list[int] = np.unique(nodes[self._is_condition[nodes]]).tolist()
        return found

    def _operand(self, operand: Expression) -> Vector:
        if operand not in self._operands:
            self._operands[operand] = self._frame.vector(operand)
        return self._operands[operand]


class _Slice:
    """The lines of all nodes for some rows, as far as they are filled in."""

    def __init__(self, probe: Probe, rows: slice, matrix: Words) -> None:
        self._probe = probe
        self._matrix = matrix
        self._words = slice(rows.start // WORD, words_for(rows.stop))
        self._full = pack(np.ones(rows.stop - rows.start, np.bool_))
        self._filled: set[int] = set()

    def fill(self, nodes: npt.NDArray[np.int64]) -> None:
        """Makes the lines of those nodes that are conditions good."""
        for node in self._probe.conditions_among(nodes):
            if node not in self._filled:
                self._matrix[node] = self._probe.condition(node, self._words)
                self._filled.add(node)

    def every(self, shape: Shape, group: npt.NDArray[np.int64]) -> None:
        """A node without a row left asks for no further child."""
        alive = np.arange(len(group))
        lines = np.broadcast_to(self._full, (len(group), len(self._full))).copy()
        for place in range(1, 1 + shape.early + shape.late):
            if place > shape.early:
                self.fill(group[alive, place])
            if len(alive) == len(group):
                lines &= self._matrix[group[:, place]]
            else:
                lines[alive] &= self._matrix[group[alive, place]]
            alive = alive[lines[alive].any(axis=1)]
        self._matrix[group[:, 0]] = lines

    def some(self, shape: Shape, group: npt.NDArray[np.int64]) -> None:
        lines = np.zeros((len(group), len(self._full)), np.uint64)
        for place in range(1, 1 + shape.early + shape.late):
            if place > shape.early:
                self.fill(group[:, place])
            lines |= self._matrix[group[:, place]]
        self._matrix[group[:, 0]] = lines
