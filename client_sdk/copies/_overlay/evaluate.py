"""The store's evaluator over own rows. Of the package no other module imports it at the top.

Own rows are given ids after all others, so that they come last among equal rows. The ts of a row
of a stream with arrival time is the NOW of reading, as if the store took it then. So a query that
uses ts in more than a plain output is evaluated at each read, and so is one with NOW in WHERE; all
others once, when rows are queued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa

from client_sdk._exceptions import ErrorDetail, NotComputable
from client_sdk._wire.models import Stream
from client_sdk._wire.rows import DELETE, OP, PATCH, has_patches
from client_sdk._wire.values import Column, Scalar
from client_sdk.copies._file.tables import restored, stored
from client_sdk.copies._overlay.own_rows import OwnRow, Windowing
from client_sdk.copies._overlay.source import LAST_ROWS
from client_sdk.copies._query.compute import bound_query, columns_of, zones_from
from datastem.equality import key_digests
from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.schema import Column as DeclaredColumn
from datastem.schema import StreamSchema
from querystem.base_rows import base_query
from querystem.evaluate import project
from querystem.expressions import TRUE, ColumnRef, Expression
from querystem.expressions import columns_of as columns_in
from querystem.identity import slides
from querystem.kernel import matches
from querystem.legs import Leg
from querystem.ordering import sort_keys
from querystem.query import Query
from querystem.visibility import visibility_of
from querystem.zones import texts_of, zones_in
from results.region import leaving, visible
from results.window import Bound, CountWindow, RowWindow, TimeWindow, with_rules

__all__ = ["OwnQuery", "key_digests", "own_query"]

# Values of columns by name.
Values: TypeAlias = dict[str, Any]

_TS, _ROW_ID = Column("ts", "TIMESTAMP"), Column("row_id", "BIGINT")


@dataclass(frozen=True)
class OwnQuery:
    """The query of a copy's rows, as own rows are evaluated by it.

    `ts_places` are the columns of the answer that are the ts itself, if ts is the stamp of arrival;
    `key_places` those of the stream key, empty unless all of it is there. `time_place` is the
    column that is the ts of a row, if `visible_from` does not say it. If it `moves`, rows are to be
    evaluated at each read. `defaults` are those of columns that a batch may lack.
    """

    query: Query
    schema: StreamSchema
    columns: tuple[Column, ...]
    windowing: Windowing
    ts_places: tuple[int, ...]
    key_places: tuple[int, ...]
    moves: bool
    defaults: Mapping[str, Scalar]
    time_place: int | None = None

    def evaluated(self, table: pa.Table, first_row: int, arrival: int) -> list[OwnRow]:
        """Return the rows of a batch that was queued, in its order.

        `arrival` is the ts of rows without an event time. Raises KeyError or ValueError if the
        batch lacks columns, or has others types than the stream had.
        """
        ids = list(range(first_row, first_row + table.num_rows))
        if not has_patches(table):
            return self._evaluated(table, ids, arrival)
        # Patches are evaluated at each read, since the rows beneath them change.
        is_patch = [op == PATCH for op in table.column(OP).to_pylist()]
        others = table.filter(pa.array([not patch for patch in is_patch]))
        for column in self.schema.columns:
            if column.name not in (*others.column_names, *self.defaults):
                nulls = pa.nulls(others.num_rows, column.type.arrow)
                others = others.append_column(column.name, nulls)
        rows = self._evaluated(
            others, [id_ for id_, patch in zip(ids, is_patch, strict=True) if not patch], arrival
        )
        keys = self._keys([_single_array(table.column(name)) for name in self.schema.key])
        no_values = [None] * len(self.columns)
        rows += [
            OwnRow(id_, None, False, False, None, key, no_values)
            for id_, key, patch in zip(ids, keys, is_patch, strict=True)
            if patch
        ]
        return sorted(rows, key=lambda row: row.row_id)

    def merged(self, patches: Sequence[tuple[int, Values, Values]], arrival: int) -> list[OwnRow]:
        """Return patches, evaluated: each is an id, the values that it sets, and those of the row
        beneath it by the names of columns. All values that `reads` names must be there."""
        ids = [id_ for id_, _, _ in patches]
        arrays = [
            pa.array(
                [(beneath | sets).get(column.name) for _, sets, beneath in patches],
                column.type.arrow,
            )
            for column in self.schema.columns
        ]
        names = [column.name for column in self.schema.columns]
        return self._evaluated(pa.Table.from_arrays(arrays, names=names), ids, arrival)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The declared columns that the answer, its order and its condition are made of."""
        leg = self.query.leg
        names = {*self.query.reads, *columns_in(leg.where), *columns_in(leg.when)}
        return frozenset(column.name for column in self.schema.columns if column.name in names)

    def column_values(self, values: Sequence[Any]) -> Values:
        """Return the values of declared columns that a row of the answer shows, by name."""
        return {
            output.expression.name: restored([value], column)[0].as_py()
            for output, value, column in zip(self.query.outputs, values, self.columns, strict=True)
            if isinstance(output.expression, ColumnRef)
        }

    def _keys(self, columns: Sequence[pa.Array]) -> list[int]:
        types = [self.schema.types[name].arrow for name in self.schema.key]
        arrays = [array.cast(type_) for array, type_ in zip(columns, types, strict=True)]
        keys: list[int] = key_digests(arrays).tolist()
        return keys

    def _evaluated(self, table: pa.Table, ids: Sequence[int], arrival: int) -> list[OwnRow]:
        rows = self._batch(table, ids, arrival)
        is_delete = _deletes(table)
        condition = self.query.leg.where
        is_match = [True] * len(ids) if condition == TRUE else matches(condition, rows).tolist()
        in_steps = _enters_in_steps(self.query)
        keys: Sequence[int | None] = [None] * len(ids)
        if self.schema.key:
            keys = key_digests([rows.column(name) for name in self.schema.key]).tolist()
        ts: Sequence[int | None] = [None] * len(ids)
        if not self.schema.ts_is_stamp:
            ts = rows.column("ts").view(pa.int64()).to_pylist()
        return [
            OwnRow(*fields)
            for fields in zip(
                ids,
                ts,
                is_delete,
                (match and not delete for match, delete in zip(is_match, is_delete, strict=True)),
                sort_keys(self.query, rows, moments=in_steps).to_pylist(),
                keys,
                zip(*self._values(rows, ids), strict=True),
                *self._visibility(rows, is_match),
                strict=True,
            )
        ]

    def _visibility(
        self, rows: pa.RecordBatch, is_match: Sequence[bool]
    ) -> tuple[list[int | None], list[int | None]]:
        """Return from and until which NOW the condition on it shows each row. Rows that do not
        match are shown at none, so theirs do not matter."""
        begins: list[int | None] = [None] * rows.num_rows
        ends = [*begins]
        visibility = visibility_of(self.query.leg.when)
        places = [place for place, match in enumerate(is_match) if match]
        if self.query.leg.when == TRUE or visibility is None or not places:
            return begins, ends
        first, until = visibility.interval(rows.take(pa.array(places)))
        for place, begin, end in zip(places, first.tolist(), until.tolist(), strict=True):
            begins[place] = None if begin == SINCE_EVER else begin
            ends[place] = None if end == FOR_EVER else end
        return begins, ends

    def intervals(self, instants: Sequence[int], zones: str) -> list[tuple[int, int | None]]:
        """Return the interval of NOW in which the window holds a row of each ts, as the store sends
        it. `zones` has the store's rules of time zones, as a shape has them.
        """
        ts = pa.array(instants, pa.int64()).to_numpy()
        window = with_rules(self.query.leg.window, zones_from(zones))
        retain = None if self.schema.key else self.schema.retain
        if isinstance(window, TimeWindow):
            begins, ends = visible(window, ts, retain)
        else:
            begins, ends = ts, leaving(ts, retain)
        pairs = zip(begins.tolist(), ends.tolist(), strict=True)
        return [(begin, None if end == FOR_EVER else end) for begin, end in pairs]

    def _batch(self, table: pa.Table, ids: Sequence[int], arrival: int) -> pa.RecordBatch:
        """Return the rows with `ts` and `row_id`, as the evaluator takes them."""
        arrays = [self._column(table, column) for column in self.schema.columns]
        names = [column.name for column in self.schema.columns]
        if "ts" not in names:
            times = pa.array([arrival] * len(ids), pa.int64()).view(_TS.arrow)
            arrays.append(
                times if self.schema.ts_is_stamp else arrays[names.index(self.schema.event_time)]
            )
            names.append("ts")
        last_ids = pa.array([id_ + LAST_ROWS for id_ in ids], pa.int64())
        return pa.RecordBatch.from_arrays([*arrays, last_ids], names=[*names, _ROW_ID.name])

    def _column(self, table: pa.Table, column: DeclaredColumn) -> pa.Array:
        if column.name in self.defaults and column.name not in table.column_names:
            default = self.defaults[column.name]
            return pa.array([default] * table.num_rows, column.type.arrow)
        return _single_array(table.column(column.name)).cast(column.type.arrow)

    def _values(self, rows: pa.RecordBatch, ids: Sequence[int]) -> list[Sequence[Any]]:
        """Return the values of the answer's columns as the file holds them, column by column."""
        outputs, answer = self.query.outputs, project(self.query, rows)
        series = zip(outputs, answer.columns, self.columns, strict=True)
        return [
            ids if _is_column(output.expression, "row_id") else stored(array, column)
            for output, array, column in series
        ]


def _single_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.chunks else pa.array([], column.type)


def _deletes(table: pa.Table) -> list[bool]:
    if OP not in table.column_names:
        return [False] * table.num_rows
    return [op == DELETE for op in table.column(OP).to_pylist()]


def own_query(
    sql: str,
    parameters: Mapping[str, Scalar],
    streams: Sequence[Stream],
    window: str,
    base_rows: bool,
) -> OwnQuery:
    """Return the query that own rows are evaluated by.

    Raises NotComputable if the answer with own rows can't be computed, and QueryProblem.
    """
    stream = streams[0]
    try:
        query, schemas = bound_query(sql, parameters, streams, window)
    except NotComputable:
        why = f"it reads more than {stream.name}: a view, or rows that refresh it"
        raise _refused(why) from None
    schema = schemas[0]
    _check(query, schema, base_rows)
    if not slides(query):
        query = base_query(query, schemas)
    outputs = [output.expression for output in query.outputs]
    arrival = schema.ts_is_stamp
    others: list[Expression] = [query.leg.where, *(key.expression for key in query.order_by)]
    others += [expression for expression in outputs if not isinstance(expression, ColumnRef)]
    return OwnQuery(
        query,
        schema,
        columns_of(query),
        _windowing(query, schema),
        _places(outputs, ["ts"]) if arrival else (),
        _places(outputs, schema.key) if schema.key else (),
        query.uses_now or (arrival and (_enters_in_steps(query) or _reads(others, "ts"))),
        {column.name: column.default for column in stream.columns if column.optional},
        _time_place(query, schema),
    )


def _check(query: Query, schema: StreamSchema, base_rows: bool) -> None:
    """Raise NotComputable if the store alone can tell what own rows do to the answer."""
    if not isinstance(query.source, Leg) or query.leg.as_of is not None:
        raise _refused("it is made of more than the rows of one stream")
    if query.leg.valid is not None:
        raise _refused("its rows come and go by their validity, which own edits may change")
    if query.has_now or visibility_of(query.leg.when) is None:
        raise _refused("it computes with NOW in another way than by limits of columns")
    if zones_in(texts_of(query)):
        raise _refused("it computes with a time zone, whose rules come with the copy")
    if query.refresh is not None:
        raise _refused("it has REFRESH, so that edits are not in it before a refresh point")
    if not slides(query) and not base_rows:
        raise _refused(
            "it is made of several rows by groups, DISTINCT or LIMIT",
            "keep it with base_rows=True too, or without edits",
        )
    plain = query.outputs if slides(query) else ()
    expressions = [
        output.expression
        for output in query.outputs
        if not (output in plain and isinstance(output.expression, ColumnRef))
    ]
    expressions += [query.leg.where, *(key.expression for key in query.order_by)]
    if query.grouping is not None:
        expressions += query.grouping.keys
    if _reads(expressions, "row_id"):
        raise _refused("it uses row_id, which the store assigns")
    _check_window(query, schema)


def _enters_in_steps(query: Query) -> bool:
    """Return whether rows become visible in another order than that of their ts."""
    window = query.leg.window
    in_steps = isinstance(window, TimeWindow) and window.enters_in_steps
    return in_steps or query.leg.when != TRUE


def _time_place(query: Query, schema: StreamSchema) -> int | None:
    """Return the column of the answer that has the ts of a row, by which edits of a stream key are
    ordered; None if the copy knows it anyway. Raise NotComputable if there is no such column."""
    visibility = visibility_of(query.leg.when)
    begins = visibility is not None and visibility.begins
    if not schema.key or schema.ts_is_stamp or not begins:
        return None
    outputs = [output.expression for output in query.outputs]
    places = _places(outputs, [schema.event_time]) or _places(outputs, ["ts"])
    if not places:
        raise _refused(
            f"rows of {schema.name} are ordered by {schema.event_time}, which it lacks",
            f"select {schema.event_time} too, or keep it without edits",
        )
    return places[0]


def _check_window(query: Query, schema: StreamSchema) -> None:
    window = query.leg.window
    if isinstance(window, RowWindow):
        raise _refused("its window is of row ids, which the store assigns")
    if schema.rows_wait and (schema.key or not isinstance(window, TimeWindow)):
        raise _refused(f"rows of {schema.name} may wait for NOW, and then end others by time alone")
    if isinstance(window, TimeWindow):
        if schema.key and window.slide is not None:
            raise _refused(f"with SLIDE, rows of {schema.name} end by time alone")
        if schema.key and window.by_calendar and window.end is not None:
            raise _refused(f"rows of {schema.name} enter its window at the end of a unit")
        return
    if window.slide is not None:
        raise _refused("SLIDE counts all rows of the stream, which the copy does not have")
    if query.leg.where != TRUE:
        raise _refused(
            "its window counts rows that do not satisfy WHERE, which the copy does not have"
        )
    source = query if slides(query) else base_query(query, [schema])
    outputs = [output.expression for output in source.outputs]
    if window.partition_by and not _places(outputs, window.partition_by):
        raise _refused(
            "its window has partitions by columns that the copy does not have",
            f"select {', '.join(window.partition_by)} too, or keep it without edits",
        )


def _windowing(query: Query, schema: StreamSchema) -> Windowing:
    window = query.leg.window
    outputs = [output.expression for output in query.outputs]
    if isinstance(window, CountWindow):
        return Windowing(0, window.rows, _places(outputs, window.partition_by))
    assert isinstance(window, TimeWindow)
    end = window.end
    # A row of ts enters the window at ts + lag.
    lag = max(0, 1 - end.offset) if isinstance(end, Bound) and end.relative else 0
    return Windowing(lag, None, ())


def _places(outputs: Sequence[Expression], names: Sequence[str]) -> tuple[int, ...]:
    """Return the places of plain columns among outputs; nothing if one of them is not there."""
    places = [
        [place for place, output in enumerate(outputs) if _is_column(output, name)]
        for name in names
    ]
    if names == ["ts"]:
        return tuple(places[0])
    return tuple(matches_[0] for matches_ in places) if all(places) else ()


def _is_column(expression: Expression, name: str) -> bool:
    return isinstance(expression, ColumnRef) and expression.name == name


def _reads(expressions: Sequence[Expression], name: str) -> bool:
    return any(name in columns_in(expression) for expression in expressions)


def _refused(why: str, hint: str = "keep it without edits") -> NotComputable:
    message = f"own edits can't be shown in this answer: {why}"
    detail = ErrorDetail("NOT_COMPUTABLE", hint=hint)
    return NotComputable(f"{message}\nhint: {hint}", detail=detail)
