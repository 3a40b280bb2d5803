"""Values of a query's `:name` parameters: on the wire, as scalars, and as the log keeps them."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from datastem.accept import Limits, accept
from datastem.errors import RowError
from datastem.instants import from_micros, to_micros
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, Type, decimal_type
from psoup.server.errors import BadRequest
from psoup.server.values import (
    BadValue,
    from_instant,
    parse_date,
    parse_decimal,
    to_instant,
    to_table,
)
from psoup.v1 import psoup_pb2 as pb
from querystem.expressions import Scalar
from querystem.language.filling_many import marks_of

_MAX_SCALE = 38


def to_scalars(parameters: Mapping[str, pb.Value]) -> dict[str, Scalar]:
    """Raises BadRequest for a value that is none."""
    return {name: _scalar(name, value) for name, value in parameters.items()}


def _scalar(name: str, value: pb.Value) -> Scalar:
    kind = value.WhichOneof("kind")
    try:
        match kind:
            case None:
                return None
            case "decimal":
                return parse_decimal(value.decimal)
            case "date":
                return parse_date(value.date)
            case "timestamp":
                return from_micros(to_instant(value.timestamp))
        scalar: Scalar = getattr(value, kind)
        return scalar
    except BadValue as bad:
        message = f"parameter :{name} {bad}"
        raise BadRequest(message, reason=bad.reason, field=name[:100]) from None


def to_json(values: Mapping[str, Scalar]) -> str:
    """Equal text for equal parameters."""
    return json.dumps({name: _tagged(values[name]) for name in sorted(values)})


def to_json_many(columns: Mapping[str, Sequence[Scalar]], count: int) -> list[str]:
    """`to_json` of each row of values."""
    parts = [_tagged_texts(name, columns[name]) for name in sorted(columns)]
    return ["{" + ", ".join(row) + "}" for row in zip(*parts, strict=True)] or ["{}"] * count


def _tagged_texts(name: str, values: Sequence[Scalar]) -> list[str]:
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


def parameter_table(
    table: pa.Table, limits: Limits
) -> tuple[dict[str, Type | None], pa.RecordBatch]:
    """The parameters' types and one row of values each. Raises RowError.

    A column without a single value has no type.
    """
    types = {field.name: _type(field) for field in table.schema}
    schema = StreamSchema(
        "parameters", tuple(Column(name, type_ or TEXT) for name, type_ in types.items())
    )
    return types, accept(table, schema, 0, limits).batch


def rows_table(rows: pb.Rows) -> pa.Table:
    """Typed values as a table; the kind of a column's first value is its type."""
    columns = []
    for place, name in enumerate(rows.columns):
        values = [row.values[place] for row in rows.rows if place < len(row.values)]
        columns.append(Column(name, _kind_of(name, values)))
    return to_table(rows, StreamSchema("parameters", tuple(columns)))


def _kind_of(name: str, values: list[pb.Value]) -> Type:
    kinds = [value.WhichOneof("kind") for value in values]
    first = next((kind for kind in kinds if kind is not None), None)
    if first == "decimal":
        numbers = [_scalar(name, value) for value in values if value.WhichOneof("kind") == first]
        scales = [-int(n.as_tuple().exponent) for n in numbers if isinstance(n, decimal.Decimal)]
        return decimal_type(_MAX_SCALE, min(max(0, *scales, 0), _MAX_SCALE))
    return _KINDS[first]


def _type(field: pa.Field) -> Type | None:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_decimal(kind):
        return decimal_type(min(kind.precision, 38), max(0, min(kind.scale, 38)))
    for test, type_ in _ARROW:
        if test(kind):
            return type_
    raise RowError(
        "WRONG_TYPE",
        f"parameter :{field.name} has type {kind}, which is none of the language's",
        field=field.name,
        got=str(kind),
    )


_KINDS: dict[str | None, Type] = {
    None: TEXT,
    "boolean": BOOLEAN,
    "bigint": BIGINT,
    "double": DOUBLE,
    "text": TEXT,
    "timestamp": TIMESTAMP,
    "date": DATE,
}
_ARROW = (
    (pa.types.is_boolean, BOOLEAN),
    (pa.types.is_integer, BIGINT),
    (pa.types.is_floating, DOUBLE),
    (pa.types.is_string, TEXT),
    (pa.types.is_large_string, TEXT),
    (pa.types.is_timestamp, TIMESTAMP),
    (pa.types.is_date, DATE),
)
