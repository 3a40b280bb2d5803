"""Random streams with few values, so that rows of two of them meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from datastem.instants import SECOND, from_micros
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, DOUBLE, TEXT, TIMESTAMP, Type, decimal_type
from tests.oracle.clocks import Known
from tests.oracle.several.chance import Chance
from tests.oracle.trees import World

# Rows stand at whole seconds from 0 to LAST, and the clock a little later.
LAST = 24
CLOCK = (LAST + 2) * SECOND
MONEY = decimal_type(6, 2)

_COLUMNS = {"v": BIGINT, "m": MONEY, "d": DOUBLE, "t": TEXT}
_VALUES: dict[Type, Sequence[Any]] = {
    BIGINT: (1, 2, 3, 1, 0, -1, None),
    MONEY: (Decimal(1), Decimal("0.50"), Decimal(2), Decimal("0.30"), Decimal(-1), None),
    DOUBLE: (1.0, 0.5, 2.0, 0.0, -0.0, -1.0, float("nan"), None),
    TEXT: ("a", "b", "ab", "", "a\x00", None),
}


def world(chance: Chance, most: int = 4, rows: int = 9) -> World:
    """Return two streams or more, `s0`, `s1`, …; some have a key, or keep their rows for a while
    only."""
    kinds = chance.pick([(True,), (True,), (True,), (False,), (True, False)])
    drawn = [
        _stream(chance, f"s{number}", chance.pick(kinds), rows)
        for number in range(chance.number(2, most))
    ]
    return World({stream.schema.name: stream for stream in drawn}, CLOCK)


def _stream(chance: Chance, name: str, by_event: bool, most: int) -> Known:
    schema = random_schema(chance, name, by_event)
    drawn_rows = [
        random_row(chance, schema, _moment(chance))
        for _ in range(max(chance.number(0, most) for _ in range(2)))
    ]
    if not by_event:
        drawn_rows.sort(key=lambda row: row["ts"])
        return Known(schema, _numbered(chance, drawn_rows), CLOCK)
    moments = [row["ts"] for row in drawn_rows]
    if chance.one_in(3):
        moments.append(_moment(chance))
    return Known(schema, _numbered(chance, drawn_rows), max(moments, default=None))


def random_schema(chance: Chance, name: str, by_event: bool) -> StreamSchema:
    """Return a stream with a column `k`, which is its key if it has one, and up to four more."""
    chosen = [Column(column, type_) for column, type_ in _COLUMNS.items() if chance.one_in(2)]
    columns = (Column("k", BIGINT), *chosen)
    retain = chance.pick([None, None, None, 12 * SECOND, 20 * SECOND])
    schema = StreamSchema(name, columns, retain=retain)
    if by_event:
        schema = replace(schema, columns=(*columns, Column("at", TIMESTAMP)), ordered_by="at")
    return replace(schema, key=("k",)) if chance.one_in(4) else schema


def random_row(chance: Chance, schema: StreamSchema, ts: int) -> dict[str, Any]:
    """Return a row without its id, with `_op` if the stream has a key."""
    row = {
        column.name: chance.pick(_VALUES[column.type])
        for column in schema.columns
        if column.name != "at"
    }
    row["ts"] = ts
    if schema.key:
        row |= {"k": row["k"] or 0, "_op": "delete" if chance.one_in(4) else "row"}
    return row if schema.ordered_by is None else {**row, "at": from_micros(row["ts"])}


def _moment(chance: Chance) -> int:
    return chance.number(0, LAST) * SECOND


def _numbered(chance: Chance, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With ids, and positions in a log that other streams are in too."""
    steps = [chance.number(0, 3) for _ in rows]
    return [
        {**row, "row_id": place, "position": sum(steps[: place + 1])}
        for place, row in enumerate(rows)
    ]
