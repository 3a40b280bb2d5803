"""Typed values of the wire ↔ Arrow. The one place that looks at values one by one."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from datastem.errors import RowError
from datastem.instants import MAX_INSTANT, MIN_INSTANT, SECOND
from datastem.schema import BATCH_COLUMNS, Column, StreamSchema
from datastem.types import Kind, Type
from psoup.v1 import psoup_pb2 as pb
from querystem.patterns import Pattern, Schemas, pattern_of
from querystem.query import Query

_EXACT = decimal.Context(prec=100, traps=[decimal.InvalidOperation])
_MAX_DIGITS = 80
_DECIMAL_FORM = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()


class BadValue(Exception):
    """A value that its column can't hold: (reason, problem). Stays in this module's callers."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


# ---- instants and durations


def to_instant(stamp: Timestamp) -> int:
    """Microseconds. Raises BadValue out of range, or finer than a microsecond."""
    if not 0 <= stamp.nanos < 10**9:
        raise BadValue("OUT_OF_RANGE", "its nanos are not within one second")
    if stamp.nanos % 1000:
        raise BadValue("TOO_FINE", "is finer than a microsecond")
    micros = stamp.seconds * SECOND + stamp.nanos // 1000
    if not MIN_INSTANT <= micros <= MAX_INSTANT:
        raise BadValue("OUT_OF_RANGE", "is outside the years 0001 to 9999")
    return micros


def from_instant(micros: int) -> Timestamp:
    return Timestamp(seconds=micros // SECOND, nanos=micros % SECOND * 1000)


def to_micros(duration: Duration) -> int:
    """Raises BadValue for a negative one, or one longer than ten thousand years."""
    micros = duration.seconds * SECOND + duration.nanos // 1000
    if not 0 <= micros <= MAX_INSTANT - MIN_INSTANT:
        raise BadValue("OUT_OF_RANGE", "is negative, or longer than time")
    return micros


def from_duration(micros: int) -> Duration:
    """Never negative here."""
    return Duration(seconds=micros // SECOND, nanos=micros % SECOND * 1000)


# ---- values sent → Arrow


def to_table(rows: pb.Rows, schema: StreamSchema) -> pa.Table:
    """Raises RowError for rows that are not as long as the columns, or values of another type.

    Columns the stream does not have are carried on, for `accept` to refuse by name.
    """
    check_width(rows)
    declared = {column.name: column for column in BATCH_COLUMNS}
    declared |= {
        label: replace(column, name=label)
        for label, column in schema.accepted_labels(MIN_INSTANT).items()
    }
    arrays = [_column(rows, place, declared.get(name)) for place, name in enumerate(rows.columns)]
    return pa.Table.from_arrays(arrays, names=list(rows.columns))


def check_width(rows: pb.Rows) -> None:
    """Raises RowError for a row with more or fewer values than there are columns."""
    width = len(rows.columns)
    for number, row in enumerate(rows.rows):
        if len(row.values) != width:
            raise RowError(
                "WRONG_LENGTH",
                f"row {number} has {len(row.values)} values for {width} columns",
                row=number,
                expected=f"{width} values",
                got=f"{len(row.values)} values",
                hint="leave a value unset for NULL, but send one for every column",
            )


def _column(rows: pb.Rows, place: int, column: Column | None) -> pa.Array:
    if column is None:
        return pa.nulls(len(rows.rows))
    read = _READ[column.type.kind]
    values = []
    for number, row in enumerate(rows.rows):
        value = row.values[place]
        kind = value.WhichOneof("kind")
        try:
            values.append(None if kind is None else read(kind, getattr(value, kind), column.type))
        except BadValue as bad:
            got = str(getattr(value, kind or "")).strip()[:100]
            raise RowError(
                bad.reason,
                f"column {column.name}, row {number}: {got} {bad}",
                row=number,
                field=column.name,
                expected=str(column.type),
                got=got,
            ) from None
    # The values are microseconds or days since 1970. A view takes the numbers as they are.
    if column.type.kind in (Kind.TIMESTAMP, Kind.DATE):
        width = pa.int64() if column.type.kind is Kind.TIMESTAMP else pa.int32()
        return pa.array(values, width).view(column.type.arrow)
    return pa.array(values, column.type.arrow)


def _wrong(kind: str, type_: Type) -> BadValue:
    return BadValue("WRONG_TYPE", f"is a {kind} and the column is {type_}")


def _plain(wanted: str) -> Callable[[str, Any, Type], Any]:
    def read(kind: str, value: Any, type_: Type) -> Any:
        if kind != wanted:
            raise _wrong(kind, type_)
        return value

    return read


def _double(kind: str, value: Any, type_: Type) -> float:
    if kind == "double":
        return float(value)
    if kind != "bigint":
        raise _wrong(kind, type_)
    # Beyond 2 ** 53 not every integer has a DOUBLE.
    if int(float(value)) != value:
        raise BadValue("NOT_EXACT", "is an integer no DOUBLE holds exactly")
    return float(value)


def _decimal(kind: str, value: Any, type_: Type) -> decimal.Decimal:
    if kind not in ("decimal", "bigint"):
        raise _wrong(kind, type_)
    number = parse_decimal(str(value))
    try:
        exact = number.quantize(decimal.Decimal(1).scaleb(-type_.scale), context=_EXACT)
    except decimal.InvalidOperation:
        raise BadValue("NOT_EXACT", f"has more digits than {type_}") from None
    if exact != number or len(exact.as_tuple().digits) > type_.precision:
        raise BadValue("NOT_EXACT", f"has more digits than {type_}")
    return exact


def parse_decimal(text: str) -> decimal.Decimal:
    """Raise BadValue if a text is no number of docs/reference/protocol.md, or absurdly long."""
    # The length comes first: a long text is refused without being parsed.
    plain = len(text) <= 2 * _MAX_DIGITS and _DECIMAL_FORM.fullmatch(text) is not None
    number = decimal.Decimal(text) if plain else None
    if number is None or abs(number.adjusted()) > _MAX_DIGITS:
        raise BadValue("BAD_VALUE", "is not a decimal number such as -12.50")
    return number


def _timestamp(kind: str, value: Any, type_: Type) -> int:
    if kind != "timestamp":
        raise _wrong(kind, type_)
    return to_instant(value)


def _date(kind: str, value: Any, type_: Type) -> int:
    if kind != "date":
        raise _wrong(kind, type_)
    return parse_date(value).toordinal() - _EPOCH_DAY


def parse_date(text: str) -> datetime.date:
    try:
        # Python also reads other ISO forms, such as 20261116 and 2026-W47-1.
        if not _DATE.fullmatch(text):
            raise ValueError
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise BadValue("BAD_VALUE", "is not a date such as 2026-11-16") from None


_READ: dict[Kind, Callable[[str, Any, Type], Any]] = {
    Kind.BOOLEAN: _plain("boolean"),
    Kind.BIGINT: _plain("bigint"),
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.TEXT: _plain("text"),
    Kind.TIMESTAMP: _timestamp,
    Kind.DATE: _date,
}


# ---- Arrow → values


def to_rows(
    batches: Iterable[pa.RecordBatch], columns: Sequence[Column], limit: int
) -> Iterator[pb.Rows]:
    """The rows in messages of about `limit` bytes, at least one row each."""
    names = [column.name for column in columns]
    message, size = pb.Rows(columns=names), 0
    for batch in batches:
        series = [to_values(batch.column(place), c.type) for place, c in enumerate(columns)]
        for values in zip(*series, strict=True):
            row = pb.Row(values=values)
            size += row.ByteSize()
            # A row larger than the limit goes alone: rows are not split.
            if size > limit and message.rows:
                yield message
                message, size = pb.Rows(columns=names), row.ByteSize()
            message.rows.append(row)
    if message.rows:
        yield message


def to_values(array: pa.Array, type_: Type) -> list[pb.Value]:
    make = _MAKE[type_.kind]
    if type_.kind is Kind.TIMESTAMP:
        # As integers: Python's datetimes are slower to make, and only to be taken apart again.
        array = array.view(pa.int64())
    return [pb.Value() if value is None else make(value) for value in array.to_pylist()]


_MAKE: dict[Kind, Callable[[Any], pb.Value]] = {
    Kind.BOOLEAN: lambda value: pb.Value(boolean=value),
    Kind.BIGINT: lambda value: pb.Value(bigint=value),
    Kind.DOUBLE: lambda value: pb.Value(double=value),
    Kind.DECIMAL: lambda value: pb.Value(decimal=format(value, "f")),
    Kind.TEXT: lambda value: pb.Value(text=value),
    Kind.TIMESTAMP: lambda value: pb.Value(timestamp=from_instant(value)),
    Kind.DATE: lambda value: pb.Value(date=value.isoformat()),
}


# ---- columns and patterns


_PATTERNS = {
    Pattern.MON: pb.UPDATE_PATTERN_MON,
    Pattern.WKS: pb.UPDATE_PATTERN_WKS,
    Pattern.WK: pb.UPDATE_PATTERN_WK,
    Pattern.STR: pb.UPDATE_PATTERN_STR,
}


@lru_cache(maxsize=4096)
def columns_message(columns: tuple[Column, ...]) -> Sequence[pb.Column]:
    """The columns of a stream or an answer as messages, which are shared and not to be changed."""
    return list(map(_column_message, columns))


def _column_message(column: Column) -> pb.Column:
    message = pb.Column(name=column.name, type=str(column.type), optional=column.is_optional)
    if column.default is not None:
        message.default.CopyFrom(to_values(column.fill(1), column.type)[0])
    return message


def pattern_message(query: Query, schemas: Schemas) -> pb.UpdatePattern:
    return pattern_number(pattern_of(query, schemas))


def pattern_number(pattern: Pattern) -> pb.UpdatePattern:
    return _PATTERNS[pattern]
