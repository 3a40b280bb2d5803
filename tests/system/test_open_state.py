"""All state is open: with `deltalake` and DuckDB alone, an answer follows from the tables.

Nothing of this project's code reads here, but the roaring bitmaps' own library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyroaring
import pytest

from client_sdk import Client
from tests.support.generators import TRAFFIC_SQL, traffic
from tests.support.system.processes import RunningStore

pytestmark = [pytest.mark.process, pytest.mark.spark]

HANDED = "SELECT row_id, station, speed FROM traffic WHERE"


@dataclass(frozen=True)
class Tables:
    """The tables of a store at the versions its newest epoch names."""

    folder: Path

    @property
    def epoch(self) -> dict[str, Any]:
        epochs = _read(self.folder / "epochs").to_pylist()
        return max(epochs, key=lambda row: row["epoch"])

    def table(self, name: str) -> pa.Table:
        return _read(self.folder / name, dict(self.epoch["versions"])[name])

    def mark(self, stream_id: int) -> dict[str, Any]:
        return next(mark for mark in self.epoch["streams"] if mark["stream_id"] == stream_id)

    def stem(self, stream_id: int) -> pa.Table:
        return _read(self.folder / "stems" / str(stream_id), self.mark(stream_id)["version"])

    def registration(self, handle: bytes) -> dict[str, Any]:
        rows = [row for row in self.table("registrations").to_pylist() if row["handle"] == handle]
        return max(rows, key=lambda row: row["position"])

    def covered(self, stream_id: int, predicate_id: int) -> set[int]:
        """The ids of all rows the predicate has been matched over."""
        high = self.mark(stream_id)["high"]
        return {
            row_id
            for row in self.table("coverage").to_pylist()
            if row["stream_id"] == stream_id
            and row["predicate_lo"] <= predicate_id < row["predicate_hi"]
            for row_id in range(row["row_lo"], high if row["row_hi"] is None else row["row_hi"])
        }

    def matches(self, stream_id: int, predicate_id: int) -> list[int]:
        """The ids of the rows that match, piece by piece."""
        pieces = [
            row
            for row in self.table("matches").to_pylist()
            if (row["stream_id"], row["predicate_id"]) == (stream_id, predicate_id)
        ]
        found = []
        for piece in pieces:
            lows = pyroaring.BitMap.deserialize(piece["bitmap"])
            assert len(lows) == piece["count"]
            ids = [(piece["block"] << 16) + low for low in lows]
            assert all(piece["lo"] <= row_id < piece["hi"] for row_id in ids)
            found += ids
        return found


def _read(folder: Path, version: int | None = None) -> pa.Table:
    return pa.table(deltalake.DeltaTable(folder, version=version).to_pyarrow_table())


def derived(tables: Tables, handle: bytes) -> list[dict[str, Any]]:
    """The answer of a registration whose window is all that is retained."""
    registration = tables.registration(handle)
    stream_id, predicate_id = registration["stream_id"], registration["predicate_id"]
    stem = tables.stem(stream_id)
    ids = tables.matches(stream_id, predicate_id)
    assert len(ids) == len(set(ids)), "pieces of a block are disjoint"
    assert tables.covered(stream_id, predicate_id) == set(stem.column("_row_id").to_pylist())
    matched = pa.table({"id": pa.array(ids, pa.int64())})
    with duckdb.connect() as connection:
        connection.register("stem", stem)
        connection.register("matched", matched)
        found = connection.execute(
            "SELECT _row_id AS row_id, station, speed FROM stem JOIN matched ON _row_id = id "
            "ORDER BY _ts, _row_id"
        ).fetchall()
    return [dict(zip(("row_id", "station", "speed"), row, strict=True)) for row in found]


def test_an_answer_follows_from_stems_matches_and_coverage_alone(
    client: Client, running: RunningStore
) -> None:
    client.define(TRAFFIC_SQL + " ORDERED BY at")
    early = client.register(f"{HANDED} speed > 90 AND lane <> 3").handle
    client.publish("traffic", traffic(3000, seed=3, late=0.2, nulls=0.1))
    late = client.register(f"{HANDED} station BETWEEN 2 AND 4 OR speed IS NULL").handle
    none = client.register(f"{HANDED} speed > 1000").handle
    client.publish("traffic", traffic(500, seed=4, late=0.2))
    running.wait_until_matched(client)
    tables = Tables(running.store)
    for handle in (early, late, none):
        assert derived(tables, handle) == client.invoke(handle).rows
    assert client.invoke(none).row_count == 0 < client.invoke(early).row_count


def test_registrations_and_streams_can_be_read_as_tables(
    client: Client, running: RunningStore
) -> None:
    client.define("CREATE STREAM s (a BIGINT, d DECIMAL(8,3)) RETAIN 2 DAYS")
    query = client.register("SELECT a FROM s WHERE d > :least", parameters={"least": 1}, key="mine")
    client.publish("s", [{"a": 1, "d": None}], publisher="someone", sequence=1)
    running.wait_until_matched(client)
    tables = Tables(running.store)
    row = tables.registration(query.handle)
    assert (row["client_key"], row["ended"]) == ("mine", False)
    assert row["text"] == "SELECT a FROM s WHERE d > :least"
    catalog = [each for each in tables.table("catalog").to_pylist() if each["name"] == "s"]
    stream = next(each for each in catalog if each["stream_id"] == row["stream_id"])
    assert json.loads(stream["schema"])["columns"] == [["a", "BIGINT"], ["d", "DECIMAL(8,3)"]]
    publishers = tables.table("publishers").to_pylist()
    assert ("someone", 1) in {(each["publisher"], each["sequence"]) for each in publishers}
