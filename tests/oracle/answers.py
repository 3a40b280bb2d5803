"""What a query answers over a list of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from querystem.expressions import Scalar
from querystem.query import Query
from tests.oracle.evaluator import evaluate_row

Row = Mapping[str, Any]


def naive_rows(query: Query, rows: Iterable[Row], now: int, retain: int | None = None) -> list[Row]:
    """The rows in the answer at NOW, by (ts, row_id).

    A row has its declared columns, `ts` in microseconds and `row_id`.
    """
    begin, end = query.window.at(now, retain)
    inside = [row for row in rows if (begin is None or begin <= row["ts"]) and row["ts"] < end]
    chosen = [row for row in inside if evaluate_row(query.where, row) is True]
    return sorted(chosen, key=lambda row: (row["ts"], row["row_id"]))


def naive_answer(
    query: Query, rows: Iterable[Row], now: int, retain: int | None = None
) -> list[tuple[Scalar, ...]]:
    """The answer at NOW: for each row the values of the query's outputs."""
    return [
        tuple(evaluate_row(output.expression, row) for output in query.outputs)
        for row in naive_rows(query, rows, now, retain)
    ]
