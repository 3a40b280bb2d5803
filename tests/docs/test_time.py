"""The page about time: its texts are accepted, and its report has yesterday's totals."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from client_sdk import Client
from datastem.instants import HOUR, to_micros
from psoup.cli import cli
from querystem.language.tokens.literals import read_timestamp
from tests.support.client_sdk.inside import InsideStore
from tests.support.docs.markdown import blocks, read, table
from tests.support.server.process import ServerProcess

PAGE = read("docs/how-to/time.md")
STATEMENTS = [
    statement.strip() for block in blocks(PAGE, "sql") for statement in block.text.split(";")[:-1]
]
(PULL,) = re.findall(r"^psoup (pull .*)$", PAGE, re.MULTILINE)
SATURDAY = to_micros(read_timestamp("2024-03-30 12:00"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InsideStore]:
    inside = InsideStore(tmp_path)
    inside.clock = SATURDAY
    for statement in STATEMENTS:
        inside.client.define(statement)
    yield inside
    inside.close()


def test_every_text_is_accepted(store: InsideStore) -> None:
    texts = [row[1].strip("`") for row in table(PAGE, "question", "text")]
    assert len(texts) > 8
    for text in texts:
        assert store.client.register(text).handle


def test_the_window_to_avoid_is_noted(store: InsideStore) -> None:
    registered = store.client.register("SELECT * FROM sales RANGE 1 DAY SLIDE 1 DAY")
    assert "DURING YESTERDAY has whole days" in registered.notes[0]
    store.client.define("CREATE STREAM timed (at TIMESTAMP) ORDERED BY at")
    registered = store.client.register("SELECT * FROM timed DURING TODAY")
    assert "is that of its last row" in registered.notes[0]


def test_the_report_has_yesterday_s_totals_per_region(store: InsideStore) -> None:
    """Sunday has 23 hours in Madrid, and begins at 23:00 UTC."""
    client = store.client
    client.publish("regions", [{"id": 1, "name": "north"}, {"id": 2, "name": "south"}])
    handle = client.register("SELECT * FROM daily ORDER BY region").handle
    for hours, amount in ((10.9, 1), (11, 10), (33.9, 100), (34, 1000)):
        store.clock = SATURDAY + int(hours * HOUR)
        client.publish("sales", [{"region": 1, "amount": amount}, {"region": 2, "amount": 0}])
    store.clock = SATURDAY + 40 * HOUR
    assert client.invoke(handle).rows == [
        {"region": "north", "sales": 2, "total": 110},
        {"region": "south", "sales": 2, "total": 0},
    ]


def test_the_pull_writes_a_parquet_file(
    shared_server: ServerProcess, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(shared_server.address, tenant=tenant) as client:
        for statement in STATEMENTS:
            client.define(statement)
    monkeypatch.chdir(tmp_path)
    options = ["--target", shared_server.address, "--tenant", tenant]
    outcome = CliRunner().invoke(cli, [*options, *shlex.split(PULL)])
    assert outcome.exit_code == 0, outcome.output
    report = pq.read_table(tmp_path / "daily.parquet")
    assert report.column_names == ["region", "sales", "total"] and not report.num_rows
