"""docs/how-to/analyse.md: its queries in DuckDB, deltalake and Spark agree with the store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from client_sdk import Client
from psoup.store import Store
from tests.support.docs.markdown import ROOT, blocks, read
from tests.support.server.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = read("docs/how-to/analyse.md")
START = datetime(2025, 11, 13, 8, tzinfo=UTC)
HEAVY = "SELECT id, weight FROM readings WHERE weight > 10 RANGE 10 MINUTES"


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    yield
    sys.modules.pop("analyst", None)


def _fill(client: Client) -> None:
    """Create two streams with rows, and register a query."""
    client.define(
        "CREATE STREAM parcels (id BIGINT, town TEXT, state TEXT, at TIMESTAMP)"
        " KEY (id) ORDERED BY at RETAIN 30 DAYS"
    )
    client.define(
        "CREATE STREAM readings (id BIGINT, weight DOUBLE, at TIMESTAMP)"
        " ORDERED BY at RETAIN 30 DAYS"
    )
    client.register(HEAVY, key="heavy")
    parcels = [
        {"id": number % 5, "town": "Delft", "state": f"s{number}", "at": _minute(number)}
        for number in range(20)
    ]
    client.publish("parcels", parcels)
    client.publish("parcels", [{"id": 3, "at": _minute(30), "_op": "delete"}])
    readings = [
        {"id": number, "weight": float(number % 17), "at": _minute(number / 2)}
        for number in range(60)
    ]
    client.publish("readings", readings)


def _minute(number: float) -> datetime:
    return START + timedelta(minutes=number)


def test_the_queries_give_what_the_store_answers(
    tmp_path: Path, tenant: str, spark: SparkSession, examples: None
) -> None:
    from tests.support.engine.pump import Pump

    folder = tmp_path / "store"
    server = ServerProcess(folder, "--durability", "none")
    try:
        with Client(server.address, tenant=tenant) as client:
            _fill(client)
            Pump(Store.open(folder), spark).run()
            _compare(client, tenant, folder, spark)
    finally:
        server.stop()


def _compare(client: Client, tenant: str, folder: Path, spark: SparkSession) -> None:
    """Run the page's Python, and compare its answers with the server's."""
    names: dict[str, Any] = {"spark": spark}
    for block in blocks(PAGE, "python"):
        place = f'STORE, TENANT = Path("{folder}"), "{tenant}"'
        exec(block.text.replace('STORE, TENANT = Path("my-store"), "main"', place), names)

    current = client.ask("SELECT id, town, state FROM parcels ORDER BY id").rows
    expected = [(row["id"], row["town"], row["state"]) for row in current]
    assert len(expected) == 4
    assert names["in_duckdb"] == names["in_arrow"] == names["in_spark"] == expected

    heavy = [(row["id"], row["weight"]) for row in client.ask(HEAVY).rows]
    assert len(heavy) > 3
    assert names["answer_in_duckdb"] == names["answer_in_arrow"] == heavy
    assert names["answer_in_spark"] == heavy

    tables = {entry["table"]: entry["stream"] for entry in names["catalogue"](names["STORE"])}
    assert {f"{tenant}.parcels", f"{tenant}.readings"} <= set(tables.values())
    assert {"catalog", "registrations", "matches", "coverage"} <= set(tables)
    assert all(Path(names["STORE"], table, "_delta_log").is_dir() for table in tables)
