"""Columns as the wire describes them, and the one way a value gets into one.

Conversion is strict: a value arrives as it is or not at all. Integers widen, text stays text,
instants become UTC microseconds, decimals are never rounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

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


# Which Arrow types a column of each kind takes. Whether the values fit is the cast's to say.
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
    """A name and a type as SQL writes it: BOOLEAN, BIGINT, DOUBLE, DECIMAL(p,s), TEXT, …"""

    name: str
    type: str

    @property
    def kind(self) -> str:
        """The type without its precision."""
        return self.type.partition("(")[0]

    @property
    def arrow(self) -> pa.DataType:
        """Raises ValueError for a type this version of the SDK does not know."""
        if match := _DECIMAL.fullmatch(self.type):
            return pa.decimal128(int(match[1]), int(match[2]))
        if self.type not in _ARROW:
            raise ValueError(f"column {self.name}: type {self.type} is newer than this SDK")
        return _ARROW[self.type]

    def cast(self, array: pa.Array) -> pa.Array:
        """The array as this column's type, value for value.

        Raises TypeError where the array's type can't be meant for this column, and ValueError
        where a value does not fit; neither says which value.
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
