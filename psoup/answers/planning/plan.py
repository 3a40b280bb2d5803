"""A plan: all that one answer is computed from, as of one moment.

A plan is made while nothing changes (`planner`). It holds all that is needed from there on, so that
any thread can compute the answer, of exactly one position.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol

from datastem.instants import format_instant
from datastem.schema import StreamSchema
from datastem.stem_view import StemView, SystemColumn
from datastem.types import BOOLEAN
from psoup.answers.planning.policies import (
    FilledCondition,
    Permission,
    RowPolicy,
    moves,
    policy_at,
)
from psoup.answers.planning.present import Reached
from psoup.answers.refresh.crossings import Crossing
from psoup.answers.replicas.epoch_files import EpochView
from psoup.answers.replicas.keyed_history import KeyedView
from psoup.store import START, CompositeMark, Position
from querystem.expressions import TRUE, Call, Expression, Op, factors_of
from querystem.legs import Leg
from querystem.query import Query
from querystem.refresh import RefreshedPart
from querystem.validity import ValidWindow
from querystem.visibility import Visibility, visibility_of
from results.window import TimeWindow, Window

# Rows are known if their value in a system column is at most this.
Limit = tuple[SystemColumn, int]

_NO_NOW = "the stream has no rows yet, so it has no NOW"
_INSTANT_PAST = "the instant lies before the retention; what is left of it is shown"
_WHOLE_FROM = "whole from {} on: RETAIN was shorter before, and older rows are gone"
_WINDOW_PAST = "the window began before the retention; what is left is shown"


class RowsKnown(Enum):
    """The rows that an answer is computed from: those that exist, at the streams' own NOW; or as of
    an instant, those that were known then, or those known today."""

    PRESENT = auto()
    THEN = auto()
    TODAY = auto()


@dataclass(frozen=True, slots=True)
class Triggers:
    """The rows of a stream that refresh an answer, as of the moment of its plan: those that match
    and that the `policy` permits. Rows with a ts below `oldest` are not retained."""

    where: Expression
    stream_id: int
    predicate_id: int
    stem: StemView
    oldest: int | None
    policy: RowPolicy = None


@dataclass(frozen=True, slots=True)
class UnsettledPart:
    """A part of a query whose last refresh point is yet to be found: among the rows `triggers`, or
    by the events that took streams to the point's `instant`, once that is known."""

    part: RefreshedPart
    triggers: tuple[Triggers, ...]
    instant: int | None = None


@dataclass(frozen=True, slots=True)
class SettledPart:
    """A part of a query and the instant of its last refresh point, None before there is one. `now`
    is the NOW of that point."""

    part: RefreshedPart
    instant: int | None
    now: int | None


class Neighbours(Protocol):
    """The predicates of a stream, of which a new predicate may imply some."""

    def implied(self, predicate: int, where: Expression) -> Sequence[tuple[int, Expression]]:
        """Return a few live predicates that `where`, which has the id `predicate`, implies."""

    def note(self, predicate: int, implied: int, rows: int, looked_at: int) -> None:
        """Record that of `rows` rows only `looked_at` were computed, those that the implied
        predicate matches."""


@dataclass(frozen=True, slots=True)
class LegPlan:
    """A leg of a query at one moment of its stream.

    `now` is the NOW that its window is applied at, None before there is one; the leg then has no
    rows. Rows with a ts below `oldest` are not retained; in a `keyed` stream, rows with an end
    below it. The retention counts from `current`, the NOW of the stream, also if the answer is as
    of an earlier instant. Only rows within all `limits` are known. `neighbours` is set if the
    engine has yet to match the predicate. Only rows that the `policy` permits belong to the leg:
    all rows decide which are current, and ROWS n counts permitted rows.
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
    neighbours: Neighbours | None = None
    policy: RowPolicy = None

    @property
    def window(self) -> Window:
        return self.leg.window

    @property
    def present(self) -> Expression:
        """The condition on NOW as answers apply it. What the stream retains by the validity of rows
        counts from its own NOW, also if the answer is as of an earlier instant."""
        leg, current = self.leg, self.current
        if leg.valid is None or current is None or self.now is None or current <= self.now:
            return leg.when
        both = *factors_of(leg.when), *factors_of(leg.valid.retained(current))
        return Call(Op.AND, both, BOOLEAN) if len(both) > 1 else both[0] if both else TRUE

    @property
    def visibility(self) -> Visibility | None:
        """The condition on NOW as an interval of visibility; None without one, or if it is more
        than that."""
        return None if self.leg.when == TRUE else visibility_of(self.leg.when)

    @property
    def is_timeless(self) -> bool:
        """Whether the same rows match and are permitted at every NOW."""
        return self.leg.when == TRUE and not moves(self.policy)

    def permitted_at(self, now: int | None) -> LegPlan:
        """Return the leg with the rows that its policy permits at another NOW of its stream."""
        return replace(self, policy=policy_at(self.policy, now)) if moves(self.policy) else self

    @property
    def subject(self) -> Hashable:
        """The cache key of the rows that match and are permitted, at any NOW of the query."""
        erased = (("erased", self.stem.erased_rows),) if self.stem.erased_rows else ()
        if self.policy is None:
            return (self.predicate_id, *erased) if erased else self.predicate_id
        conditions = sorted(condition.subject for condition in self.policy)
        return self.predicate_id, *erased, *conditions

    @property
    def oldest_kept(self) -> int | None:
        """The least ts whose rows are sure to be stored; None: of any ts. Nothing may depend on
        older rows, since they may be deleted."""
        return oldest_retained(self.schema, self.current)

    def released(self) -> LegPlan:
        """Return the leg as it can be kept for long: it holds no rows in memory."""
        return replace(self, stem=self.stem.released(), keyed=None)

    def limit(self) -> tuple[int, Position | None]:
        """Return the id that all known rows are below; and if `limits` decide that, the position of
        the last row before it."""
        if not self.limits:
            return self.stem.high, None
        highs = [self.stem.high_at(mark, most) for mark, most in self.limits]
        # All limits hold, so the least id decides. Without a row within it the answer is of START.
        high, position = min(highs, key=lambda pair: pair[0])
        return high, START if position is None else Position.unpack(position)


@dataclass(frozen=True, slots=True)
class CompositePlan:
    """The combinations that the engine has joined ahead for a query's FROM, at one moment.

    Leg k of the composite is the query's leg `places[k]`. `where` is the predicate over them, which
    has an id as other predicates have; `mark` says which are stored in `stem`. If a file there is
    damaged, the caller must call `leave_out`, so that later plans do without the composite.
    """

    composite_id: int
    predicate_id: int
    places: tuple[int, ...]
    where: Expression
    mark: CompositeMark
    stem: StemView
    leave_out: Callable[[Exception], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one answer is computed from: the legs of its query, in their order, and:

    - `now`: the NOW of the answer, None before there is one; `requested_now` is what it was before
      refresh points were applied.
    - `unsettled`: the parts whose refresh points are yet to be found, outer ones first, with
      `crossings`, the streams by id whose events may decide. `points` are those already found.
    - `refreshed_at`: the refresh point of the answer; if only parts have points, the last of these.
      `full_at` is the last instant that was a point of all parts. `nows` are those of queries with
      points inside the query.
    - `losses`: notes about rows that are missing because they are lost.
    - `reached`: how far the streams have come, also if the answer is as of an earlier instant.
    - `composite`: combinations that need not be joined; `composing` says that the engine is about
      to make some.
    - `permission`: the policies that bind, and the streams that are read through views only.
    - `streams`: the ids of the legs' streams and of those whose rows refresh the answer. The caller
      may read those that are `unread` through views only; numbers made from values are then masked
      with `mask`.
    """

    query: Query
    legs: tuple[LegPlan, ...]
    epoch: EpochView
    position: Position
    now: int | None
    notes: tuple[str, ...]
    reached: Reached = Reached()
    requested_now: int | None = None
    unsettled: tuple[UnsettledPart, ...] = ()
    crossings: Mapping[int, Crossing] = field(default_factory=dict)
    points: tuple[SettledPart, ...] = ()
    refreshed_at: int | None = None
    full_at: int | None = None
    nows: tuple[int | None, ...] = ()
    knowledge: RowsKnown = RowsKnown.PRESENT
    losses: tuple[str, ...] = ()
    composite: CompositePlan | None = None
    composing: bool = False
    permission: Permission = ()
    streams: frozenset[int] = frozenset()
    unread: frozenset[int] = frozenset()
    mask: bytes = b""

    @property
    def leg(self) -> LegPlan:
        """The leg of a plan that has exactly one."""
        (leg,) = self.legs
        return leg

    @property
    def present_query(self) -> Query:
        """The query with the instant of the answer in the place of NOW in its clauses."""
        return self.query.at_instant(self.now)

    @property
    def bound(self) -> bool:
        """Whether the caller may see only some rows of the streams, by a policy or through a view.
        Some of the computed rows may then be hidden, so their number is not shown."""
        return bool(self.permission)

    def hides(self, stream_id: int) -> bool:
        """Return True if rows of a stream may be hidden from the caller."""
        return any(stream_id == bound_id for bound_id, _, _ in self.permission)

    @property
    def conditions(self) -> Iterator[FilledCondition]:
        """The conditions of the policies that bind, except those that permit nothing. Those of rows
        that refresh are included until the plan is settled."""
        triggers = (trigger.policy for part in self.unsettled for trigger in part.triggers)
        for policy in (*(leg.policy for leg in self.legs), *triggers):
            yield from (condition for condition in policy or () if not condition.permits_nothing)

    def released(self) -> Plan:
        """Return the plan as it can be kept while its finished answer is sent: it holds no rows in
        memory, and nothing can be computed with it."""
        legs = tuple(leg.released() for leg in self.legs)
        return replace(self, legs=legs, composite=None, unsettled=(), crossings={})

    @property
    def answered(self) -> Position:
        """The position that the answer is of."""
        positions = [position for leg in self.legs if (position := leg.limit()[1]) is not None]
        return max(positions, default=self.position)

    def schema_of(self, stream: str) -> StreamSchema:
        """Return the schema of a stream that the query refers to."""
        return next(leg.schema for leg in self.legs if leg.leg.stream == stream)


def oldest_retained(schema: StreamSchema, now: int | None) -> int | None:
    """Return the least ts that is retained at `now`, in a keyed stream the least end; None: all.

    The present RETAIN holds also for an earlier NOW: what an earlier, longer one retained may be
    deleted, and what an earlier, shorter one let go stays gone.
    """
    if schema.retain is None or now is None:
        return None
    # A row is retained as long as NOW is less than its ts plus `retain`.
    oldest = now - schema.retain + 1
    return oldest if schema.whole_from is None else max(oldest, schema.whole_from)


def retention(
    window: Window,
    schema: StreamSchema,
    now: int | None,
    current: int | None,
    valid: ValidWindow | None = None,
) -> tuple[int | None, tuple[str, ...]]:
    """Return the least ts that an answer at `now` may have if the stream's NOW is `current`, None
    for any; and notes about what is missing. With a `valid` window that decides what is retained,
    but for rows that others have replaced."""
    if now is None or current is None:
        return None, (_NO_NOW,)
    if valid is not None and valid.retain is not None:
        begin = valid.window.at(now)[0]
        if begin is not None and begin <= max(now, current) - valid.retain:
            return oldest_retained(schema, max(now, current)), (_WINDOW_PAST,)
    # Rows that the stream does not retain at its own NOW may be deleted, also for an earlier `now`.
    oldest = oldest_retained(schema, max(now, current))
    if oldest is None:
        return None, ()
    # An earlier RETAIN has let go what the present one would retain.
    shortened = (_WHOLE_FROM.format(format_instant(oldest)),) if oldest == schema.whole_from else ()
    if schema.key:
        present = window.present(now) if isinstance(window, TimeWindow) else now
        return oldest, (shortened or (_INSTANT_PAST,)) if present < oldest - 1 else ()
    if not isinstance(window, TimeWindow):
        return oldest, shortened
    begin = window.at(now)[0]
    if begin is None:
        return oldest, shortened
    return oldest, (shortened or (_WINDOW_PAST,)) if begin < oldest else ()
