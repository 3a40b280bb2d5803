"""Intervals of visibility: the instants at which a condition that compares an instant of a row with
NOW is true of the row.

`due < NOW` is true from due + 1 µs on, `due - NOW < INTERVAL '1' HOUR` from an hour before due. So
such a condition is to a row what a window is: an interval `[begin, end)` of NOW that follows from
the row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.instants import FOR_EVER, MAX_INSTANT, MIN_INSTANT, SINCE_EVER
from datastem.types import Kind
from querystem.expressions import (
    Call,
    Expression,
    Literal,
    Now,
    Op,
    columns_of,
    factors_of,
    uses_now,
)
from querystem.kernel import matches, values_of
from results.window import MovingEnd

_MIRROR = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE, Op.EQ: Op.EQ}
# Instants are within 2^58 microseconds of 1970, so that sums with such an offset fit into int64.
_MOST_OFFSET = 1 << 60


@dataclass(frozen=True, slots=True)
class _Comparison:
    """`instant op NOW + offset`. If NOW + offset is an instant itself, it is NULL out of the years
    that an instant may have: `bounded` says so."""

    instant: Expression
    op: Op
    offset: int
    bounded: bool

    def interval(self, rows: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """Return the interval of NOW in which the comparison is true of each row; the instant is
        NULL for none of them."""
        micros = values_of(self.instant, rows).view(pa.int64()).to_numpy() - self.offset
        begin, end = np.full_like(micros, SINCE_EVER), np.full_like(micros, FOR_EVER)
        if self.op in (Op.LT, Op.LE, Op.EQ):
            begin = micros + (self.op is Op.LT)
        if self.op in (Op.GT, Op.GE, Op.EQ):
            end = micros + (self.op is not Op.GT)
        # NOW never comes to the last instant of all.
        end[end > MAX_INSTANT] = FOR_EVER
        if self.bounded:
            np.maximum(begin, MIN_INSTANT - self.offset, out=begin)
            np.minimum(end, MAX_INSTANT - self.offset + 1, out=end)
        return begin, end

    @property
    def begins(self) -> bool:
        """Whether the interval of a row may begin later than the row comes."""
        return self.op in (Op.LT, Op.LE, Op.EQ)

    @property
    def ends(self) -> bool:
        """Whether the interval of a row may have an end."""
        return self.op in (Op.GT, Op.GE, Op.EQ) or (self.bounded and self.offset > 0)


@dataclass(frozen=True, slots=True)
class _BesideEnd:
    """`instant op end`, of an end of a window that follows from NOW; `op` is LT or GT."""

    instant: Expression
    op: Op
    end: MovingEnd

    def interval(self, rows: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """Return the interval of NOW in which the comparison is true of each row."""
        micros = values_of(self.instant, rows).view(pa.int64()).to_numpy()
        if self.op is Op.LT:
            return self.end.past(micros), np.full_like(micros, FOR_EVER)
        # The instant is later until the end is later than the microsecond before it.
        until = self.end.past(micros - 1)
        until[micros >= MAX_INSTANT] = FOR_EVER
        return np.full_like(micros, SINCE_EVER), until

    @property
    def begins(self) -> bool:
        """Whether the interval of a row may begin later than the row comes."""
        return self.op is Op.LT

    @property
    def ends(self) -> bool:
        """Whether the interval of a row may have an end."""
        return self.op is Op.GT


@dataclass(frozen=True, slots=True)
class _Constant:
    """A factor that does not depend on NOW: a row for which it is not true is never visible."""

    factor: Expression

    def interval(self, rows: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """Return the interval of NOW in which the factor is true of each row."""
        is_true = matches(self.factor, rows)
        return np.full(rows.num_rows, SINCE_EVER), np.where(is_true, FOR_EVER, SINCE_EVER)

    @property
    def instant(self) -> Expression:
        """What it is about."""
        return self.factor

    begins = False
    ends = True


@dataclass(frozen=True)
class Visibility:
    """A condition all of whose factors compare an instant of a row with NOW, or do not depend on
    NOW."""

    comparisons: tuple[_Comparison | _BesideEnd | _Constant, ...]

    @property
    def reads(self) -> frozenset[str]:
        """The columns that the instants are made of."""
        return frozenset(name for part in self.comparisons for name in columns_of(part.instant))

    @property
    def begins(self) -> bool:
        """Whether a row may become visible later than it comes."""
        return any(comparison.begins for comparison in self.comparisons)

    @property
    def ends(self) -> bool:
        """Whether a row may stop being visible."""
        return any(comparison.ends for comparison in self.comparisons)

    def interval(self, rows: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """Return the interval `[begin, end)` of NOW in which each row is visible, empty if begin >=
        end; SINCE_EVER and FOR_EVER are no ends. The rows must match the predicate that
        `moments.set_apart` left beside the condition."""
        begin = np.full(rows.num_rows, SINCE_EVER)
        end = np.full(rows.num_rows, FOR_EVER)
        for comparison in self.comparisons:
            first, until = comparison.interval(rows)
            np.maximum(begin, first, out=begin)
            np.minimum(end, until, out=end)
        return begin, end

    def span(self, rows: pa.RecordBatch) -> tuple[int, int]:
        """Return the least begin and the greatest end of the intervals of rows. Rows for which an
        instant is NULL have none."""
        instants = [part.instant for part in self.comparisons if not isinstance(part, _Constant)]
        has_instants = np.ones(rows.num_rows, bool)
        for instant in instants:
            has_instants &= values_of(instant, rows).is_valid().to_numpy(zero_copy_only=False)
        begin, end = self.interval(rows.filter(pa.array(has_instants)))
        return (int(begin.min()), int(end.max())) if len(begin) else (FOR_EVER, SINCE_EVER)

    def remaining(self, rows: pa.RecordBatch, now: int) -> Mask:
        """Return a mask of rows: true for those that are visible at `now` or may be later."""
        return np.asarray(self.interval(rows)[1] > now)


def visibility_of(when: Expression) -> Visibility | None:
    """Return the visibility that a condition is; None if a factor of it is anything else."""
    comparisons = [
        _comparison(factor) if uses_now(factor) else _Constant(factor)
        for factor in factors_of(when)
    ]
    intervals = [comparison for comparison in comparisons if comparison is not None]
    return Visibility(tuple(intervals)) if len(intervals) == len(comparisons) else None


def instants_of(when: Expression) -> Sequence[Expression]:
    """Return the instants of a row that factors of a condition compare with NOW. If one is NULL,
    the condition is never true."""
    comparisons = map(_comparison, factors_of(when))
    return [comparison.instant for comparison in comparisons if comparison is not None]


def _comparison(factor: Expression) -> _Comparison | _BesideEnd | None:
    """Return a factor that compares an instant with NOW; None for any other."""
    match factor:
        case Call(Op.LT | Op.GT, (instant, Now(_, MovingEnd() as end)), _):
            return _BesideEnd(instant, factor.op, end)
    if not isinstance(factor, Call) or factor.op not in _MIRROR:
        return None
    lhs, rhs = factor.args
    # The normal form has constants on the right, and other operands in any order.
    if uses_now(lhs) and not isinstance(rhs, Literal):
        lhs, rhs, op = rhs, lhs, _MIRROR[factor.op]
    else:
        op = factor.op
    if lhs.type.kind is Kind.DURATION:
        return _of_distance(lhs, op, rhs)
    offset = _offset(rhs)
    if offset is None or uses_now(lhs) or abs(offset) > _MOST_OFFSET:
        return None
    return _Comparison(lhs, op, offset, isinstance(rhs, Call))


def _of_distance(distance: Expression, op: Op, constant: Expression) -> _Comparison | None:
    """Return the comparison of the distance between an instant and NOW with a constant."""
    if not isinstance(constant, Literal) or not isinstance(constant.value, int):
        return None
    if not isinstance(distance, Call) or distance.op is not Op.SUB:
        return None
    first, second = distance.args
    offset = constant.value
    if isinstance(first, Now):
        first, second, op, offset = second, first, _MIRROR[op], -offset
    if not isinstance(second, Now) or uses_now(first) or not any(columns_of(first)):
        return None
    return _Comparison(first, op, offset, bounded=False) if abs(offset) <= _MOST_OFFSET else None


def _offset(expression: Expression) -> int | None:
    """Return how far an expression is from NOW, in microseconds; None if it is anything but NOW
    plus or minus a constant."""
    match expression:
        case Now():
            return 0
        case Call(Op.ADD | Op.SUB as op, (Now(), Literal(int() as micros, _)), _):
            return micros if op is Op.ADD else -micros
    return None
