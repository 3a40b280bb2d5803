"""An answer against the naive one, and against DuckDB's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa

from client_sdk import Answer
from tests.system.question import Question, Values, comparable
from tests.system.streams import Row


def values_of(answer: Answer) -> list[Values]:
    return [comparable(row.values()) for row in answer.rows]


def difference(expected: list[Values], got: list[Values]) -> str:
    """Empty where both are the same rows in the same order."""
    if expected == got:
        return ""
    missing = [values for values in expected if values not in got]
    extra = [values for values in got if values not in expected]
    return (
        f"{len(got)} rows instead of {len(expected)}; missing {missing[:3]}, "
        f"extra {extra[:3]}{'' if missing or extra else ': the order, or how often'}"
    )


def second_opinion(question: Question, inside: list[Row]) -> list[Values]:
    """DuckDB's answer to a plain question over the rows its window chose, in order."""
    columns = list(question.shape.columns)
    table = pa.table(_arrays(question, inside), schema=_schema(question))
    with duckdb.connect() as connection:
        connection.register("rows", table)
        found = connection.execute(
            f"SELECT {', '.join(columns)} FROM rows WHERE {question.where} ORDER BY _ts, _row_id"
        ).fetchall()
    return [comparable(map(_aware, values)) for values in found]


def _schema(question: Question) -> pa.Schema:
    fields = [(field.name, _naive(field.type)) for field in question.shape.schema.arrow]
    return pa.schema([*fields, ("_ts", pa.timestamp("us")), ("_row_id", pa.int64())])


def _naive(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us") if pa.types.is_timestamp(kind) else kind


def _arrays(question: Question, rows: list[Row]) -> list[pa.Array]:
    names = [*question.shape.columns, "ts", "row_id"]
    return [
        pa.array([_unaware(row[name]) for row in rows], field.type)
        for name, field in zip(names, _schema(question), strict=True)
    ]


def _unaware(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
