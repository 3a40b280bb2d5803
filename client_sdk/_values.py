"""Single typed values on the wire: parameters of a query."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from client_sdk._time import moment, timestamp
from psoup.v1 import psoup_pb2 as pb

Scalar: TypeAlias = (
    bool | int | float | decimal.Decimal | str | datetime.datetime | datetime.date | None
)


def to_value(value: Scalar) -> pb.Value:
    """Raises TypeError for any other type, ValueError for an int or decimal that does not fit."""
    match value:
        case None:
            return pb.Value()
        case bool():
            return pb.Value(boolean=value)
        case int():
            return pb.Value(bigint=value)
        case float():
            return pb.Value(double=value)
        case decimal.Decimal() if value.is_finite():
            return pb.Value(decimal=format(value, "f"))
        case str():
            return pb.Value(text=value)
        case datetime.datetime():
            return pb.Value(timestamp=timestamp(value))
        case datetime.date():
            return pb.Value(date=value.isoformat())
        case decimal.Decimal():
            raise ValueError(f"a DECIMAL is finite; {value} is not")
    raise TypeError(f"{type(value).__name__} has no type in the language")


def from_value(value: pb.Value) -> Scalar:
    match value.WhichOneof("kind"):
        case "boolean":
            return value.boolean
        case "bigint":
            return value.bigint
        case "double":
            return value.double
        case "decimal":
            return decimal.Decimal(value.decimal)
        case "text":
            return value.text
        case "timestamp":
            return moment(value.timestamp)
        case "date":
            return datetime.date.fromisoformat(value.date)
    return None


def to_rows(table: Sequence[Mapping[str, Scalar]]) -> pb.Rows:
    """A table of values; every row must have the keys of the first."""
    names = list(table[0]) if table else []
    rows = []
    for number, row in enumerate(table):
        if row.keys() != set(names):
            raise ValueError(f"row {number} has {sorted(row)}, the first row has {sorted(names)}")
        rows.append(pb.Row(values=[to_value(row[name]) for name in names]))
    return pb.Rows(columns=names, rows=rows)


def from_rows(message: pb.Rows, names: Sequence[str]) -> list[dict[str, Scalar]]:
    return [dict(zip(names, map(from_value, row.values), strict=True)) for row in message.rows]
