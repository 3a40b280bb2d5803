"""An answer: window → candidate rows → matches → rows in order → outputs.

`plan` looks at the follower on the event loop and takes what it needs, all of one moment;
`answer` computes from that alone, in any thread. So an answer is of exactly one position.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from datastem.blocks import Int64s, Part
from datastem.codec import query_view
from datastem.schema import StreamSchema
from datastem.stem import StemView
from psoup.server.matcher import Matcher
from psoup.server.view import EpochView
from psoup.store import START, Position
from querystem.expressions import ColumnRef, Expression, columns_of
from querystem.kernel import evaluate
from querystem.query import Query
from results.answer import order


@dataclass(frozen=True, slots=True)
class Interval:
    """Rows with ts in `[begin, end)`; `begin` None is the beginning of time."""

    begin: int | None
    end: int

    @property
    def empty(self) -> bool:
        return self.begin is not None and self.begin >= self.end


@dataclass(frozen=True, slots=True)
class Plan:
    """What one answer is made of. `interval` None: NOW does not exist yet, so no row is in it.

    `known_at` cuts the rows to those accepted by that instant.
    """

    query: Query
    schema: StreamSchema
    stream_id: int
    predicate_id: int
    stem: StemView
    view: EpochView
    position: Position
    now: int | None
    interval: Interval | None
    known_at: int | None
    notes: tuple[str, ...]


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


def answer(plan: Plan, matcher: Matcher) -> Answer:
    """Raises FileNotFoundError where the engine has removed a file the plan names."""
    high, position = _known(plan)
    selected = list(_select(plan, matcher, high))
    return Answer(_project(plan, selected), position, matcher.work.rows)


def _known(plan: Plan) -> tuple[int, Position]:
    if plan.known_at is None:
        return plan.stem.high, plan.position
    high, position = plan.stem.high_at(plan.known_at)
    return high, START if position is None else Position.unpack(position)


def _select(plan: Plan, matcher: Matcher, high: int) -> Iterator[pa.RecordBatch]:
    """The rows of the answer, part by part, with the columns it needs."""
    interval = plan.interval
    if interval is None or interval.empty:
        return
    needed = _needed(plan)
    for part in plan.stem.probe(interval.begin, interval.end, high):
        lo, hi = part.span(interval.begin, interval.end)
        if lo >= hi:
            continue
        places = part.find(matcher.match(part, lo, hi))
        if not part.in_order:
            places = _in_time(part, places, interval)
        if len(places):
            yield part.rows.select(needed).take(pa.array(places))


def _in_time(part: Part, places: Int64s, interval: Interval) -> Int64s:
    ts = part.ts[places]
    inside = ts < interval.end
    if interval.begin is not None:
        inside &= ts >= interval.begin
    return places[inside]


def _needed(plan: Plan) -> list[str]:
    used = {name for output in plan.query.outputs for name in columns_of(output.expression)}
    declared = [column.name for column in plan.schema.columns if column.name in used]
    return ["_row_id", "_ts", *declared]


def _project(plan: Plan, selected: list[pa.RecordBatch]) -> pa.RecordBatch:
    names = [output.name for output in plan.query.outputs]
    if not selected:
        empty = [pa.array([], output.expression.type.arrow) for output in plan.query.outputs]
        return pa.RecordBatch.from_arrays(empty, names=names)
    rows = query_view(_ordered(pa.concat_batches(selected)))
    columns = [_output(output.expression, rows) for output in plan.query.outputs]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _output(expression: Expression, rows: pa.RecordBatch) -> pa.Array:
    if isinstance(expression, ColumnRef):
        return rows.column(expression.name)
    return evaluate(expression, rows)


def _ordered(rows: pa.RecordBatch) -> pa.RecordBatch:
    ts = rows.column("_ts").view(pa.int64()).to_numpy()
    places = order(ts, rows.column("_row_id").to_numpy())
    return rows if places is None else rows.take(pa.array(places))
