"""Values of a query's `:name` parameters: on the wire, as scalars, and as the log keeps them."""

from __future__ import annotations

import datetime
import decimal
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from datastem.accept import Limits, accept
from datastem.errors import RowError
from datastem.instants import from_micros, to_micros
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, Type, decimal_type
from psoup.errors import BadRequest
from psoup.server.wire.values import (
    BadValue,
    check_width,
    from_instant,
    parse_date,
    parse_decimal,
    to_instant,
)
from psoup.v1 import psoup_pb2 as pb
from querystem.expressions import Scalar
from querystem.language.templates.predicate_texts import marks_of


def to_scalars(parameters: Mapping[str, pb.Value], limits: Limits) -> dict[str, Scalar]:
    """Raise BadRequest for a malformed value."""
    scalars = {}
    for name, value in parameters.items():
        try:
            scalars[name] = _scalar(value, limits)
        except BadValue as bad:
            message = f"parameter :{name} {bad}"
            raise BadRequest(message, reason=bad.reason, field=name[:100]) from None
    return scalars


def _scalar(value: pb.Value, limits: Limits) -> Scalar:
    """Raise BadValue."""
    kind = value.WhichOneof("kind")
    match kind:
        case None:
            return None
        case "decimal":
            return parse_decimal(value.decimal)
        case "date":
            return parse_date(value.date)
        case "timestamp":
            return from_micros(to_instant(value.timestamp))
        case "text":
            _check_length(value.text, limits.value_bytes)
    scalar: Scalar = getattr(value, kind)
    return scalar


def _check_length(text: str, most: int) -> None:
    size = len(text.encode())
    if size > most:
        raise BadValue("VALUE_TOO_LONG", f"has {size:,} bytes; at most {most:,} are taken")


def to_json(values: Mapping[str, Scalar]) -> str:
    """Equal text for equal parameters."""
    return json.dumps({name: _tagged(values[name]) for name in sorted(values)})


def to_json_many(columns: Mapping[str, Sequence[Scalar]], count: int) -> list[str]:
    """`to_json` of each row of values."""
    parts = [_tagged_texts(name, columns[name]) for name in sorted(columns)]
    # Without columns there is nothing to zip, and every row has no values.
    return ["{" + ", ".join(row) + "}" for row in zip(*parts, strict=True)] or ["{}"] * count


def _tagged_texts(name: str, values: Sequence[Scalar]) -> list[str]:
    # Each distinct value is written once: the values of a large table often repeat.
    head, marks = json.dumps(name), marks_of(values)
    distinct = dict(zip(marks, values, strict=True))
    texts = {mark: f"{head}: {json.dumps(_tagged(value))}" for mark, value in distinct.items()}
    return [texts[mark] for mark in marks]


def _tagged(value: Scalar) -> list[Any]:
    match value:
        case None:
            return []
        case bool():
            return ["boolean", value]
        case int():
            return ["bigint", value]
        case float():
            return ["double", repr(value)]
        case decimal.Decimal():
            return ["decimal", format(value, "f")]
        case str():
            return ["text", value]
        case datetime.datetime():
            return ["timestamp", to_micros(value)]
        case datetime.date():
            return ["date", value.isoformat()]


def from_json(text: str) -> dict[str, pb.Value]:
    return {name: _value(*form) for name, form in json.loads(text).items()}


def _value(kind: str = "", value: Any = None) -> pb.Value:
    match kind:
        case "":
            return pb.Value()
        case "double":
            return pb.Value(double=float(value))
        case "timestamp":
            return pb.Value(timestamp=from_instant(value))
    return pb.Value(**{kind: value})


# ---- many at once


def table_columns(table: pa.Table, limits: Limits) -> dict[str, list[Scalar]]:
    """Return the values of each column of an Arrow table. Raise RowError."""
    columns = tuple(Column(field.name, _type(field)) for field in table.schema)
    batch = accept(table, StreamSchema("parameters", columns), 0, limits).batch
    return {name: batch.column(name).to_pylist() for name in batch.schema.names}


def rows_columns(rows: pb.Rows, limits: Limits) -> dict[str, list[Scalar]]:
    """Return the values of each column of typed rows. Raise RowError."""
    check_width(rows)
    for name, times in Counter(rows.columns).items():
        if times > 1:
            name = name[:80]
            raise RowError("DUPLICATE_COLUMN", f"column {name} was sent twice", field=name)
    return {
        name: list(_cells(rows, name, place, limits)) for place, name in enumerate(rows.columns)
    }


def _cells(rows: pb.Rows, name: str, place: int, limits: Limits) -> Iterator[Scalar]:
    for number, row in enumerate(rows.rows):
        try:
            yield _scalar(row.values[place], limits)
        except BadValue as bad:
            message = f"parameter :{name}, row {number}: {bad}"
            raise RowError(bad.reason, message, row=number, field=name[:100]) from None


def _type(field: pa.Field) -> Type:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_decimal(kind):
        return decimal_type(min(kind.precision, 38), max(0, min(kind.scale, 38)))
    for test, type_ in _ARROW:
        if test(kind):
            return type_
    raise RowError(
        "WRONG_TYPE",
        f"parameter :{field.name} has type {kind}, which the language does not have",
        field=field.name,
        got=str(kind),
    )


_ARROW = (
    (pa.types.is_null, TEXT),
    (pa.types.is_boolean, BOOLEAN),
    (pa.types.is_integer, BIGINT),
    (pa.types.is_floating, DOUBLE),
    (pa.types.is_string, TEXT),
    (pa.types.is_large_string, TEXT),
    (pa.types.is_timestamp, TIMESTAMP),
    (pa.types.is_date, DATE),
)
