"""The seven types that columns have, the durations that only expressions have, and the Arrow form
of each."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

import pyarrow as pa

MAX_PRECISION = 38


class Kind(enum.Enum):
    BOOLEAN = "BOOLEAN"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    TEXT = "TEXT"
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"
    # Microseconds, of expressions only: no column, output, key or parameter has this kind.
    DURATION = "DURATION"


@dataclass(frozen=True, slots=True)
class Type:
    """A type of the language; `str()` writes it as SQL does, and `parse_type` reads that back."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision},{self.scale})"
        return str(self.kind.value)

    @property
    def arrow(self) -> pa.DataType:
        if self.kind is Kind.DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        return _ARROW[self.kind]

    @property
    def is_numeric(self) -> bool:
        return self.kind in _NUMERIC


BOOLEAN = Type(Kind.BOOLEAN)
BIGINT = Type(Kind.BIGINT)
DOUBLE = Type(Kind.DOUBLE)
TEXT = Type(Kind.TEXT)
TIMESTAMP = Type(Kind.TIMESTAMP)
DATE = Type(Kind.DATE)
DURATION = Type(Kind.DURATION)

COLUMN_KINDS = frozenset(Kind) - {Kind.DURATION}

_NUMERIC = frozenset({Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL})
_ARROW = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.DATE: pa.date32(),
    Kind.DURATION: pa.int64(),
}
_DECIMAL_TEXT = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def decimal_type(precision: int, scale: int) -> Type:
    """Return DECIMAL(precision, scale); raise ValueError unless 1 <= precision <= 38 and 0 <= scale
    <= precision."""
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        raise ValueError(f"DECIMAL({precision},{scale}): precision is 1..38, scale 0..precision")
    return Type(Kind.DECIMAL, precision, scale)


def parse_type(text: str) -> Type:
    """Return the type that `str()` writes as `text`; raise ValueError for any other text."""
    if match := _DECIMAL_TEXT.fullmatch(text):
        return decimal_type(int(match[1]), int(match[2]))
    kind = Kind(text)
    if kind is Kind.DECIMAL:
        raise ValueError("DECIMAL needs a precision and a scale: DECIMAL(10,2)")
    return Type(kind)
