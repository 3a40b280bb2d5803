"""RETAIN of streams with a validity: rows leave the store by the end of their validity, whatever
kills the engine, and no answer changes."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.instants import DAY, HOUR, MINUTE
from datastem.memory import Memory
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.engine.maintain.retain import Thin
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from querystem.expressions import TRUE
from querystem.language import CreateStream, parse_statement
from tests.support.engine.author import Author, above
from tests.support.engine.pump import Pump
from tests.support.engine.reading import stem_rows

pytestmark = pytest.mark.spark

BOOKINGS = (
    "CREATE STREAM bookings (value DOUBLE, starts TIMESTAMP, ends TIMESTAMP)"
    " VALID FROM starts UNTIL ends RETAIN 1 HOUR"
)
EAGER = EngineSettings(
    housekeeping=0.0, grace=0.0, trim_commits=2, checkpoint_commits=4, merge_files=3
)
# What a window holds at NOW: a begin and an end, both included.
WINDOWS = {
    "": (0, 0),
    "RANGE 30 MINUTES": (1 - 30 * MINUTE, 0),
    "BEGIN NOW END NOW + 1 DAY": (0, DAY),
    "UNBOUNDED": (-HOUR + 1, 1 << 60),
}
Row = dict[str, Any]


class Bookings:
    """Random bookings in a store, and the rows that were published."""

    def __init__(self, store: Store, author: Author) -> None:
        self.store, self.author, self.rows = store, author, list[Row]()
        self.chance = random.Random(7)
        statement = parse_statement(BOOKINGS)
        assert isinstance(statement, CreateStream)
        self.schema = statement.schema
        self.stream = author.create(self.schema)
        author.register(self.stream, TRUE)
        author.register(self.stream, above(0.5))

    @property
    def clock(self) -> int:
        return self.author._clock

    def publish(self, count: int) -> None:
        rows = [self._row() for _ in range(count)]
        self.rows += rows
        names = self.schema.arrow.names
        columns = [[row[name] for row in rows] for name in names]
        arrays = [pa.array(c, pa.int64()) if n != "value" else pa.array(c)
                  for n, c in zip(names, columns, strict=True)]  # fmt: skip
        typed = [array.cast(f.type) for array, f in zip(arrays, self.schema.arrow, strict=True)]
        batch = pa.RecordBatch.from_arrays(typed, schema=self.schema.arrow)
        self.author.publish(self.stream, batch)

    def _row(self) -> Row:
        starts = self.clock + self.chance.randrange(-4 * HOUR, HOUR)
        lasts = self.chance.choice([1, MINUTE, HOUR, HOUR, 9 * HOUR, None])
        ends = None if lasts is None else starts + lasts
        return {"value": self.chance.random(), "starts": starts, "ends": ends}

    def expected(self, begin: int, last: int, least: float) -> list[float]:
        rows = [
            row["value"]
            for row in self.rows
            if row["value"] > least and row["starts"] <= self.clock + last
            if row["ends"] is None or row["ends"] > self.clock + begin
        ]
        return sorted(rows)

    def check(self) -> None:
        """Assert that all answers are there, whatever was removed."""
        store = Store.open(self.store.root)
        replica = Replica.open(store, Memory(1 << 24))
        maker, view = AnswerMaker(store), View.at(replica, self.clock)
        for window, (begin, last) in WINDOWS.items():
            for where, least in (("", -1.0), ("WHERE value > 0.5", 0.5)):
                sql = f"SELECT value FROM bookings {where} {window}".strip()
                answer = maker.answer(view, Question.of_text(sql, view.state)).table
                values = sorted(answer.column("value").to_pylist())
                assert values == self.expected(begin, last, least), sql


def test_rows_leave_when_their_validity_has_ended(
    store: Store, author: Author, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookings = Bookings(store, author)
    stored: list[Row] = []
    for age in (0, 2 * HOUR, 20 * HOUR):
        author._clock += age
        pump = Pump(store, spark, EAGER)
        for _ in range(3):
            bookings.publish(15)
            pump.step()
        _kill_once(pump, monkeypatch)
        bookings.check()
        pump = Pump(store, spark, EAGER)
        pump.run()
        bookings.check()
        stored = stem_rows(store, bookings.stream)
        ids = {row["_row_id"] for row in stored}
        assert ids >= {
            row_id
            for row_id, row in enumerate(bookings.rows)
            if row["ends"] is None or row["ends"] > bookings.clock - HOUR
        }
    assert len(stored) < len(bookings.rows) // 2


def _kill_once(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    """End an engine between the commit of a file without ended rows and its epoch."""

    def killed(reason: str) -> None:
        raise InterruptedError(reason)

    with monkeypatch.context() as patched:
        patched.setattr(pump.ledger, "publish", killed)
        with suppress(InterruptedError):
            Thin(pump.spark, EAGER).advance(pump.ledger)
