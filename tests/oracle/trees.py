"""Answers of queries over several streams: nested loops over lists of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from datastem.instants import to_micros
from querystem.expressions import Call, ColumnRef, Expression, Op, Scalar, columns_of
from querystem.legs import AsOf, Leg
from querystem.query import Item, Query, Source
from querystem.sources import (
    From,
    LeftJoin,
    SetOperation,
    SetOperator,
    item_column,
    subquery_column,
)
from results.window import Window
from tests.oracle.answers import naive_kept, naive_outputs
from tests.oracle.clocks import Clocks, Known, clocks, references
from tests.oracle.evaluator import evaluate_row
from tests.oracle.keyed import Keyed, keyed_rows
from tests.oracle.sets import counted_rows, subquery_value
from tests.oracle.windows import naive_window

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """A row of a source: its columns as expressions name them, and its place in order.

    `ts` is in microseconds, None if a row has none (groups). `parts` put rows of one ts in order:
    the row ids of the legs in it in the order of FROM, before those of a branch its number.
    """

    columns: Row
    ts: int | None
    parts: tuple[int, ...]


class PartPoints(Protocol):
    """The instants that parts with REFRESH, queries inside others or legs, are as of."""

    def within(self, part: Query | Leg) -> tuple[Mapping[str, Known], Clocks, PartPoints]:
        """Return the streams and the clocks of the part, and the points of the parts inside."""


@dataclass(frozen=True)
class World:
    """Streams at a position, and how they are asked: at NOW, or at an instant (`as_of`)."""

    streams: Mapping[str, Known]
    clock: int = 0
    as_of: int | None = None
    latest: bool = False
    points: PartPoints | None = None

    def answer(self, query: Query) -> list[tuple[Scalar, ...]]:
        """For each row of the answer the values of the query's outputs."""
        rows = [combination.columns for combination in self.combinations(query)]
        return [naive_outputs(query, row) for row in naive_kept(query, rows)]

    def now(self, query: Query) -> int | None:
        return self.clocks(query).now

    def combinations(self, query: Query) -> list[Found]:
        """Return the rows of the query's source, in order; without a NOW those over no rows."""
        return self.combinations_at(query, self.clocks(query))

    def answer_at(self, query: Query, times: Clocks) -> list[tuple[Scalar, ...]]:
        """Return the answer at other clocks than the streams' own."""
        rows = [combination.columns for combination in self.combinations_at(query, times)]
        return [naive_outputs(query, row) for row in naive_kept(query, rows)]

    def combinations_at(self, query: Query, times: Clocks) -> list[Found]:
        if times.now is None:
            empty = {name: replace(stream, rows=()) for name, stream in self.streams.items()}
            return _Snapshot(empty, times, None).rows(query.source)
        return _Snapshot(self.streams, times, self.points).rows(query.source)

    def clocks(self, query: Query) -> Clocks:
        return clocks(references(query), self.streams, self.clock, self.as_of, self.latest)


@dataclass(frozen=True)
class _Snapshot:
    streams: Mapping[str, Known]
    times: Clocks
    points: PartPoints | None

    def _within(self, part: Query | Leg) -> _Snapshot:
        if part.refresh is None or self.points is None:
            return self
        return _Snapshot(*self.points.within(part))

    def rows(self, source: Source) -> list[Found]:
        source_rows = self._leg(source) if isinstance(source, Leg) else self._from(source)
        return sorted(source_rows, key=_place)

    def _leg(self, leg: Leg) -> list[Found]:
        """Return the rows of the stream that the leg's window holds and its predicate lets
        through."""
        then = self._within(leg)
        inside = rows_in_window(leg.window, then.streams[leg.stream], then.times)
        chosen = [row for row in inside if evaluate_row(leg.where, row) is True]
        return [Found(row, row["ts"], (row["row_id"],)) for row in chosen]

    def _from(self, source: From) -> list[Found]:
        conditions = _as_soon_as_possible(source)
        combinations = [Found({}, None, ())]
        for number, item in enumerate(source.items):
            rows = self._rows_for(item)
            pairs = (
                _beside(before, right, number) for before in combinations for right in rows(before)
            )
            combinations = [pair for pair in pairs if _all_true(conditions[number], pair.columns)]
        for number, subquery in enumerate(source.subqueries):
            inner = [combination.columns for combination in self._query(subquery.query)]
            values = [
                subquery_value(subquery, combination.columns, inner) for combination in combinations
            ]
            combinations = [
                replace(
                    combination, columns={**combination.columns, subquery_column(number): value}
                )
                for combination, value in zip(combinations, values, strict=True)
            ]
        return [
            combination
            for combination in combinations
            if evaluate_row(source.where, combination.columns) is True
        ]

    def _rows_for(self, item: Item) -> Callable[[Found], list[Found]]:
        """Return the rows of an item that go with a combination of those before: all, or one that
        is looked up."""
        if isinstance(item, Leg) and item.as_of is not None:
            as_of = item.as_of
            return lambda before: self._looked_up(item, as_of, before.columns)
        rows = self._item(item)
        return lambda _: rows

    def _looked_up(self, leg: Leg, as_of: AsOf, before: Row) -> list[Found]:
        stream, keys = self.streams[leg.stream], [evaluate_row(key, before) for key in as_of.keys]
        rows, moment = stream.seen, evaluate_row(as_of.instant, before)
        if moment is None:
            return []
        assert isinstance(moment, datetime)
        instant = to_micros(moment)
        if as_of.row is not None:
            other_rows = self.streams[as_of.stream].rows
            (other_row,) = [row for row in other_rows if row["row_id"] == before[_name(as_of.row)]]
            rows = [row for row in rows if row["position"] <= other_row["position"]]
        current = Keyed(stream.schema.key).current(rows, instant)
        of_key = [row for row in current if [row[name] for name in stream.schema.key] == keys]
        visible = filter(stream.shown, of_key)
        chosen = [row for row in visible if evaluate_row(leg.where, row) is True]
        return [Found(row, row["ts"], (row["row_id"],)) for row in chosen]

    def _item(self, item: Item) -> list[Found]:
        match item:
            case Leg():
                return self._leg(item)
            case SetOperation(SetOperator.UNION_ALL, queries):
                return self._union_all(queries)
            case SetOperation(operator, queries):
                first, second = (
                    [inner.columns for inner in self._query(query)] for query in queries
                )
                names = [column.name for column in item.columns]
                rows = counted_rows(operator, names, first, second)
                return [Found(row, None, (rank,)) for rank, row in enumerate(rows)]
            case Query():
                return self._query(item)
            case LeftJoin():
                return self._left_join(item)

    def _left_join(self, item: LeftJoin) -> list[Found]:
        """Return all pairs for which the condition is true; a left row without one stands alone."""
        right, nobody = self._rows_for(item.right), Found(self._nulls(item.right), None, (-1,))
        combinations = []
        for left_row in self._from(item.left):
            first = _beside(Found({}, None, ()), left_row, 0)
            pairs = [_beside(first, right_row, 1) for right_row in right(first)]
            matches = [pair for pair in pairs if evaluate_row(item.on, pair.columns) is True]
            combinations += matches or [_beside(first, nobody, 1)]
        return combinations

    def _nulls(self, item: Item) -> Row:
        """Return NULL for each column of an item."""
        if isinstance(item, Leg):
            return dict.fromkeys(self.streams[item.stream].schema.types)
        assert isinstance(item, Query | SetOperation)
        return dict.fromkeys(column.name for column in item.columns)

    def _union_all(self, queries: Sequence[Query]) -> list[Found]:
        """Return the rows of all branches; their columns are named as those of the first."""
        names = [output.name for output in queries[0].outputs]
        return [
            replace(
                row,
                columns=dict(zip(names, row.columns.values(), strict=True)),
                parts=(branch, *row.parts),
            )
            for branch, query in enumerate(queries)
            for row in self._query(query)
        ]

    def _query(self, query: Query) -> list[Found]:
        """Return the rows of a query inside another. If they are groups, or chosen by DISTINCT or
        LIMIT, they have no ts, and their order is that of the query."""
        source = self._within(query).rows(query.source)
        places = {id(source_row.columns): source_row for source_row in source}
        kept_rows = naive_kept(query, [source_row.columns for source_row in source])
        names = [output.name for output in query.outputs]
        rows = []
        for rank, row in enumerate(kept_rows):
            columns = dict(zip(names, naive_outputs(query, row), strict=True))
            if query.grouping is None and not query.distinct and query.limit is None:
                rows.append(replace(places[id(row)], columns=columns))
            else:
                rows.append(Found(columns, None, (rank,)))
        return rows if query.over is None else self._over(query.over, rows)

    def _over(self, window: Window, rows: Sequence[Found]) -> list[Found]:
        """Return the rows that a window over a query holds at the query's NOW, by their own ts."""
        if self.times.now is None:
            return []
        rows = sorted(rows, key=_place)
        moments = [{"ts": row.ts, "row_id": place} for place, row in enumerate(rows)]
        inside = naive_window(window, moments, self.times.now, None)
        return [rows[moment["row_id"]] for moment in inside]


def _name(column: Expression) -> str:
    assert isinstance(column, ColumnRef)
    return column.name


def rows_in_window(window: Window, stream: Known, times: Clocks) -> list[Row]:
    """Return the rows of a stream in a window; retention counts from the stream's own NOW, which
    may be ahead."""
    now, retain = times.of(stream), stream.schema.retain
    if now is None:
        return []
    if retain is not None and stream.reached is not None:
        retain += now - max(now, stream.reached)
    if not stream.schema.key:
        return naive_window(window, stream.seen, now, retain, stream.shown)
    keyed = Keyed(stream.schema.key, stream.high)
    window, rows = keyed_rows(keyed, window, list(stream.rows), now, retain)
    return naive_window(window, rows, now, None, stream.shown)


def _beside(before: Found, new_row: Found, number: int) -> Found:
    """Return a combination of the items so far with a row of the item of that number."""
    moments = [ts for ts in (before.ts, new_row.ts) if ts is not None]
    new_columns = {item_column(number, name): value for name, value in new_row.columns.items()}
    timed = {item_column(number, "ts"): new_row.ts}
    columns = {**before.columns, **timed, **new_columns}
    return Found(columns, max(moments, default=None), (*before.parts, *new_row.parts))


def _as_soon_as_possible(source: From) -> list[list[Expression]]:
    """Return the conditions to look at once a row of item n is chosen, for each n."""
    on = source.on
    conjuncts = on.args if isinstance(on, Call) and on.op is Op.AND else (on,)
    conditions: list[list[Expression]] = [[] for _ in source.items]
    for condition in conjuncts:
        numbers = [int(name.partition(".")[0]) for name in columns_of(condition)]
        conditions[max(numbers, default=0)].append(condition)
    return conditions


def _all_true(conditions: Sequence[Expression], columns: Row) -> bool:
    return all(evaluate_row(condition, columns) is True for condition in conditions)


def _place(row: Found) -> tuple[Any, ...]:
    return (row.ts is not None, row.ts or 0, row.parts)
