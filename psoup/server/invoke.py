"""An answer: window → rows → matches → groups or rows → outputs in order.

`plan` looks at the follower on the event loop and takes what it needs, all of one horizon;
`answer` computes from that alone, in any thread. So an answer is of exactly one position.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from datastem.blocks import Int64s, Part
from datastem.codec import query_view, stem_schema
from datastem.schema import StreamSchema
from datastem.stem import StemView
from psoup.server.choosing import Choice, Horizon, choose
from psoup.server.folding import Fold
from psoup.server.matcher import Matcher
from psoup.server.summaries import Summaries
from psoup.server.view import EpochView
from psoup.store import START, Position
from querystem.aggregate import Partial, finish, merge, partial
from querystem.expressions import Expression, columns_of
from querystem.query import Grouping, Query
from querystem.shape import shape
from results.region import Region
from results.window import Window


@dataclass(frozen=True, slots=True)
class Plan:
    """What one answer is made of. `now` None: NOW does not exist yet, so no row is in it.

    `window` may be another than the query's. Rows with a ts below `oldest` are not retained.
    `known_at` cuts the rows to those accepted by that instant.
    """

    query: Query
    window: Window
    schema: StreamSchema
    stream_id: int
    predicate_id: int
    stem: StemView
    view: EpochView
    position: Position
    now: int | None
    oldest: int | None
    known_at: int | None
    notes: tuple[str, ...]


NO_ROWS = Choice(Region(None, (0, 0), 0, 0))


@dataclass(frozen=True, slots=True)
class Answer:
    """`rows` has the query's outputs, in order."""

    rows: pa.RecordBatch
    position: Position
    computed_rows: int


@lru_cache(maxsize=4096)
def read_query(form: str) -> Query:
    """A registration's query. Parsing one costs more than answering it."""
    return Query.from_json(json.loads(form))


def answer(plan: Plan, matcher: Matcher, summaries: Summaries) -> Answer:
    """Raises FileNotFoundError where the engine has removed a file the plan names."""
    choice, position = window_rows(plan, summaries)
    rows = shape(plan.query, matching(plan, matcher, choice, summaries))
    return Answer(rows, position, matcher.work.rows)


def window_rows(plan: Plan, summaries: Summaries) -> tuple[Choice, Position]:
    """The rows of the window, and the position they are of."""
    high, position = known(plan)
    if plan.now is None:
        return NO_ROWS, position
    return rows_at(plan, Horizon(plan.now, plan.oldest, high), summaries), position


def rows_at(plan: Plan, horizon: Horizon, summaries: Summaries) -> Choice:
    """The rows of the window as of another horizon than the plan's."""
    return choose(plan.window, plan.stem, horizon, summaries, plan.stream_id)


def matching(plan: Plan, matcher: Matcher, choice: Choice, summaries: Summaries) -> pa.RecordBatch:
    """What `shape` takes: those of the rows that match, or their groups."""
    selection = Selection(plan, matcher, choice)
    if plan.query.grouping is None:
        return query_view(selection.rows())
    return finish(plan.query.grouping, selection.groups(plan.query.grouping, summaries))


def known(plan: Plan) -> tuple[int, Position]:
    """The next row id, and the position, the plan is of."""
    if plan.known_at is None:
        return plan.stem.high, plan.position
    high, position = plan.stem.high_at(plan.known_at)
    return high, START if position is None else Position.unpack(position)


@dataclass(frozen=True)
class Selection:
    """The chosen rows that match, with the columns the query reads."""

    plan: Plan
    matcher: Matcher
    choice: Choice

    def rows(self) -> pa.RecordBatch:
        found = [
            self.taken(part, places) for part in self.parts() if len(places := self.places(part))
        ]
        return pa.concat_batches(found or [self._nothing(self._output_columns)])

    def taken(self, part: Part, places: Int64s) -> pa.RecordBatch:
        """Rows of a part with the columns that outputs and ORDER BY read."""
        return part.rows.select(self._output_columns).take(pa.array(places))

    def groups(self, grouping: Grouping, summaries: Summaries) -> Partial:
        columns = self._columns([*grouping.keys, *_arguments(grouping)])

        def of(part: Part, among: Int64s | None = None) -> Partial:
            rows = part.rows.select(columns).take(pa.array(self.places(part, among)))
            return partial(grouping, query_view(rows))

        if self.choice.ids is not None:
            found = [of(part) for part in self.parts()]
        else:
            subject = (self.plan.predicate_id, self.plan.query.grouping_key)
            region = self.choice.region
            found = Fold(summaries, subject, self.plan.stem, region, of, merge).values()
        return merge(found or [partial(grouping, query_view(self._nothing(columns)))])

    def parts(self) -> Iterator[Part]:
        """Those that may hold any of the rows, by ascending id."""
        region = self.choice.region
        if region.empty:
            return
        yield from self.plan.stem.probe(region.begin, region.end, region.hi, region.lo)

    def places(self, part: Part, among: Int64s | None = None) -> Int64s:
        """Where in the part the rows stand; of those at `among`, ascending, if it is given."""
        region = self.choice.region
        lo, hi = part.span(region.begin, region.end)
        if among is not None:
            lo, hi = max(lo, int(part.ids[among[0]])), min(hi, int(part.ids[among[-1]]) + 1)
        lo, hi = max(lo, region.lo, part.first), min(hi, region.hi)
        places = self.choice.places(part, self.matcher.match(part, lo, max(lo, hi)))
        if among is None or len(among) == len(part.ids):
            return places
        return np.intersect1d(places, among, assume_unique=True)

    def _nothing(self, columns: list[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], stem_schema(self.plan.schema)).select(columns)

    @cached_property
    def _output_columns(self) -> list[str]:
        query = self.plan.query
        outputs = [output.expression for output in query.outputs]
        return self._columns([*outputs, *[key.expression for key in query.order_by]])

    def _columns(self, expressions: list[Expression]) -> list[str]:
        used = {name for one in expressions for name in columns_of(one)}
        declared = [column.name for column in self.plan.schema.columns if column.name in used]
        return ["_row_id", "_ts", *declared]


def _arguments(grouping: Grouping) -> list[Expression]:
    return [one.argument for one in grouping.aggregates if one.argument is not None]
