"""All state is open: with `deltalake` and DuckDB alone, an answer follows from the tables.

None of this project's code is used here, only the library of roaring bitmaps.
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
        """Return the epoch's mark of a stream, or of a composite."""
        epoch = self.epoch
        composed = (
            {**composite, "stream_id": composite["composite_id"]}
            for composite in epoch["composites"]
        )
        marks = (*epoch["streams"], *composed)
        return next(mark for mark in marks if mark["stream_id"] == stream_id)

    def stem(self, stream_id: int) -> pa.Table:
        return _read(self.folder / "stems" / str(stream_id), self.mark(stream_id)["version"])

    def registration(self, handle: bytes) -> dict[str, Any]:
        rows = [row for row in self.table("registrations").to_pylist() if row["handle"] == handle]
        return max(rows, key=lambda row: row["position"])

    def covered(self, stream_id: int, predicate_id: int) -> set[int]:
        """Return the ids of all rows that the predicate was matched with."""
        high = self.mark(stream_id)["high"]
        return {
            row_id
            for row in self.table("coverage").to_pylist()
            if row["stream_id"] == stream_id
            and row["predicate_lo"] <= predicate_id < row["predicate_hi"]
            for row_id in range(row["row_lo"], high if row["row_hi"] is None else row["row_hi"])
        }

    def matches(self, stream_id: int, predicate_id: int) -> list[int]:
        """Return the ids of the rows that match, piece by piece."""
        pieces = [
            row
            for row in self.table("matches").to_pylist()
            if (row["stream_id"], row["predicate_id"]) == (stream_id, predicate_id)
        ]
        matching_ids = []
        for piece in pieces:
            lows = pyroaring.BitMap.deserialize(piece["bitmap"])
            assert len(lows) == piece["count"]
            ids = [(piece["block"] << 16) + low for low in lows]
            assert all(piece["lo"] <= row_id < piece["hi"] for row_id in ids)
            matching_ids += ids
        return matching_ids


def _read(folder: Path, version: int | None = None) -> pa.Table:
    return pa.table(deltalake.DeltaTable(folder, version=version).to_pyarrow_table())


def derived(tables: Tables, handle: bytes) -> list[dict[str, Any]]:
    """Return the answer of a registration whose window holds all retained rows."""
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
        rows = connection.execute(
            "SELECT _row_id AS row_id, station, speed FROM stem JOIN matched ON _row_id = id "
            "ORDER BY _ts, _row_id"
        ).fetchall()
    return [dict(zip(("row_id", "station", "speed"), row, strict=True)) for row in rows]


def derived_join(tables: Tables, handle: bytes, sql: str) -> list[tuple[Any, ...]]:
    """Return the answer of a registered join whose windows hold all retained rows: `sql` selects
    columns of its legs, whose order in the tables is that of their random stream ids."""
    registration = tables.registration(handle)
    composite_id = registration["composite_id"]
    predicate_id = registration["composite_predicate_id"]
    composites = [
        row for row in tables.table("composites").to_pylist() if row["composite_id"] == composite_id
    ]
    legs = max(composites, key=lambda row: row["position"])["legs"]
    mark, stem = tables.mark(composite_id), tables.stem(composite_id)
    tops = [tables.mark(stream_id)["high"] for stream_id in legs]
    assert (mark["since"], mark["highs"], mark["suspended"]) == (0, tops, False)
    local = {leg["predicate_id"] for leg in (registration, *registration["more_legs"])}
    assert local <= {id_ for admitted in mark["admitted"] for id_ in admitted}
    assert set(stem.column("_row_id").to_pylist()) <= tables.covered(composite_id, predicate_id)
    ids = tables.matches(composite_id, predicate_id)
    with duckdb.connect() as connection:
        connection.register("combinations", stem)
        connection.register("matched", pa.table({"id": pa.array(ids, pa.int64())}))
        joined = ""
        for number, stream_id in enumerate(legs):
            connection.register(f"leg{number}", tables.stem(stream_id))
            joined += f" JOIN leg{number} ON leg{number}._row_id = _part{number}"
        return connection.execute(
            f"{sql} FROM combinations JOIN matched ON combinations._row_id = id{joined}"
        ).fetchall()


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


def test_the_answer_of_a_join_follows_from_combinations_and_stems_alone(
    client: Client, running: RunningStore
) -> None:
    client.define("CREATE STREAM orders (item BIGINT, amount BIGINT)")
    client.define("CREATE STREAM items (item DECIMAL(8,1), name TEXT)")
    sql = (
        "SELECT i.name, o.amount FROM items i JOIN orders o ON o.item = i.item"
        " WHERE o.amount > 2 AND i.name <> 'n3' AND o.amount < i.item + 6"
    )
    early = client.register(sql).handle
    for first in (0, 5):
        client.publish("orders", [{"item": n % 7, "amount": n} for n in range(first, first + 9)])
        client.publish("items", [{"item": n, "name": f"n{n}"} for n in range(first, first + 5)])
    late = client.register(sql.replace("> 2", "> 3")).handle
    for handle in (early, late):
        answer = client.invoke(handle, wait_for_engine=True, timeout=300)
        assert (answer.computed_rows, answer.joined_pairs) == (0, 0)
        derived_rows = derived_join(Tables(running.store), handle, "SELECT name, amount")
        assert sorted(derived_rows) == sorted((row["name"], row["amount"]) for row in answer.rows)
        assert len(derived_rows) >= 5


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
    catalog = [record for record in tables.table("catalog").to_pylist() if record["name"] == "s"]
    stream = next(record for record in catalog if record["stream_id"] == row["stream_id"])
    assert json.loads(stream["schema"])["columns"] == [["a", "BIGINT"], ["d", "DECIMAL(8,3)"]]
    publishers = tables.table("publishers").to_pylist()
    assert ("someone", 1) in {(record["publisher"], record["sequence"]) for record in publishers}
