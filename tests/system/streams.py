"""Random streams and rows: every type of the language, small domains so that rows meet
predicates, and now and then a value from the edge of its type."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from datastem.instants import HOUR
from datastem.schema import Column, StreamSchema
from datastem.types import parse_type

Row = dict[str, Any]

SECOND = timedelta(seconds=1)
COLUMNS = {
    "flag": "BOOLEAN",
    "n": "BIGINT",
    "m": "BIGINT",
    "x": "DOUBLE",
    "d": "DECIMAL(10,2)",
    "s": "TEXT",
    "t": "TIMESTAMP",
    "born": "DATE",
}
TEXTS = ["", "a", "A", "ab", "abc", "a%b", "a_b", "IBM", " x ", "o'k", "é", "日本", "z" * 300]
DAY = date(2026, 11, 16)


@dataclass(frozen=True)
class Shape:
    """A stream as its CREATE STREAM says; `start` is about where its event time begins."""

    name: str
    columns: dict[str, str]
    ordered_by: str | None
    retain: timedelta | None
    start: datetime
    key: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        declared = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        key = f" KEY ({', '.join(self.key)})" if self.key else ""
        order = f" ORDERED BY {self.ordered_by}" if self.ordered_by else ""
        retain = f" RETAIN {self.retain // SECOND} SECONDS" if self.retain else ""
        return f"CREATE STREAM {self.name} ({declared}){key}{order}{retain}"

    @property
    def schema(self) -> StreamSchema:
        return StreamSchema(
            self.name,
            tuple(Column(name, parse_type(kind)) for name, kind in self.columns.items()),
            self.ordered_by,
            None if self.retain is None else self.retain // timedelta(microseconds=1),
            HOUR,
            self.key,
        )


def random_shape(dice: Random, name: str) -> Shape:
    """Event time begins half an hour ago, so that it stays within AHEAD of the clock."""
    chosen = dice.sample(list(COLUMNS), dice.randint(3, len(COLUMNS)))
    columns = {column: COLUMNS[column] for column in chosen}
    ordered_by = None
    if dice.random() < 0.6:
        ordered_by = dice.choice(["seen", "ts"])
        columns[ordered_by] = "TIMESTAMP"
    retain = timedelta(seconds=dice.choice([60, 300, 1800])) if dice.random() < 0.5 else None
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=30)
    key = dice.sample(chosen, dice.choice([1, 2])) if ordered_by and dice.random() < 0.8 else []
    return Shape(name, columns, ordered_by, retain, start, tuple(key))


def random_rows(dice: Random, shape: Shape, count: int, now: datetime) -> list[Row]:
    """Rows dated up to a few seconds past `now`; one in eight is late, many are equally old.

    With a key one in eight is a delete.
    """
    rows = [
        {name: random_value(dice, kind, shape.start) for name, kind in shape.columns.items()}
        for _ in range(count)
    ]
    if shape.ordered_by:
        for row in rows:
            row[shape.ordered_by] = _event_time(dice, now)
            for name in shape.key:
                row[name] = _common(dice, shape.columns[name], shape.start)
            if shape.key:
                row["_op"] = "delete" if dice.random() < 0.125 else "row"
    return rows


def _event_time(dice: Random, now: datetime) -> datetime:
    if dice.random() < 0.125:
        return now - timedelta(seconds=dice.randint(1, 600))
    return now + timedelta(seconds=dice.randint(0, 4), microseconds=dice.choice([0, 0, 0, 1]))


def random_value(dice: Random, kind: str, start: datetime) -> Any:
    if dice.random() < 0.1:
        return None
    if dice.random() < 0.03:
        return dice.choice(_edges(kind))
    return _common(dice, kind, start)


def _common(dice: Random, kind: str, start: datetime) -> Any:
    match kind:
        case "BOOLEAN":
            return dice.random() < 0.5
        case "BIGINT":
            return dice.randint(-5, 10)
        case "DOUBLE":
            return dice.randint(-8, 32) / 4
        case "DECIMAL(10,2)":
            return Decimal(dice.randint(-200, 800)) / 100
        case "TEXT":
            return dice.choice(TEXTS)
        case "TIMESTAMP":
            return start + timedelta(seconds=dice.randint(0, 1800))
    return DAY + timedelta(days=dice.randint(-3, 3))


def _edges(kind: str) -> list[Any]:
    match kind:
        case "BIGINT":
            return [2**63 - 1, -(2**63), 2**53 + 1, 0]
        case "DOUBLE":
            return [math.nan, math.inf, -math.inf, -0.0, 1.7e308, 5e-324, 2.0**53]
        case "DECIMAL(10,2)":
            return [Decimal("99999999.99"), Decimal("-99999999.99"), Decimal("0.00")]
        case "TIMESTAMP":
            return [
                datetime(1, 1, 1, tzinfo=UTC),
                datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
                datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            ]
        case "DATE":
            return [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1)]
    return [None]
