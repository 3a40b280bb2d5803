"""A registered query and its naive answer: a loop over lists, remembered row by row."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from datastem.instants import MAX_INSTANT, to_micros
from querystem.language import bind_query
from querystem.query import Query
from results.window import UNBOUNDED
from tests.oracle.answers import naive_answer
from tests.oracle.keyed import Keyed
from tests.system.streams import Row, Shape
from tests.system.windows import TimeWindow

Values = tuple[Any, ...]


@dataclass
class Question:
    """`select` is the text up to the window, which has a meaning of its own here.

    Rows never change, so what one of them contributes is found out once.
    """

    shape: Shape
    select: str
    window: TimeWindow
    plain: bool = False
    query: Query = field(init=False)
    _known: dict[int, list[Values]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        schema = self.shape.schema
        bound = bind_query(self.select, lambda name: schema if name == schema.name else None)
        self.query = replace(bound, window=UNBOUNDED)

    @property
    def sql(self) -> str:
        return f"{self.select} {self.window.sql}".strip()

    @property
    def where(self) -> str:
        """The text of the condition; `TRUE` where it has none."""
        return self.select.partition(" WHERE ")[2] or "TRUE"

    def naive(
        self,
        rows: Iterable[Row],
        now: datetime | None,
        window: TimeWindow,
        current: datetime | None = None,
    ) -> list[Values]:
        """The answer over these rows, by (ts, row_id)."""
        inside = self.inside(rows, now, window, current)
        return [values for row in inside for values in self._contribution(row)]

    def inside(
        self,
        rows: Iterable[Row],
        now: datetime | None,
        window: TimeWindow,
        current: datetime | None = None,
        every: Iterable[Row] = (),
    ) -> list[Row]:
        """What the window chooses, in order. `current` is the stream's NOW where `now` is not.

        Of a keyed stream `every` row ever accepted decides which of them are retained and current;
        without it, all of them are.
        """
        if now is None:
            return []
        retain = self.shape.retain
        if self.shape.key:
            retain = None
            rows = self._current(list(rows), now, current or now, list(every)) if every else rows
        chosen = [row for row in rows if window.keeps(row["ts"], now, retain, current)]
        return sorted(chosen, key=lambda row: (row["ts"], row["row_id"]))

    def _current(
        self, rows: list[Row], now: datetime, reached: datetime, every: list[Row]
    ) -> list[Row]:
        keyed = Keyed(self.shape.key, len(rows), to_micros(reached))
        timed = [row | {"ts": to_micros(row["ts"])} for row in every]
        retain = self.shape.schema.retain
        left = keyed.known(keyed.retained(timed, to_micros(now), retain))
        chosen = {row["row_id"] for row in keyed.current(left, to_micros(now))}
        return [row for row in rows if row["row_id"] in chosen]

    def _contribution(self, row: Row) -> list[Values]:
        known = self._known.get(row["row_id"])
        if known is None:
            micros = row | {"ts": to_micros(row["ts"])}
            known = [
                comparable(values) for values in naive_answer(self.query, [micros], MAX_INSTANT)
            ]
            self._known[row["row_id"]] = known
        return known


def comparable(values: Iterable[Any]) -> Values:
    """Values that are equal where the language says so: NaN is NaN, and -0.0 is 0.0."""
    return tuple(_comparable(value) for value in values)


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value
