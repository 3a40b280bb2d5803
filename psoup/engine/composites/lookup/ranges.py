"""The key of inequalities: a value, as an integer in the order of values.

The key need not tell all values apart, because the condition decides about every pair that it
finds. So numbers of different types become doubles: a lesser number never has a greater key, but
for the rounding that a wider range makes up for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.types import Kind
from psoup.engine.composites.lookup.probes import RangeProbes
from querystem.expressions import Call, Expression, Literal, Op
from querystem.join.factors import Comparison
from querystem.join.keys import double_order
from querystem.kernel import values_of
from querystem.kernel.integers import INT64_MAX, INT64_MIN
from querystem.kernel.vector import from_arrow

_ABOVE = frozenset({Op.GT, Op.GE})
_SHIFTED_KINDS = frozenset({Kind.BIGINT, Kind.TIMESTAMP, Kind.DURATION})
# Neighbouring doubles by which the keys of two equal numbers may differ.
_ROUNDING_KEYS = 8


@dataclass(frozen=True, slots=True)
class _Term:
    """A side of a comparison: the value of an expression plus a constant."""

    base: Expression
    offset: int = 0


@dataclass(frozen=True)
class RangeKey:
    """The value of one expression of each leg, of those that the comparisons compare; `left` is of
    the first leg, `right` of the second.

    Rows of a bucket are within one stretch of time as long as the span. So a probe finds all rows
    near enough in at most three buckets, however many rows there are.
    """

    comparisons: tuple[Comparison, ...]
    span: int

    def keys(self, end: int, rows: pa.RecordBatch) -> tuple[Int64s, Mask]:
        """Return the key of each row of the leg at `end`, 0 or 1, and a mask of the rows for which
        the comparisons can be true: no value is NULL."""
        valid = np.ones(rows.num_rows, np.bool_)
        for expression in {term.base for term in self._terms[end]}:
            valid &= values_of(expression, rows).is_valid().to_numpy(zero_copy_only=False)
        return self._numbers(self._bases[end], rows), valid

    def buckets(self, keys: Int64s, ts: Int64s) -> Int64s:
        """Return the bucket of rows with these ts."""
        return ts // max(self.span, 1)

    def probes(
        self, end: int, rows: pa.RecordBatch, firsts: Int64s, lasts: Int64s
    ) -> tuple[RangeProbes, Int64s]:
        """Return the probes of combinations with these rows of the leg at `end`, whose parts have
        ts from `firsts` to `lasts`, and the place of each probe's combination; some combinations
        can have no partner, and no probe."""
        lows = np.full(rows.num_rows, INT64_MIN)
        highs = np.full(rows.num_rows, INT64_MAX)
        slack = 0 if self._is_exact else _ROUNDING_KEYS
        for comparison, own, term in zip(
            self.comparisons, self._terms[end], self._terms[1 - end], strict=True
        ):
            if term.base != self._bases[1 - end]:
                continue
            # `key + term.offset op value + own.offset`, as a bound of the key.
            bound = comparison if end == 1 else comparison.mirrored
            values, shift = self._numbers(own.base, rows), own.offset - term.offset
            if bound.op in _ABOVE:
                lows = np.maximum(lows, _shifted(values, shift - slack))
            else:
                highs = np.minimum(highs, _shifted(values, shift + slack))
        places = np.flatnonzero(self.keys(end, rows)[1])
        # A row is near enough to all parts if its ts is in [last - span, first + span].
        first_buckets = self.buckets(lows, lasts - self.span)
        last_buckets = self.buckets(lows, firsts + self.span)
        arrays = (values[places] for values in (lows, highs, first_buckets, last_buckets))
        return RangeProbes(*arrays), places

    @cached_property
    def _is_exact(self) -> bool:
        """Whether values are compared as the integers they are."""
        pairs = ((comparison.left, comparison.right) for comparison in self.comparisons)
        types = [side.type for pair in pairs for side in pair]
        return (
            all(type_.kind is not Kind.DOUBLE for type_ in types)
            and len({type_.scale for type_ in types}) == 1
        )

    @cached_property
    def _terms(self) -> tuple[tuple[_Term, ...], tuple[_Term, ...]]:
        """The sides of the comparisons, by end."""
        term = _term if self._is_exact else _Term
        return (
            tuple(term(comparison.left) for comparison in self.comparisons),
            tuple(term(comparison.right) for comparison in self.comparisons),
        )

    @cached_property
    def _bases(self) -> tuple[Expression, Expression]:
        """The expression of each end whose value is the key: one with bounds from both sides, if
        there is one."""
        return self._base(0), self._base(1)

    def _base(self, end: int) -> Expression:
        above: dict[Expression, set[bool]] = {}
        for comparison, term in zip(self.comparisons, self._terms[end], strict=True):
            above.setdefault(term.base, set()).add(comparison.op in _ABOVE)
        return next((base for base, sides in above.items() if len(sides) == 2), next(iter(above)))

    def _numbers(self, expression: Expression, rows: pa.RecordBatch) -> Int64s:
        values = from_arrow(values_of(expression, rows), expression.type).values
        if self._is_exact:
            return np.broadcast_to(values.astype(np.int64), rows.num_rows)
        doubles = values.astype(np.float64) / 10.0**expression.type.scale
        return np.broadcast_to(double_order(doubles), rows.num_rows)


def _term(expression: Expression) -> _Term:
    """Return an expression as a value plus a constant: what differs by constants is one value."""
    match expression:
        case Call(Op.ADD, (base, Literal(int() as offset, _)), _) if _is_shifted(expression, base):
            return _Term(base, offset)
        case Call(Op.SUB, (base, Literal(int() as offset, _)), _) if _is_shifted(expression, base):
            return _Term(base, -offset)
    return _Term(expression)


def _is_shifted(expression: Expression, base: Expression) -> bool:
    return expression.type.kind is base.type.kind and base.type.kind in _SHIFTED_KINDS


def _shifted(values: Int64s, shift: int) -> Int64s:
    """Return the values plus a constant, or the end of int64 that it passes."""
    shift = min(max(shift, INT64_MIN), INT64_MAX)
    if shift >= 0:
        return np.minimum(values, INT64_MAX - shift) + shift
    return np.maximum(values, INT64_MIN - shift) + shift
