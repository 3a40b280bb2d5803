"""A plan: what one answer is made of, all of one moment.

A plan is made where nothing moves in between (`planning`), and holds all that is needed from there
on, so that any thread can compute the answer, of exactly one position.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol

from datastem.schema import StreamSchema
from datastem.stem import StemView, SystemColumn
from psoup.answers.planning.policies import FilledCondition, Permission, RowPolicy
from psoup.answers.planning.present import Reached
from psoup.answers.refresh.crossings import Crossing
from psoup.answers.replicas.epoch_files import EpochView
from psoup.answers.replicas.keyed_history import KeyedView
from psoup.store import START, CompositeMark, Position
from querystem.expressions import Expression
from querystem.query import Leg, Query
from querystem.refresh import RefreshedPart
from results.window import TimeWindow, Window

# Rows whose mark is at most this are known.
Limit = tuple[SystemColumn, int]

_NO_NOW = "the stream has no rows yet, so it has no NOW"
_INSTANT_PAST = "the instant lies before the retention; what is left of it is shown"
_WINDOW_PAST = "the window began before the retention; what is left is shown"


class RowsKnown(Enum):
    """The rows an answer is made of: those there are, at the streams' own NOW; or as of an instant,
    those that were known then, or those known today."""

    PRESENT = auto()
    THEN = auto()
    TODAY = auto()


@dataclass(frozen=True, slots=True)
class Triggers:
    """The rows of a stream that refresh an answer, as of the same moment as its plan: those that
    match and that the `policy` shows. Rows with a ts below `oldest` are not retained."""

    where: Expression
    stream_id: int
    predicate_id: int
    stem: StemView
    oldest: int | None
    policy: RowPolicy = None


@dataclass(frozen=True, slots=True)
class UnsettledPart:
    """A part of a query whose last refresh point is yet to be found: among the rows `triggers`, or
    by the events that took streams to the `instant` of the point, once that is known."""

    part: RefreshedPart
    triggers: tuple[Triggers, ...]
    instant: int | None = None


@dataclass(frozen=True, slots=True)
class SettledPart:
    """A part of a query and its last refresh point, named by its instant; None before there is one.
    `now` is NOW then."""

    part: RefreshedPart
    instant: int | None
    now: int | None


class Neighbours(Protocol):
    """The predicates of a stream among which one may be that another predicate implies."""

    def implied(self, predicate: int, where: Expression) -> Sequence[tuple[int, Expression]]:
        """A few live predicates that `where`, which has the id `predicate`, implies."""

    def note(self, predicate: int, implied: int, rows: int, looked_at: int) -> None:
        """Notes that of some rows only those were looked at that the implied predicate matches."""


@dataclass(frozen=True, slots=True)
class LegPlan:
    """A leg of a query at one moment of its stream.

    `now` is the NOW its window is applied at; None where there is none yet, so that the leg has no
    rows. Rows with a ts below `oldest` are not retained, or where the stream is `keyed` rows with
    an end below it; the retention counts from `current`, the stream's NOW whatever instant is asked
    about. Only rows within all `limits` are known. `neighbours` are there where the engine has yet
    to match the predicate. Only rows that the `policy` shows are the leg's: which rows are current
    is told from all, and ROWS n counts what is left.
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
    def subject(self) -> Hashable:
        """The name of the rows that match and are shown, for whatever is remembered of them."""
        if self.policy is None:
            return self.predicate_id
        return self.predicate_id, *sorted(one.predicate_id for one in self.policy)

    @property
    def kept_from(self) -> int | None:
        """The least ts whose rows the stream surely has; None: of any. Older ones may be gone, so
        that nothing may depend on them."""
        return oldest_retained(self.schema, self.current)

    def released(self) -> LegPlan:
        """Return the leg as it can be kept for long: it keeps no rows in memory."""
        return replace(self, stem=self.stem.released(), keyed=None)

    def known(self) -> tuple[int, Position | None]:
        """The next row id that is known; and where limits decide that, the position of the last
        row before it."""
        if not self.limits:
            return self.stem.high, None
        found = [self.stem.high_at(mark, most) for mark, most in self.limits]
        high, position = min(found, key=lambda one: one[0])
        return high, START if position is None else Position.unpack(position)


@dataclass(frozen=True, slots=True)
class CompositePlan:
    """The combinations that the engine has found ahead for a query's FROM, at one moment.

    Leg k of the composite is the query's leg `places[k]`. `where` is the predicate over them, which
    has an id as other predicates have; `mark` says which are stored in `stem`. Whoever finds a
    damaged file there calls `leave_out`, so that later plans do without them.
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
    """A plan holds all that one answer is made of: the legs of its query, in their order.

    `now` is the NOW of the answer, None where there is none yet; `asked` is what it was before
    refresh points were looked for. Rows or events have yet to say as of when the parts `unsettled`
    are, those further out first; `crossings` are the streams, by id, whose events may. `points` are
    those of the parts that are settled. `refreshed_at` is the refresh point the plan is of, and
    where only parts have points the last of these, `full_at` the last that was one of all; `nows`
    are those of the queries with points inside the query. `losses` says which rows are missing
    because they are lost. `reached` tells how far its streams have come, whatever instant the
    answer is of. `composite` has combinations that need not be joined; `composing` says that the
    engine is about to make some. `permission` names the policies that bind, and the streams that
    are read through views only. `streams` has the ids of the legs' streams and of those whose rows
    refresh the answer; the caller may read those that are `unread` through views only. Numbers
    made from values are then masked with `mask`.
    """

    query: Query
    legs: tuple[LegPlan, ...]
    epoch: EpochView
    position: Position
    now: int | None
    notes: tuple[str, ...]
    reached: Reached = Reached()
    asked: int | None = None
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
        """The leg of a plan that has one."""
        (leg,) = self.legs
        return leg

    @property
    def bound(self) -> bool:
        """Tells whether whoever asks may see only some rows of the streams, by a policy or through
        a view: of the rows that were looked at, some may be hidden, so they are not counted for
        anybody to see."""
        return bool(self.permission)

    def hides(self, stream_id: int) -> bool:
        """Tells whether rows of a stream may be hidden from whoever asks."""
        return any(stream_id == one for one, _, _ in self.permission)

    @property
    def conditions(self) -> Iterator[FilledCondition]:
        """The conditions of the policies that bind, but for those that are the same for all rows;
        those of rows that refresh are known until the plan is settled."""
        triggers = (one.policy for part in self.unsettled for one in part.triggers)
        for policy in (*(leg.policy for leg in self.legs), *triggers):
            yield from (one for one in policy or () if not one.is_constant)

    def released(self) -> Plan:
        """Return the plan of an answer that is made, as it can be kept while the answer is sent:
        it keeps no rows in memory, and nothing can be computed with it."""
        legs = tuple(leg.released() for leg in self.legs)
        return replace(self, legs=legs, composite=None, unsettled=(), crossings={})

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
