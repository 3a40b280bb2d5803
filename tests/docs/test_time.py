"""The page about time: its texts are accepted, and its report has yesterday's totals."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from datastem.instants import from_micros, to_micros
from psoup.cli import cli
from psoup.cli.connection import Connection
from tests.support.client_sdk.inside import InsideStore
from tests.support.docs.markdown import blocks, read, table

PAGE = read("docs/how-to/time.md")
STATEMENTS = [
    statement.strip() for block in blocks(PAGE, "sql") for statement in block.text.split(";")[:-1]
]
(PULL,) = re.findall(r"^psoup (pull .*)$", PAGE, re.MULTILINE)
MADRID = ZoneInfo("Europe/Madrid")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InsideStore]:
    inside = InsideStore(tmp_path)
    inside.clock = _madrid(29, 7)
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


def test_the_report_of_each_morning_is_written(
    store: InsideStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of the page at six in Madrid, of a day with 24 hours and of one with 23. Rows
    come at random instants, at each midnight, and a microsecond before."""
    chance = random.Random(1)
    midnights = [_madrid(day, 0) for day in (30, 31, 32)]
    mornings = [_madrid(day, 6) for day in (31, 32)]
    instants = {*midnights, *(instant - 1 for instant in midnights)}
    instants |= {chance.randrange(_madrid(29, 12), mornings[1]) for _ in range(25)}
    store.clock = _madrid(29, 8)
    names = {1: "north", 2: "south", 3: "west"}
    store.client.publish("regions", [{"id": id_, "name": name} for id_, name in names.items()])
    # Region 4 has no name, and no sale of region 3 is of these days.
    sales = [(instant, chance.choice([1, 2, 4]), chance.randrange(100)) for instant in instants]
    sales += [(instant, 1, 1_000) for instant in midnights]
    monkeypatch.chdir(tmp_path)
    for instant, region, amount in sorted([*sales, *((morning, 0, 0) for morning in mornings)]):
        store.clock = instant
        if region:
            store.client.publish("sales", [{"region": region, "amount": amount}])
            continue
        outcome = CliRunner().invoke(cli, shlex.split(PULL), obj=Connection(transport=store.line))
        assert outcome.exit_code == 0, outcome.output
        assert f"at {from_micros(instant):%Y-%m-%d} 04:00:00Z" in outcome.stdout
        report = pq.read_table(tmp_path / "daily.parquet")
        assert report.to_pylist() == _totals(sales, names, instant)


def _madrid(day: int, hour: int) -> int:
    """Return an hour of a day of March 2024, or of April."""
    local = datetime(2024, 3, 1, hour, tzinfo=MADRID) + timedelta(days=day - 1)
    return to_micros(local.astimezone(UTC))


def _date(instant: int) -> date:
    return from_micros(instant).astimezone(MADRID).date()


def _totals(
    sales: list[tuple[int, int, int]], names: dict[int, str], now: int
) -> list[dict[str, Any]]:
    """Return the totals of the local date before that of NOW, sale by sale."""
    totals: dict[str, list[int]] = {}
    for instant, region, amount in sales:
        if _date(instant) == _date(now) - timedelta(days=1) and region in names:
            totals.setdefault(names[region], []).append(amount)
    assert all(len(amounts) > 1 for amounts in totals.values()) and len(totals) == 2
    return [
        {"region": region, "sales": len(amounts), "total": sum(amounts)}
        for region, amounts in sorted(totals.items())
    ]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_the_timer_elapses_at_six_in_madrid() -> None:
    (expression,) = re.findall(r"^OnCalendar=(.*)$", PAGE, re.MULTILINE)
    base = "--base-time=2024-03-30 12:00:00 UTC"
    command = ["systemd-analyze", "calendar", "--iterations=2", base, expression]
    environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    shown = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert "2024-03-31 04:00:00 UTC" in shown.stdout and "2024-04-01 04:00:00 UTC" in shown.stdout
