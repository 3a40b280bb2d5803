"""What a query answers over a list of rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from querystem.expressions import Scalar, at_instant
from querystem.query import Query
from tests.oracle.evaluator import evaluate_row
from tests.oracle.grouping import compare, identity, naive_groups
from tests.oracle.keyed import Keyed, keyed_rows
from tests.oracle.windows import Shown, everything, naive_window

Row = Mapping[str, Any]


def naive_rows(
    query: Query,
    rows: Iterable[Row],
    now: int,
    retain: int | None = None,
    keyed: Keyed | None = None,
    is_visible: Shown = everything,
) -> list[Row]:
    """Return the rows in the window at NOW that satisfy WHERE, by (ts, row_id).

    A row has its declared columns, `ts` in microseconds and `row_id`.
    """
    window = query.leg.window
    if keyed is not None:
        window, rows = keyed_rows(keyed, window, list(rows), now, retain)
        retain = None
    inside = naive_window(window, rows, now, retain, is_visible)
    conditions = query.leg.where, at_instant(query.leg.when, now)
    return [row for row in inside if all(evaluate_row(where, row) is True for where in conditions)]


def naive_answer(
    query: Query,
    rows: Iterable[Row],
    now: int,
    retain: int | None = None,
    keyed: Keyed | None = None,
    is_visible: Shown = everything,
) -> list[tuple[Scalar, ...]]:
    """Return the answer at NOW: for each row the values of the query's outputs."""
    chosen = naive_rows(query, rows, now, retain, keyed, is_visible)
    query = query.at_instant(now)
    return [naive_outputs(query, row) for row in naive_kept(query, chosen)]


def naive_kept(query: Query, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the source, or the groups, that make the rows of the answer, in its order.

    `found` are the rows of the source in the order they have without ORDER BY.
    """
    if query.grouping is not None:
        rows = naive_groups(query.grouping, rows)
    rows = [row for row in rows if evaluate_row(query.having, row) is True]
    if query.distinct:
        firsts: dict[Any, Row] = {}
        for row in rows:
            firsts.setdefault(_place(query, row), row)
        rows = list(firsts.values())
    rows = sorted(rows, key=functools.cmp_to_key(functools.partial(_order, query)))
    end = None if query.limit is None else query.offset + query.limit
    return rows[query.offset : end]


def naive_outputs(query: Query, row: Row) -> tuple[Scalar, ...]:
    """Return the values of a query's outputs for a row, or a group."""
    return tuple(evaluate_row(output.expression, row) for output in query.outputs)


def _place(query: Query, row: Row) -> tuple[Any, ...]:
    return tuple(identity(value) for value in naive_outputs(query, row))


def _order(query: Query, first: Row, second: Row) -> int:
    for key in query.order_by:
        first_value, second_value = (evaluate_row(key.expression, row) for row in (first, second))
        if sign := compare(first_value, second_value, key.descending, key.nulls_first):
            return sign
    return 0
