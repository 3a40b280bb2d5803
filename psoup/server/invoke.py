"""An answer: window → rows → matches → groups or rows → outputs in order.

`plan` looks at the follower on the event loop and takes what it needs, all of one horizon;
`answer` computes from that alone, in any thread. So an answer is of exactly one position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import Part, Picked, gather, in_order
from datastem.codec import StemColumns, columns_read, columns_shown
from datastem.schema import StreamSchema
from datastem.stem import StemView, SystemColumn
from psoup.server.choosing import Choice, Horizon, choose
from psoup.server.current import choose_current, parts_of
from psoup.server.folding import Fold
from psoup.server.keyed import KeyedView
from psoup.server.matcher import Matcher
from psoup.server.summaries import Summaries
from psoup.server.view import EpochView
from psoup.store import START, Position
from querystem.aggregate import Partial, finish, merge, partial
from querystem.expressions import Expression
from querystem.pace import spending
from querystem.query import Grouping, Query
from querystem.shape import shape
from results.region import Region
from results.window import TimeWindow, Window

# Rows whose mark is at most this.
Limit = tuple[SystemColumn, int]

# So many rows of a part are sent from where they are, not put together with others first.
_MANY_ROWS = 4096
# Units (`querystem.pace`) of a value that is copied.
_VALUE_UNITS = 10


@dataclass(frozen=True, slots=True)
class Triggers:
    """The rows of a stream that refresh an answer, as of the same moment as its plan.

    Those with a ts below `oldest` are not retained. With `until` the rows known today count whose
    instant is no later; without, those known within the limits of the plan.
    """

    where: Expression
    stream_id: int
    predicate_id: int
    stem: StemView
    oldest: int | None
    until: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What one answer is made of. `now` None: NOW does not exist yet, so no row is in it.

    `window` may be another than the query's. Rows with a ts below `oldest` are not retained, or
    where the stream is `keyed` those with an end below it; that counts from `current`, NOW of the
    stream whatever instant is asked about. Only rows within all `limits` are known. `triggers` are
    rows that have yet to say as of when; `refreshed_at` is the refresh point the plan is of.
    `losses` says which rows are missing because they are lost.
    """

    query: Query
    window: Window
    schema: StreamSchema
    stream_id: int
    predicate_id: int
    stem: StemView
    keyed: KeyedView | None
    view: EpochView
    position: Position
    now: int | None
    oldest: int | None
    limits: tuple[Limit, ...]
    notes: tuple[str, ...]
    current: int | None = None
    triggers: Triggers | None = None
    refreshed_at: int | None = None
    losses: tuple[str, ...] = ()


NO_ROWS = Choice(Region(None, (0, 0), 0, 0))


@dataclass(frozen=True, slots=True)
class Answer:
    """`batches`, one or more, have the query's outputs, in order."""

    batches: Sequence[pa.RecordBatch]
    position: Position
    computed_rows: int

    @property
    def row_count(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


def retained(
    window: Window, schema: StreamSchema, now: int | None, current: int | None
) -> tuple[int | None, tuple[str, ...]]:
    """The least ts that is retained at `current`, whatever instant is asked about; and notes.

    Of a keyed stream the rows are whose end is no less.
    """
    if now is None or current is None:
        return None, ("the stream has no rows yet, so it has no NOW",)
    if schema.retain is None:
        return None, ()
    oldest = max(now, current) - schema.retain + 1
    if schema.key:
        present = window.present(now) if isinstance(window, TimeWindow) else now
        past = "the instant lies before the retention; what is left of it is shown"
        return oldest, (past,) if present < oldest - 1 else ()
    begin = window.at(now)[0] if isinstance(window, TimeWindow) else None
    if begin is not None and begin < oldest:
        return oldest, ("the window began before the retention; what is left is shown",)
    return oldest, ()


def answer(plan: Plan, matcher: Matcher, summaries: Summaries) -> Answer:
    """Raises FileNotFoundError where the engine has removed a file the plan names."""
    choice, position = window_rows(plan, summaries)
    if plan.query.grouping is None:
        selection = Selection(plan, matcher, choice)
        batches = selection.show(selection.picked())
    else:
        batches = [shape(plan.query, matching(plan, matcher, choice, summaries))]
    return Answer(batches, position, matcher.work.rows)


def window_rows(plan: Plan, summaries: Summaries) -> tuple[Choice, Position]:
    """The rows of the window, and the position they are of."""
    high, position = known(plan)
    if plan.now is None:
        return NO_ROWS, position
    return rows_at(plan, Horizon(plan.now, plan.oldest, high), summaries), position


def rows_at(plan: Plan, horizon: Horizon, summaries: Summaries) -> Choice:
    """The rows of the window as of another horizon than the plan's."""
    if plan.keyed is not None:
        return choose_current(plan.window, plan.keyed, horizon)
    return choose(plan.window, plan.stem, horizon, summaries, plan.stream_id)


def matching(plan: Plan, matcher: Matcher, choice: Choice, summaries: Summaries) -> pa.RecordBatch:
    """What `shape` takes: those of the rows that match, or their groups."""
    selection = Selection(plan, matcher, choice)
    if plan.query.grouping is None:
        return selection.rows()
    return finish(plan.query.grouping, selection.groups(plan.query.grouping, summaries))


def known(plan: Plan) -> tuple[int, Position]:
    """The next row id, and the position, the plan is of."""
    if not plan.limits:
        return plan.stem.high, plan.position
    high, position = min(
        (plan.stem.high_at(mark, most) for mark, most in plan.limits), key=lambda found: found[0]
    )
    return high, START if position is None else Position.unpack(position)


@dataclass(frozen=True)
class Selection:
    """The chosen rows that match, with the columns the query reads."""

    plan: Plan
    matcher: Matcher
    choice: Choice

    def rows(self) -> pa.RecordBatch:
        return self.gather(self.picked())

    def picked(self) -> Picked:
        """Where the rows stand."""
        return [(part, self.places(part)) for part in self.parts()]

    def show(self, picked: Picked) -> Sequence[pa.RecordBatch]:
        """The answer of a query without groups: these rows, ordered and projected."""
        query, schema = self.plan.query, self.plan.schema
        if query.shown is None or not in_order(picked):
            return [shape(query, self.gather(picked))]
        columns = columns_shown(schema, query.shown)
        many = sum(len(places) for _, places in picked) > _MANY_ROWS * len(picked) > 0
        groups = [[one] for one in picked] if many else [picked]
        return [_gather(group, columns) for group in groups]

    def groups(self, grouping: Grouping, summaries: Summaries) -> Partial:
        def of(part: Part, among: Int64s | None = None) -> Partial:
            return partial(grouping, self.gather([(part, self.places(part, among))]))

        if self.choice.ids is not None:
            found = [of(part) for part in self.parts()]
        else:
            subject = (self.plan.predicate_id, self.plan.query.grouping_key)
            region = self.choice.region
            found = Fold(summaries, subject, self.plan.stem, region, of, merge).values()
        return merge(found or [partial(grouping, self.gather([]))])

    def parts(self) -> Iterator[Part]:
        """Those that may hold any of the rows, by ascending id."""
        region = self.choice.region
        if region.empty:
            return
        if self.choice.ids is not None:
            yield from parts_of(self.plan.stem, self.choice.ids, region.hi)
            return
        yield from self.plan.stem.probe(region.begin, region.end, region.hi, region.lo)

    def places(self, part: Part, among: Int64s | None = None) -> Int64s:
        """Where in the part the rows stand; of those at `among`, ascending, if it is given."""
        lo, hi, inside = self._span(part, among)
        places = self.choice.places(part, self.matcher.match(part, lo, hi), inside)
        if among is None or len(among) == len(part.ids):
            return places
        return np.intersect1d(places, among, assume_unique=True)

    def remembered(self, part: Part) -> Int64s | None:
        """The same where their matches are known without a look at files or rows."""
        lo, hi, inside = self._span(part)
        ids = self.matcher.remembered(part, lo, hi)
        return None if ids is None else self.choice.places(part, ids, inside)

    def _span(self, part: Part, among: Int64s | None = None) -> tuple[int, int, bool]:
        """Row ids outside of which no row of the part is chosen, and whether all others are."""
        region = self.choice.region
        lo, hi = part.span(region.begin, region.end)
        if among is not None:
            lo, hi = max(lo, int(part.ids[among[0]])), min(hi, int(part.ids[among[-1]]) + 1)
        first, stop = self.choice.span(part)
        lo, hi = max(lo, region.lo, first), min(hi, region.hi, stop)
        return lo, max(lo, hi), part.in_order and region.instants_only

    def gather(self, picked: Picked) -> pa.RecordBatch:
        """Rows as a query sees them."""
        columns = columns_read(self.plan.schema, self.plan.query.reads)
        return _gather(picked, columns)


def _gather(picked: Picked, columns: StemColumns) -> pa.RecordBatch:
    rows = sum(len(places) for _, places in picked)
    spending()(rows * len(columns.names) * _VALUE_UNITS)
    return gather(picked, columns.names, columns.schema)
