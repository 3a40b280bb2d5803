"""Columns, values and instants, converted between Python, Arrow and the wire.

Conversion is strict: a value arrives as it is or not at all. Integers widen, text stays text,
instants become UTC microseconds, decimals are never rounded. A datetime without a zone is UTC.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from psoup.v1 import psoup_pb2 as pb

TIMESTAMP = pa.timestamp("us", tz="UTC")

_ARROW = {
    "BOOLEAN": pa.bool_(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "TIMESTAMP": TIMESTAMP,
    "DATE": pa.date32(),
}
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")

_Test = Callable[[pa.DataType], bool]


def _is_text(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_string_view(type_)
    )


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _is_exact(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_decimal(type_))


# The Arrow types that a column of each kind takes. The cast checks whether the values fit.
_ACCEPTS: dict[str, _Test] = {
    "BOOLEAN": pa.types.is_boolean,
    "BIGINT": pa.types.is_integer,
    "DOUBLE": _is_number,
    "DECIMAL": _is_exact,
    "TEXT": _is_text,
    "TIMESTAMP": pa.types.is_timestamp,
    "DATE": pa.types.is_date,
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, and its type as SQL writes it: BOOLEAN, BIGINT, DOUBLE, DECIMAL(p,s),
    TEXT, …

    One that ALTER STREAM added is `optional`: rows without it have its `default`. Rows may use the
    `former` names of one that was renamed.
    """

    name: str
    type: str
    optional: bool = False
    default: Any = None
    former: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The type without its precision."""
        return self.type.partition("(")[0]

    @property
    def arrow(self) -> pa.DataType:
        """The type in Arrow. Raises ValueError for a type this version of the SDK does not know."""
        if match := _DECIMAL.fullmatch(self.type):
            return pa.decimal128(int(match[1]), int(match[2]))
        if self.type not in _ARROW:
            raise ValueError(f"column {self.name}: type {self.type} is newer than this SDK")
        return _ARROW[self.type]

    def fill(self, rows: int) -> pa.Array:
        """Return the values of rows that leave the column out."""
        return pa.repeat(pa.scalar(self.default, self.arrow), rows)

    def cast(self, array: pa.Array) -> pa.Array:
        """Return the array in this column's type, value for value.

        Raises TypeError if the column does not take the array's type, and ValueError if a value
        does not fit. Neither says which value.
        """
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if array.type == self.arrow:
            return array
        if pa.types.is_null(array.type):
            return array.cast(self.arrow)
        if not _ACCEPTS[self.kind](array.type):
            raise TypeError(f"{array.type} values can't go into {self.name} {self.type}")
        if self.kind == "TIMESTAMP" and array.type.tz is None:
            array = array.cast(pa.timestamp(array.type.unit, tz="UTC"))
        return pc.cast(array, self.arrow, safe=True)


def schema_of(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([(column.name, column.arrow) for column in columns])


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def utc(moment: datetime) -> datetime:
    """Return the instant in UTC. Raises ValueError for digits finer than a microsecond."""
    if getattr(moment, "nanosecond", 0):
        raise ValueError(f"{moment} is finer than a microsecond; round it first")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def timestamp(moment: datetime) -> Timestamp:
    # divmod rounds down, so nanos are not negative before 1970, as protobuf requires.
    seconds, nanos = divmod(to_micros(moment), 1_000_000)
    return Timestamp(seconds=seconds, nanos=nanos * 1000)


def moment(stamp: Timestamp) -> datetime:
    return EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def optional_moment(message: Message, field: str) -> datetime | None:
    return moment(getattr(message, field)) if message.HasField(field) else None


def to_micros(instant: datetime) -> int:
    """Return the microseconds since 1970."""
    # Division of timedeltas is exact; total_seconds() is a float and may lose microseconds.
    return (utc(instant) - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def duration(span: timedelta) -> Duration:
    message = Duration()
    message.FromTimedelta(span)
    return message


def span(message: Duration) -> timedelta:
    return timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


Scalar: TypeAlias = bool | int | float | decimal.Decimal | str | datetime | date | None


def to_value(value: Scalar) -> pb.Value:
    """Return the message of a Python value.

    Raises TypeError for any other type, ValueError for an int or decimal that does not fit.
    """
    # The order of the cases matters: a bool is an int, and a datetime is a date.
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
        case datetime():
            return pb.Value(timestamp=timestamp(value))
        case date():
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
            return date.fromisoformat(value.date)
    return None


# The limits of a message without Arrow: its bytes; its rows, values and names together.
MOST_TYPED_BYTES = 1 << 20
MOST_TYPED_FIELDS = 50_000

_ARROW_TYPES: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    datetime: TIMESTAMP,
    date: pa.date32(),
}


def to_arrow(table: Sequence[Mapping[str, Scalar]]) -> pa.Table:
    """Return an Arrow table whose values have the types that `to_rows` would give them.

    Raises ValueError for a column whose values have several types: Arrow has one for all.
    """
    names = _names(table)
    columns = [[row[name] for row in table] for name in names]
    arrays = [_array(name, values) for name, values in zip(names, columns, strict=True)]
    return pa.Table.from_arrays(arrays, names=names)


def _array(name: str, values: list[Scalar]) -> pa.Array:
    types = set(map(type, values)) - {type(None)}
    # The digits of a DECIMAL are part of its type.
    scales = {
        max(0, -int(value.as_tuple().exponent))
        for value in values
        if isinstance(value, decimal.Decimal) and value.is_finite()
    }
    if types == {decimal.Decimal} and len(scales) == 1:
        return pa.array(values, pa.decimal128(38, scales.pop()))
    if len(types) > 1 or not types <= _ARROW_TYPES.keys():
        kinds = ", ".join(sorted(type_.__name__ for type_ in types))
        raise ValueError(
            f"column {name} has values of several types ({kinds}), which only a table of at most "
            f"{MOST_TYPED_FIELDS:,} values may have; send it in several calls, or as Arrow"
        )
    if types == {datetime}:
        values = [utc(value) if isinstance(value, datetime) else None for value in values]
    return pa.array(values, _ARROW_TYPES[types.pop()] if types else pa.null())


def to_rows(table: Sequence[Mapping[str, Scalar]]) -> pb.Rows:
    """Return a table of typed values. Every row must have the keys of the first."""
    names = _names(table)
    rows = [pb.Row(values=[to_value(row[name]) for name in names]) for row in table]
    return pb.Rows(columns=names, rows=rows)


def _names(table: Sequence[Mapping[str, Scalar]]) -> list[str]:
    """Return the keys of the first row. Raises ValueError for a row that has others."""
    names = list(table[0]) if table else []
    for number, row in enumerate(table):
        if row.keys() != set(names):
            raise ValueError(f"row {number} has {sorted(row)}, the first row has {sorted(names)}")
    return names


def from_rows(message: pb.Rows, names: Sequence[str]) -> list[dict[str, Scalar]]:
    return [dict(zip(names, map(from_value, row.values), strict=True)) for row in message.rows]
