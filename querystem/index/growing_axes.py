"""Axes whose factors come and go one by one. The arrays that a probe needs are made again after a
change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from datastem.arrays import Mask
from querystem.expressions import Expression
from querystem.index.axes import BoundAxis, IntervalAxis, MemberAxis, PointAxis
from querystem.index.batch import ProbeBatch, bounds_of, is_wide, point_of
from querystem.index.dense_table import DenseTable
from querystem.index.formula import Condition, Interval, Member, like_of
from querystem.index.like.axis import LikeAxis
from querystem.index.like.patterns import Patterns


class GrowingIntervals:
    """Factors that hold if one operand's key lies in an interval."""

    def __init__(self, operand: Expression) -> None:
        self._operand = operand
        self._nodes = DenseTable(1)
        # The least and the greatest key of each node, in the order of `_nodes`.
        self._bounds = DenseTable(2, object if is_wide(operand.type) else np.int64)
        self._axis: IntervalAxis | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def put(self, node: int, factor: Interval) -> None:
        self._nodes.put(node, node)
        self._bounds.put(node, *bounds_of(factor))
        self._axis = None

    def drop(self, node: int) -> None:
        self._nodes.drop(node)
        self._bounds.drop(node)
        self._axis = None

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        if self._axis is None:
            bounds = self._bounds.table
            self._axis = IntervalAxis.of(
                self._operand, self._nodes.table[:, 0].copy(), bounds[:, 0], bounds[:, 1]
            )
        return self._axis.bind(batch, needed)

    def _check(self) -> None:
        self._nodes._check()
        self._bounds._check()


class GrowingPoints:
    """Factors that hold if one operand has a single key."""

    def __init__(self, operand: Expression) -> None:
        self._operand = operand
        # Rows of a node and its point.
        self._points = DenseTable(2)
        self._axis: PointAxis | None = None

    def __len__(self) -> int:
        return len(self._points)

    def put(self, node: int, factor: Interval) -> None:
        self._points.put(node, node, point_of(factor))
        self._axis = None

    def drop(self, node: int) -> None:
        self._points.drop(node)
        self._axis = None

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        if self._axis is None:
            ascending = self._points.table[np.argsort(self._points.table[:, 1])]
            self._axis = PointAxis(self._operand, ascending[:, 0], ascending[:, 1])
        return self._axis.bind(batch, needed)

    def _check(self) -> None:
        self._points._check()


class GrowingMembers:
    """Factors that hold if one operand equals a text."""

    def __init__(self, operand: Expression) -> None:
        self._operand = operand
        self._texts: dict[int, str] = {}
        self._axis: MemberAxis | None = None

    def __len__(self) -> int:
        return len(self._texts)

    def put(self, node: int, factor: Member) -> None:
        self._texts[node] = factor.value
        self._axis = None

    def drop(self, node: int) -> None:
        del self._texts[node]
        self._axis = None

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        if self._axis is None:
            nodes = np.fromiter(self._texts, np.int64, len(self._texts))
            texts = pa.array(self._texts.values(), pa.string())
            self._axis = MemberAxis(self._operand, nodes, texts)
        return self._axis.bind(batch, needed)

    def _check(self) -> None:
        assert self._axis is None or len(self._axis.nodes) == len(self._texts)


class GrowingLikes:
    """Factors that hold if one operand matches a pattern, or does not."""

    def __init__(self, operand: Expression) -> None:
        self._operand = operand
        # The pattern of each node, and whether texts have to match it.
        self._patterns: dict[int, tuple[str, bool]] = {}
        self._axis: LikeAxis | None = None

    def __len__(self) -> int:
        return len(self._patterns)

    def put(self, node: int, factor: Condition) -> None:
        like = like_of(factor)
        assert like is not None
        self._patterns[node] = like[1], factor.value
        self._axis = None

    def drop(self, node: int) -> None:
        del self._patterns[node]
        self._axis = None

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        if self._axis is None:
            nodes = np.fromiter(self._patterns, np.int64, len(self._patterns))
            coded = pa.array([text for text, _ in self._patterns.values()], pa.string())
            coded = coded.dictionary_encode()
            is_match = np.array([value for _, value in self._patterns.values()], np.bool_)
            places = coded.indices.to_numpy().astype(np.int64)
            self._axis = LikeAxis(
                self._operand, nodes, Patterns.of(coded.dictionary), places, is_match
            )
        return self._axis.bind(batch, needed)

    def _check(self) -> None:
        assert self._axis is None or len(self._axis.nodes) == len(self._patterns)


GrowingAxis = GrowingIntervals | GrowingPoints | GrowingMembers | GrowingLikes
