"""A plan: what one answer is made of, all of one moment; and the refresh point it is as of.

A plan is made where nothing moves in between (`planning`), and holds all that is needed from there
on, so that any thread can compute the answer, of exactly one position.

An answer with REFRESH is as of its last refresh point. Nothing is kept for refresh points: they are
found when somebody asks. A point is a NOW and a limit to the rows known then, given by an instant
(EVERY) or by a row (ON).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import Part
from datastem.instants import FOR_EVER, MIN_INSTANT
from datastem.schema import StreamSchema
from datastem.stem import StemView, SystemColumn
from psoup.answers.epoch_files import EpochView
from psoup.answers.keyed_history import KeyedView
from psoup.answers.matching import Matcher
from psoup.answers.present import Reached
from psoup.store import START, Position
from querystem.expressions import Expression
from querystem.query import Leg, Query
from querystem.refresh import RefreshEvery
from results.window import TimeWindow, Window

# Rows whose mark is at most this are known.
Limit = tuple[SystemColumn, int]

_NO_NOW = "the stream has no rows yet, so it has no NOW"
_INSTANT_PAST = "the instant lies before the retention; what is left of it is shown"
_WINDOW_PAST = "the window began before the retention; what is left is shown"
_NOT_YET = "nothing has refreshed this answer yet: it is the one over no rows"


@dataclass(frozen=True, slots=True)
class Triggers:
    """The rows of a stream that refresh an answer, as of the same moment as its plan.

    Rows with a ts below `oldest` are not retained. With `until`, the rows count that are known
    today and whose instant is no later; without it, the rows known within the limits of the plan.
    """

    where: Expression
    stream_id: int
    predicate_id: int
    stem: StemView
    oldest: int | None
    until: int | None


@dataclass(frozen=True, slots=True)
class LegPlan:
    """A leg of a query at one moment of its stream.

    `now` is the NOW its window is applied at; None where there is none yet, so that the leg has no
    rows. Rows with a ts below `oldest` are not retained, or where the stream is `keyed` rows with
    an end below it; the retention counts from `current`, the stream's NOW whatever instant is asked
    about. Only rows within all `limits` are known.
    """

    leg: Leg
    schema: StreamSchema
    stream_id: int
    predicate_id: int
    stem: StemView
    keyed: KeyedView | None
    now: int | None
    oldest: int | None
    limits: tuple[Limit, ...]
    current: int | None = None

    @property
    def window(self) -> Window:
        return self.leg.window

    def known(self) -> tuple[int, Position | None]:
        """The next row id that is known; and where limits decide that, the position of the last
        row before it."""
        if not self.limits:
            return self.stem.high, None
        found = [self.stem.high_at(mark, most) for mark, most in self.limits]
        high, position = min(found, key=lambda one: one[0])
        return high, START if position is None else Position.unpack(position)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan holds all that one answer is made of: the legs of its query, in their order.

    `now` is the NOW of the answer, None where there is none yet. `triggers` are rows that have yet
    to say as of when the answer is; `refreshed_at` is the refresh point the plan is of. `losses`
    says which rows are missing because they are lost. `reached` tells how far its streams have
    come, whatever instant the answer is of.
    """

    query: Query
    legs: tuple[LegPlan, ...]
    epoch: EpochView
    position: Position
    now: int | None
    notes: tuple[str, ...]
    reached: Reached = Reached()
    triggers: Triggers | None = None
    refreshed_at: int | None = None
    losses: tuple[str, ...] = ()

    @property
    def leg(self) -> LegPlan:
        """The leg of a plan that has one."""
        (leg,) = self.legs
        return leg

    @property
    def known(self) -> Position:
        """The position the answer is of."""
        found = [position for leg in self.legs if (position := leg.known()[1]) is not None]
        return max(found, default=self.position)

    def schema_of(self, stream: str) -> StreamSchema:
        """The schema of a stream that the query refers to."""
        return next(leg.schema for leg in self.legs if leg.leg.stream == stream)


def oldest_retained(schema: StreamSchema, now: int | None) -> int | None:
    """The least ts that is retained at `now`, in a keyed stream the least end; None: all rows."""
    return None if schema.retain is None or now is None else now - schema.retain + 1


def retention(
    window: Window, schema: StreamSchema, now: int | None, current: int | None
) -> tuple[int | None, tuple[str, ...]]:
    """The oldest rows an answer at `now` may show where the stream's NOW is `current`; and
    notes."""
    if now is None or current is None:
        return None, (_NO_NOW,)
    oldest = oldest_retained(schema, max(now, current))
    if oldest is None:
        return None, ()
    if schema.key:
        present = window.present(now) if isinstance(window, TimeWindow) else now
        return oldest, (_INSTANT_PAST,) if present < oldest - 1 else ()
    begin = window.at(now)[0] if isinstance(window, TimeWindow) else None
    return oldest, (_WINDOW_PAST,) if begin is not None and begin < oldest else ()


# ---- refresh points


@dataclass(frozen=True, slots=True)
class Point:
    """A refresh point, named by its `instant`: a multiple of the period, or the time of a row.

    `now` is None where the stream had no NOW then.
    """

    now: int | None
    limits: tuple[Limit, ...]
    instant: int


def point_of(refresh: RefreshEvery, schema: StreamSchema, now: int, today: bool) -> Point | None:
    """The last point of REFRESH EVERY at NOW. With `today`, all rows known now are known then."""
    instant = refresh.point(now)
    if instant < MIN_INSTANT:
        return None
    known: Limit = ("_stamp", instant) if schema.ordered_by is None else ("_before", instant - 1)
    return Point(instant, () if today else (known,), instant)


def point_by_rows(plan: Plan, triggers: Triggers, now: int, matcher: Matcher) -> Point | None:
    """The last point of REFRESH ON: the last row that matches. Reads files where rows are not in
    memory."""
    arrival = plan.leg.schema.ordered_by is None
    if triggers.until is not None and not arrival:
        last = _latest(triggers, triggers.until, matcher)
        return None if last is None else Point(last.ts, (), last.ts)
    last = _newest(triggers, plan.leg.limits, matcher)
    if last is None:
        return None
    known: tuple[Limit, ...] = () if triggers.until is not None else (("_position", last.position),)
    if arrival:
        return Point(last.stamp, known, last.stamp)
    reached = _now_at(plan.leg, last.position, now)
    return Point(None if reached is None else min(now, last.ts, reached), known, last.ts)


def refreshed(plan: Plan, point: Point | None) -> Plan:
    """The plan as of a refresh point; over no rows where there is none yet."""
    leg = plan.leg
    if point is None:
        return replace(plan, legs=(replace(leg, now=None),), now=None, notes=(_NOT_YET,))
    oldest, notes = retention(leg.window, leg.schema, point.now, leg.current)
    limits = (*leg.limits, *point.limits)
    then = replace(leg, now=point.now, oldest=oldest, limits=limits)
    return replace(plan, legs=(then,), now=point.now, notes=notes, refreshed_at=point.instant)


def _now_at(leg: LegPlan, position: int, now: int) -> int | None:
    """NOW of the stream before the first row that came after the position; NOW where none did.

    A heartbeat that comes after the position and before that row counts: it is not kept apart.
    """
    high, _ = leg.stem.high_at("_position", position)
    for mark, most in leg.limits:
        after = leg.stem.first_from(high, mark)
        if after is None or after > most:
            return now
    before = leg.stem.first_from(high, "_before")
    if before is None:
        return now
    return before if before >= MIN_INSTANT else None


@dataclass(frozen=True, slots=True)
class _Row:
    ts: int
    id: int
    position: int
    stamp: int


def _newest(triggers: Triggers, limits: tuple[Limit, ...], matcher: Matcher) -> _Row | None:
    """The matching row with the greatest row id."""
    stem, high = triggers.stem, triggers.stem.high
    instants = [most for mark, most in limits if mark == "_stamp"]
    instants += [] if triggers.until is None else [triggers.until]
    for instant in instants:
        high = min(high, stem.high_at("_stamp", instant)[0])
    for number in reversed(stem.numbers(triggers.oldest, FOR_EVER, high)):
        for part, places in _matching(triggers, matcher, number, high):
            return _row(part, int(places[-1]))
    return None


def _latest(triggers: Triggers, until: int, matcher: Matcher) -> _Row | None:
    """The matching row with the greatest (ts, row_id), of the rows with ts up to `until`."""
    stem, best = triggers.stem, None
    numbers = stem.numbers(triggers.oldest, until + 1, stem.high)
    for number in sorted(numbers, key=stem.latest, reverse=True):
        if best is not None and stem.latest(number) < best.ts:
            break
        for part, places in _matching(triggers, matcher, number, stem.high):
            places = places[part.ts[places] <= until]
            if len(places):
                ts = part.ts[places]
                found = _row(part, int(places[ts == ts.max()][-1]))
                best = found if best is None or (found.ts, found.id) > (best.ts, best.id) else best
    return best


def _matching(
    triggers: Triggers, matcher: Matcher, number: int, high: int
) -> Iterator[tuple[Part, Int64s]]:
    """The parts of a block, last first, with the places in each of the retained rows that match."""
    if matcher.lacks(number, high):
        return
    for part in reversed(triggers.stem.parts(number, high)):
        places = part.find(matcher.match(part, part.first, part.stop))
        if triggers.oldest is not None:
            places = places[part.ts[places] >= triggers.oldest]
        if len(places):
            yield part, places


def _row(part: Part, place: int) -> _Row:
    stamp = part.rows.column("_stamp").view(pa.int64())[place].as_py()
    position = part.rows.column("_position")[place].as_py()
    return _Row(int(part.ts[place]), int(part.ids[place]), position, stamp)
