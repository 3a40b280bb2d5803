"""The store's evaluator over a copy's base rows. No other module of the SDK imports it.

Base rows are chosen already: by WHERE, and by the window through their visible intervals. What
remains is what the store does with chosen rows: joins of the rows of several references to streams,
groups, HAVING, SELECT, DISTINCT, ORDER BY, LIMIT.

REFRESH EVERY sets the window back to the last refresh point, where it may have had rows that have
left the window of NOW. So a wider window is synced, and its rows are chosen here by their ts. If
the ts is the stamp of arrival, it also says whether a row was known at the point. In three cases
base rows don't say: with event time, for windows that count rows, and if rows of a stream key
replaced each other since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from client_sdk._exceptions import ErrorDetail, NotComputable, QueryProblem
from client_sdk._wire.models import Stream
from client_sdk._wire.values import Column, Scalar, from_value, to_value
from client_sdk.copies._overlay.source import PENDING
from client_sdk.copies._query.base_rows import ROW_ID
from datastem.instants import FOR_EVER, to_micros
from datastem.schema import StreamSchema
from datastem.zones import ZoneRules, Zones
from querystem.base_rows import LegBaseRows, base_query, combines, obstacle
from querystem.evaluate import answer_of, kept_rows, project, rows_in_window, rows_or_groups
from querystem.identity import row_ids, slides
from querystem.join import JoinRoom, TooManyBytes, TooManyPairs
from querystem.language import (
    CreateStream,
    QueryError,
    bind_query,
    bring_window,
    parse_statement,
    window_text,
)
from querystem.legs import Leg
from querystem.query import Query
from querystem.refresh import RefreshEvery
from querystem.zones import with_zones
from results.window import Bound, TimeWindow, Window

_MICROSECOND = timedelta(microseconds=1)
# The store has accepted the text, under whatever limit it has.
_ANY_LENGTH = 1 << 30


# What the joins of one answer may take, as on a server by default: pairs of rows, and bytes.
_MOST_PAIRS, _MOST_BYTES = 20_000_000, 128 << 20


@dataclass(frozen=True)
class Evaluated:
    """A Computation by the store's evaluator. `window` is None if visibility alone chooses the
    rows. `leg_rows` are the base rows if they are those of several legs.
    """

    query: Query
    columns: tuple[Column, ...]
    base_columns: tuple[Column, ...]
    window: TimeWindow | None
    sync_window: str
    leg_rows: LegBaseRows | None = None

    def answer(
        self,
        rows: pa.Table,
        now: datetime | None,
        statuses: Mapping[int, str] | None = None,
        zones: str = "",
    ) -> pa.Table:
        if zones:
            return self._ruled(zones_from(zones)).answer(rows, now, statuses)
        if self._is_emptied(rows):
            answer = rows.select([column.name for column in self.columns])
            return answer if statuses is None else _with_statuses(answer, [], {})
        self._check(rows)
        # The base rows of such a query are the rows of its answer.
        if slides(self.query) and self.query.refresh is None:
            answer = rows.select([column.name for column in self.base_columns])
            ids = rows.column(ROW_ID).to_pylist()
            return answer if statuses is None else _with_statuses(answer, ids, statuses)
        if self.leg_rows is not None:
            answer = pa.Table.from_batches([self._joined(self.leg_rows, rows, now)])
            return answer if statuses is None else _with_statuses(answer, range(len(answer)), {})
        batch = _batch(rows, {ROW_ID: "row_id"})
        if self.window is not None:
            batch = self._refreshed(batch, self.window, now)
        if statuses is None:
            return pa.Table.from_batches([answer_of(self.query, [batch])])
        return self._with_statuses(batch, statuses)

    def _ruled(self, zones: Zones) -> Evaluated:
        """Return the computation with the rules of its time zones."""
        query, leg_rows = with_zones(self.query, zones), self.leg_rows
        return replace(
            self, query=query, leg_rows=None if leg_rows is None else replace(leg_rows, whole=query)
        )

    def _joined(
        self, leg_rows: LegBaseRows, rows: pa.Table, now: datetime | None
    ) -> pa.RecordBatch:
        instant = None if now is None else to_micros(now)
        try:
            return leg_rows.answer(_batch(rows), instant, _MOST_PAIRS, JoinRoom(_MOST_BYTES))
        except (TooManyPairs, TooManyBytes) as error:
            raise _not_computable(f"{error} on a device", _SYNC_ANSWER) from None

    def _with_statuses(self, batch: pa.RecordBatch, statuses: Mapping[int, str]) -> pa.Table:
        """Return the answer with the statuses of rows, or of groups that have an own row."""
        kept = kept_rows(self.query, rows_or_groups(self.query, [batch]))
        outputs = project(self.query, kept)
        ids = row_ids(self.query, kept, outputs).tolist()
        of_answer: dict[int, str] = {}
        for status in dict.fromkeys(statuses.values()):
            own_ids = pa.array([row for row in statuses if statuses[row] == status], pa.int64())
            own = batch.filter(pc.is_in(batch.column("row_id"), own_ids))
            groups = rows_or_groups(self.query, [own])
            names = row_ids(self.query, groups, project(self.query, groups)).tolist()
            of_answer.update(dict.fromkeys(names, status))
        return _with_statuses(pa.Table.from_batches([outputs]), ids, of_answer)

    def _refreshed(
        self, rows: pa.RecordBatch, window: TimeWindow, now: datetime | None
    ) -> pa.RecordBatch:
        """Return the rows of the window at the last refresh point."""
        if now is None or not isinstance(self.query.refresh, RefreshEvery):
            return rows.slice(0, 0)
        point = self.query.refresh.point(to_micros(now))
        (chosen,) = rows_in_window(window, [rows], point, None, FOR_EVER)
        return chosen

    def _is_emptied(self, rows: pa.Table) -> bool:
        """Return whether the copy is one that the store emptied, since its caller may not have the
        rows any more. It has the columns of the answer then, and the answer has no rows."""
        names = [ROW_ID, *(column.name for column in self.columns)]
        return not len(rows) and rows.column_names == names and self.base_columns != self.columns

    def _check(self, rows: pa.Table) -> None:
        types = {field.name: field.type for field in rows.schema}
        expected = (Column(ROW_ID, "BIGINT"), *self.base_columns)
        if any(types.get(column.name) != column.arrow for column in expected):
            names = ", ".join(f"{column.name} {column.type}" for column in expected)
            raise ValueError(f"this query is computed from {names}; the copy has {rows.schema}")


@lru_cache(maxsize=64)
def zones_from(content: str) -> Zones:
    """Return the rules of time zones that the shape of a copy has."""
    rules = map(ZoneRules.from_json, json.loads(content) if content else ())
    return {rule.name: rule for rule in rules}


def _with_statuses(answer: pa.Table, ids: Sequence[int], statuses: Mapping[int, str]) -> pa.Table:
    column = pa.array([statuses.get(row_id) for row_id in ids], PENDING.arrow)
    return answer.append_column(PENDING.name, column)


def computation(
    sql: str, parameters: Mapping[str, Scalar], streams: Sequence[Stream], window: str
) -> Evaluated:
    """Return the computation of a query. Raises NotComputable and QueryProblem."""
    query, schemas = bound_query(sql, parameters, streams, window)
    columns = columns_of(query)
    if combines(query):
        if why := obstacle(query):
            raise _not_computable(why, _SYNC_ANSWER)
        leg_rows = LegBaseRows.of(query, schemas)
        return Evaluated(query, columns, columns_of(leg_rows.query), None, window, leg_rows)
    if query.refresh is None:
        base_columns = columns if slides(query) else columns_of(base_query(query, schemas))
        return Evaluated(query, columns, base_columns, None, window)
    base_columns = columns_of(base_query(query, schemas))
    refreshed = _refreshable(query, schemas[0])
    return Evaluated(
        query,
        columns,
        base_columns,
        refreshed,
        window_text(_widened(refreshed, query.period_of(0) or 0)),
    )


def bound_query(
    sql: str, parameters: Mapping[str, Scalar], streams: Sequence[Stream], window: str
) -> tuple[Query, tuple[StreamSchema, ...]]:
    """Return a query over some streams with the window of the copy, and the schema of each leg.

    Raises NotComputable if it reads anything else, and QueryProblem.
    """
    by_name = {schema.name: schema for schema in map(_schema, streams)}
    try:
        query = _one_refresh(_bound(sql, parameters, by_name))
        schemas = tuple(by_name[leg.stream] for leg in query.legs)
        if window:
            query = bring_window(window, query, schemas, query.period)
    except QueryError as error:
        raise QueryProblem(str(error), detail=_detail(error)) from error
    return query, schemas


def _one_refresh(query: Query) -> Query:
    """Return a query over one stream with the REFRESH of its WINDOW() as that of the query.

    Rows and refresh points are the same.
    """
    if not isinstance(query.source, Leg) or query.refresh is not None:
        return query
    return replace(query, source=replace(query.leg, refresh=None), refresh=query.leg.refresh)


def _bound(
    sql: str, parameters: Mapping[str, Scalar], schemas: Mapping[str, StreamSchema]
) -> Query:
    def lookup(name: str) -> StreamSchema:
        if name not in schemas:
            raise _not_computable(
                f"rows of {name} refresh it, or {name} is a view or a function, and the copy does "
                "not have that",
                _SYNC_ANSWER,
            )
        return schemas[name]

    # To the wire and back, so that values have the types that the store sees.
    values = {name: from_value(to_value(value)) for name, value in parameters.items()}
    return bind_query(sql, lookup, values, max_text=_ANY_LENGTH)


def _refreshable(query: Query, schema: StreamSchema) -> TimeWindow:
    """Return the window, if its rows at the last refresh point can be chosen from later base
    rows.
    """
    if query.triggers:
        raise _not_refreshable(
            "rows refresh this answer; which of them came when, base rows don't say"
        )
    if not isinstance(query.refresh, RefreshEvery):
        raise _not_refreshable(
            "several REFRESH EVERY make its points, and base rows are synced for one"
        )
    if not schema.ts_is_stamp:
        raise _not_refreshable(
            f"{schema.name} has event time: which rows came before a refresh point, base rows "
            "don't say"
        )
    if schema.key:
        raise _not_refreshable(
            f"{schema.name} has a key: rows that were current at the last refresh point may have "
            "been replaced since"
        )
    if query.leg.has_own_window:
        raise _not_refreshable(
            "the window is the stream's own, so no wider one is synced; write it after the query"
        )
    if isinstance(query.leg.window, TimeWindow) and query.leg.window.by_calendar:
        raise _not_refreshable("no wider window holds the calendar units of the last refresh point")
    if not isinstance(query.leg.window, TimeWindow):
        raise _not_refreshable(
            "the window counts rows: newer ones may have pushed out some that it held at the last "
            "refresh point"
        )
    return query.leg.window


_SYNC_ANSWER = "keep it without base_rows: the copy then is the answer itself"


def _not_refreshable(why: str) -> NotComputable:
    hint = "keep it without base_rows: the copy then is the answer as of its last refresh point"
    return _not_computable(f"it has REFRESH, and {why}", hint)


def _not_computable(why: str, hint: str) -> NotComputable:
    message = f"this answer can't be computed from its base rows: {why}"
    detail = ErrorDetail("NOT_COMPUTABLE", hint=hint)
    return NotComputable(f"{message}\nhint: {hint}", detail=detail)


def _widened(window: TimeWindow, period: int) -> Window:
    """Return a window that has at NOW all rows that this one had at the last refresh point.

    It reaches no further back than RETAIN allows, because with REFRESH this one was allowed.
    """
    begin = window.begin
    if begin is None or not begin.relative:
        return window
    assert isinstance(begin, Bound), "calendar windows are refused with REFRESH"
    # In microseconds. A slide may hold the window back by up to slide - 1. The refresh point is up
    # to period - 1 before NOW.
    behind = sum(step - 1 for step in (window.slide, period) if step)
    return TimeWindow(Bound(begin.offset - behind, True), window.end)


def _batch(rows: pa.Table, renamed: Mapping[str, str] = MappingProxyType({})) -> pa.RecordBatch:
    """Return a batch as the evaluator takes it, with some columns `renamed`."""
    names = [renamed.get(name, name) for name in rows.column_names]
    # The evaluator takes one array for each column, and concat_arrays refuses an empty list.
    columns = [
        pa.concat_arrays(c.chunks) if c.chunks else _empty_array(c.type) for c in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _empty_array(type_: pa.DataType) -> pa.Array:
    return pa.array([], type_)


def columns_of(query: Query) -> tuple[Column, ...]:
    """Return the columns of a query's answer as the client describes them."""
    return tuple(Column(column.name, str(column.type)) for column in query.columns)


def _schema(stream: Stream) -> StreamSchema:
    """Return the schema of a stream, as its statement says."""
    statement = parse_statement(stream.sql, max_text=_ANY_LENGTH)
    assert isinstance(statement, CreateStream), "a stream is described by what creates it"
    return statement.schema


def _detail(error: QueryError) -> ErrorDetail:
    return ErrorDetail(error.reason, error.line, error.column, error.excerpt, error.hint)
