"""Windows over streams whose rows are valid from one instant until before another.

A row is in a window if one of its instants is, each taken as a ts: so a row that is valid for one
microsecond is in the windows that would hold a row with that ts. Such a window is a condition that
compares both ends of the validity with NOW, an interval of visibility (`querystem.visibility`).
Unlike other windows it may end after NOW.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from datastem.instants import MAX_INSTANT, MIN_INSTANT, SINCE_EVER, from_micros
from datastem.types import BOOLEAN, DURATION, TIMESTAMP
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Now, Op, uses_now
from results.window import UNBOUNDED, Bound, MovingEnd, TimeBound, TimeWindow

# The window of a reference without one: the rows that are valid at NOW.
PRESENT = TimeWindow(Bound(0, True))

_FOR_EVER = Literal(from_micros(MAX_INSTANT), TIMESTAMP)


@dataclass(frozen=True, slots=True)
class ValidWindow:
    """A `window` over the validities of rows, which are from the column `starts` until before
    `ends`. The stream retains a row until `retain` after its end; None is for ever."""

    starts: str
    ends: str
    window: TimeWindow
    retain: int | None = None

    @property
    def conditions(self) -> Iterator[Expression]:
        """The conditions that a row of the window satisfies, all of which must hold."""
        begin, end, slide = self.window.begin, self.window.end, self.window.slide
        if begin is not None and (slide is not None or self.window.by_calendar):
            starts = ColumnRef(self.starts, TIMESTAMP)
            yield Call(Op.LT, (starts, _moving(end or Bound(1, True), slide)), BOOLEAN)
            yield self._ends_after(_moving(begin, slide))
        else:
            yield from self._between(begin, end)
        # A window that follows NOW no further back than that holds only rows that are retained.
        reach = None if begin is None or not begin.relative else (slide or 1) - 1 - begin.farthest
        if self.retain is not None and (reach is None or reach > self.retain):
            yield self._ends_after(_plus(Now(), -self.retain))

    def _between(self, begin: TimeBound | None, end: TimeBound | None) -> Iterator[Expression]:
        """Yield the conditions of a window between instants, or distances from NOW."""
        first = None if begin is None else _instant(begin, 0)
        # UNBOUNDED also holds rows that begin after NOW.
        is_open = self.window == UNBOUNDED
        last = None if is_open else _instant(end or Bound(1, True), -1)
        if last is not None:
            yield Call(Op.LE, (ColumnRef(self.starts, TIMESTAMP), last), BOOLEAN)
        if first is not None:
            yield self._ends_after(first)
        if first is not None and last is not None and uses_now(first) is not uses_now(last):
            # The window is empty as long as it would end before it begins.
            op, lhs, rhs = (Op.GE, last, first) if uses_now(first) else (Op.LE, first, last)
            yield Call(op, (lhs, rhs), BOOLEAN)

    def retained(self, now: int) -> Expression:
        """Return the condition that a row is retained at `now`, which does not depend on NOW."""
        limit = SINCE_EVER if self.retain is None else now - self.retain
        if limit < MIN_INSTANT:
            return TRUE
        return self._ends_after(Literal(from_micros(limit), TIMESTAMP))

    def _ends_after(self, instant: Expression) -> Expression:
        return Call(Op.GT, (end_of(self.ends), instant), BOOLEAN)


def end_of(ends: str) -> Expression:
    """Return the end of validities, which is never if the column has none."""
    return Call(Op.COALESCE, (ColumnRef(ends, TIMESTAMP), _FOR_EVER), TIMESTAMP)


def _moving(bound: TimeBound, slide: int | None) -> Expression:
    """Return the end of a window that moves in steps."""
    return Now(end=MovingEnd(bound, slide))


def _instant(bound: TimeBound, more: int) -> Expression | None:
    """Return the instant `more` microseconds after an end of a window; None if no row has an
    instant beyond it."""
    assert isinstance(bound, Bound), "calendar windows move in steps"
    if bound.relative:
        return _plus(Now(), bound.offset + more)
    micros = bound.offset + more
    if not MIN_INSTANT <= micros <= MAX_INSTANT:
        return None
    return Literal(from_micros(micros), TIMESTAMP)


def _plus(instant: Expression, micros: int) -> Expression:
    if not micros:
        return instant
    op = Op.ADD if micros > 0 else Op.SUB
    return Call(op, (instant, Literal(abs(micros), DURATION)), TIMESTAMP)
