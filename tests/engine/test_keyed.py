"""Keyed streams in the engine: closures, deletes, retention; the oracle's, on real Spark."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from datastem.instants import HOUR, MINUTE
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, DOUBLE, TIMESTAMP
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from tests.oracle.keyed import Keyed
from tests.support.engine.author import Author, above
from tests.support.engine.pump import Pump
from tests.support.engine.reading import covered, matched, stem_rows

pytestmark = pytest.mark.spark

KEYED = Keyed(("sensor",))
COLUMNS = (Column("sensor", BIGINT), Column("value", DOUBLE), Column("at", TIMESTAMP))
LAZY = EngineSettings(housekeeping=0.0, merge_files=100, grace=0.0)
EAGER = EngineSettings(housekeeping=0.0, merge_files=3, grace=0.0)


def keyed(retain: int | None = None) -> StreamSchema:
    return StreamSchema("latest", COLUMNS, ordered_by="at", retain=retain, key=("sensor",))


class Story:
    """Random rows of a few keys, some late, some deletes, and the rows so far."""

    def __init__(self, author: Author, schema: StreamSchema, seed: int) -> None:
        self.stream = author.create(schema)
        self._author = author
        self._schema = schema
        self._dice = random.Random(seed)
        self.rows: list[dict[str, Any]] = []
        self.minute = 10_000

    def publish(self, count: int, keys: int = 5) -> None:
        dice, first = self._dice, len(self.rows)
        for row_id in range(first, first + count):
            self.minute += dice.choice((0, 1))
            late = dice.choice((0, 0, 0, 1, 30))
            self.rows.append(
                {
                    "row_id": row_id,
                    "sensor": dice.randrange(keys),
                    "value": float(dice.randrange(10)),
                    "ts": (self.minute - late) * MINUTE,
                    "_op": "delete" if dice.random() < 0.2 else "row",
                }
            )
        new = self.rows[first:]
        columns = [
            pa.array([int(row["_op"] == "delete") for row in new], pa.int8()),
            pa.array([row["sensor"] for row in new], pa.int64()),
            pa.array([row["value"] for row in new], pa.float64()),
            pa.array([row["ts"] for row in new], pa.int64()).view(pa.timestamp("us", "UTC")),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema.payload)
        self._author.publish(self.stream, batch)

    @property
    def reached(self) -> int:
        return int(max(row["ts"] for row in self.rows))

    def matching(self) -> list[int]:
        return [r["row_id"] for r in self.rows if r["_op"] == "row" and r["value"] > 4]


def closures(store: Store, stream: int) -> list[dict[str, Any]]:
    _, epoch = store.epochs.latest()
    folder = store.table("closures")
    stored: list[dict[str, Any]] = []
    for file in store.snapshot(epoch, "closures").files.values():
        table = pq.ParquetFile(folder.path_of(file)).read()
        order = list(zip(table["row_id"].to_pylist(), table["by"].to_pylist(), strict=True))
        assert order == sorted(order), "a file of closures is sorted by row and cause"
        rows = table.set_column(1, "end", table["end"].cast(pa.int64())).to_pylist()
        assert all(row["row_id"] >> 20 == int(file.partition["segment"]) for row in rows)
        stored += rows if int(file.partition["stream_id"]) == stream else []
    assert all(row["row_id"] <= row["by"] and row["epoch"] <= epoch.number for row in stored)
    return stored


def ends(closures: list[dict[str, Any]], high: int) -> dict[int, int | None]:
    """Return the end of each row as the format page defines it: the least one of its closures."""
    ends_by_row: dict[int, int | None] = dict.fromkeys(range(high))
    for row in closures:
        if row["by"] < high:
            old = ends_by_row[row["row_id"]]
            ends_by_row[row["row_id"]] = row["end"] if old is None else min(old, row["end"])
    return ends_by_row


def test_closures_are_the_oracle_s_ends_at_every_position(
    store: Store, author: Author, spark: SparkSession
) -> None:
    story = Story(author, keyed(), 1)
    _, predicate = author.register(story.stream, above(4.0))
    pump = Pump(store, spark, LAZY)
    for turn in range(6):
        for _ in range(turn % 3 + 1):
            story.publish(7)
        pump.step()
        if turn == 3:
            pump = Pump(store, spark, LAZY)
    stored = closures(store, story.stream)
    for high in range(len(story.rows) + 1):
        assert ends(stored, high) == KEYED.ends(story.rows[:high])
    assert matched(store, predicate) == story.matching(), "a delete matches nothing"
    _, late = author.register(story.stream, above(4.0))
    Pump(store, spark, EAGER).run()
    assert matched(store, late) == story.matching()
    merged = closures(store, story.stream)
    assert sorted(map(repr, merged)) == sorted(map(repr, stored))
    assert len(store.snapshot(store.epochs.latest()[1], "closures").files) < 6


def test_an_unfinished_step_leaves_no_closures(
    store: Store, author: Author, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(author, keyed(), 2)
    pump = Pump(store, spark, LAZY)
    story.publish(10)
    pump.step()
    story.publish(10)

    def fail(*_: object) -> None:
        raise RuntimeError("before the epoch")

    monkeypatch.setattr(pump.ledger, "publish", fail)
    with pytest.raises(RuntimeError):
        pump.step()
    pump = Pump(store, spark, LAZY)
    assert ends(closures(store, story.stream), 10) == KEYED.ends(story.rows[:10])
    pump.step()
    assert ends(closures(store, story.stream), 20) == KEYED.ends(story.rows)


def test_retention_leaves_the_ends_that_may_be_seen(
    store: Store, author: Author, spark: SparkSession
) -> None:
    """Files are thinned out; retained rows are stored, with their ends, and match as before."""
    story = Story(author, keyed(retain=HOUR), 3)
    _, predicate = author.register(story.stream, above(4.0))
    pump = Pump(store, spark, EAGER)
    for turn in range(6):
        story.publish(60, keys=3 if turn else 50)
        pump.run()
    retained = KEYED.retained(story.rows, story.reached, HOUR)
    retained_ids = [row["row_id"] for row in retained]
    stored_ids = [row["_row_id"] for row in stem_rows(store, story.stream)]
    assert set(retained_ids) <= set(stored_ids)
    assert len(retained_ids) < len(stored_ids) < len(story.rows) // 2, (
        "half of a file may be gone rows"
    )
    assert sum(row["ts"] <= story.reached - HOUR for row in retained) > 20, "old but current"
    stored = closures(store, story.stream)
    assert {row["row_id"] for row in stored} <= set(stored_ids)
    expected = KEYED.ends(story.rows)
    got = ends([row for row in stored if row["row_id"] in set(retained_ids)], len(story.rows))
    assert {row: got[row] for row in retained_ids} == {row: expected[row] for row in retained_ids}
    retained_matches = set(matched(store, predicate)) & set(retained_ids)
    assert retained_matches == set(story.matching()) & set(retained_ids)
    _, late = author.register(story.stream, above(4.0))
    again = Pump(store, spark, EAGER)
    again.run()
    assert covered(store, story.stream, late)[0][1] == len(story.rows)
    assert set(retained_ids) & set(matched(store, late)) == retained_matches
    story.publish(5)
    again.run()
    fresh = ends([r for r in closures(store, story.stream) if r["row_id"] in retained_ids], 10**6)
    truth = KEYED.ends(story.rows)
    still = {row["row_id"] for row in KEYED.retained(story.rows, story.reached, HOUR)} & set(
        retained_ids
    )
    assert {row: fresh[row] for row in still} == {row: truth[row] for row in still}
