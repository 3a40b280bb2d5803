"""DuckDB's answer to a written query: a third opinion, which never sees our tree."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from tests.oracle.clocks import clocks
from tests.oracle.comparing import Values
from tests.oracle.several.texts import Whole, duck_text, placed
from tests.oracle.strategies import to_batch
from tests.oracle.trees import World, rows_in_window

_NAIVE = pa.timestamp("us")


def duck_difference(
    duck: duckdb.DuckDBPyConnection, whole: Whole, world: World, answer: Sequence[Values]
) -> str:
    """Return how an answer without its LIMIT differs from DuckDB's; empty if it does not. Rows that
    ORDER BY leaves equal may stand in any order."""
    duck_rows = _ask(duck, whole, world)
    width = len(whole.outputs)
    if len(duck_rows) != len(answer):
        return f"{len(answer)} rows, not {len(duck_rows)}: {answer[:5]}, not {duck_rows[:5]}"
    place = 0
    for key, tied in itertools.groupby(duck_rows, key=lambda row: _plain(row[width:])):
        expected = Counter(_plain(row[:width]) for row in tied)
        size = expected.total()
        actual = Counter(_plain(row) for row in answer[place : place + size])
        if expected != actual:
            return f"at {place}, with {key}: {actual - expected} instead of {expected - actual}"
        place += size
    return ""


def _ask(duck: duckdb.DuckDBPyConnection, whole: Whole, world: World) -> list[Values]:
    """Return the outputs and then the values of ORDER BY of each row."""
    references = list(placed(whole))
    waiting = [place.awaited for place in references]
    times = clocks(waiting, world.streams, world.clock, world.as_of, world.latest)
    for number, place in enumerate(references):
        stream = world.streams[place.reference.stream.name]
        rows = [] if times.now is None else rows_in_window(place.window, stream, times)
        batch = to_batch(stream.schema, rows)
        columns = [
            array.cast(_NAIVE) if pa.types.is_timestamp(array.type) else array for array in batch
        ]
        duck.register(f"leg{number}", pa.table(columns, names=batch.schema.names))
    return duck.execute(duck_text(whole, times.now or 0)).fetchall()


def _plain(row: Values) -> Values:
    return tuple(_value(value) for value in row)


def _value(value: Any) -> Any:
    """Equal for equal values, whatever type a number has."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case Decimal() | float():
            return Decimal(value).normalize() + 0
        case datetime():
            return value.replace(tzinfo=UTC)
        case int() if not isinstance(value, bool):
            return Decimal(value)
    return value
