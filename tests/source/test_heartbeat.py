"""Heartbeats of idle sources."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

from client_sdk import AsyncClient, Client
from psoup.cli import cli
from psoup.source.errors import BadSettings
from psoup.source.feeding.feed import Feed
from psoup.source.feeding.heartbeat import PartitionProgress, ReachedTime, heartbeat_instant
from psoup.source.feeding.piece import Mark, Piece
from psoup.source.settings import load_settings
from tests.source.conftest import Sources
from tests.support.client_sdk.fake_store import FakeStore

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
EMPTY = PartitionProgress(is_idle=True, has_rows=False, reached=None)


def idle(instant: int, at: float) -> PartitionProgress:
    return PartitionProgress(True, True, ReachedTime(instant, at))


@pytest.mark.parametrize(
    ("partitions", "instant"),
    [
        ([], None),
        ([EMPTY], None),
        ([idle(5_000_000, 90.0)], 15_000_000),
        # The least of them, each with the time since its last row.
        ([idle(5_000_000, 90.0), idle(9_000_000, 80.0), EMPTY], 15_000_000),
        ([idle(5_000_000, 40.0), idle(9_000_000, 89.0)], 20_000_000),
        # One is not at its end, has published lately, or is not known.
        ([idle(5_000_000, 90.0), PartitionProgress(False, True, ReachedTime(1, 1.0))], None),
        ([idle(5_000_000, 90.0), idle(7_000_000, 98.0)], None),
        ([idle(5_000_000, 90.0), PartitionProgress(True, True, None)], None),
        # A clock that was set back.
        ([idle(5_000_000, 500.0)], None),
    ],
)
def test_the_instant_of_a_heartbeat(
    partitions: list[PartitionProgress], instant: int | None
) -> None:
    assert heartbeat_instant(partitions, now=100.0, quiet_seconds=5.0) == instant


class TimedReader:
    """A reader of one row for each second, in the order that is given."""

    can_seek = True
    at_end = False

    def __init__(self, seconds: list[int], at: Mark) -> None:
        self._seconds = seconds[int(at.get("at", 0)) :]
        self._at = int(at.get("at", 0))

    def poll(self, seconds: float) -> Piece | None:
        schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
        if not self._seconds:
            return Piece(schema.empty_table(), is_last=True)
        self._at += 1
        instant = START + timedelta(seconds=self._seconds.pop(0))
        return Piece(pa.table({"at": [instant]}, schema=schema), mark={"at": self._at})

    def acknowledge(self, mark: Mark) -> None: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


async def test_the_greatest_event_time_is_in_the_mark() -> None:
    transport = FakeStore().transport()
    Client(transport=transport).define("CREATE STREAM s (at TIMESTAMP) ORDERED BY at")
    expected = int(START.timestamp() + 9) * 1_000_000
    async with AsyncClient(transport=transport) as client:
        stream = await client.stream("s")
        for seconds in ([1, 9, 4], [1, 9, 4, 2]):
            reader = partial(TimedReader, seconds)
            feed = Feed(client, stream, "p", reader, beats=True)
            await feed.run()
            record = await feed.record()
            assert record is not None and f'"reached":{expected}'.encode() in record.mark
            assert feed.reached is not None and feed.reached.instant == expected
            assert feed.progress().has_rows


@pytest.mark.process
def test_an_idle_source_moves_now_also_after_a_restart(sources: Sources, tmp_path: Path) -> None:
    client = sources.client
    client.define("CREATE STREAM s (k BIGINT, at TIMESTAMP) ORDERED BY at")
    client.define("CREATE STREAM clock (k BIGINT)")
    client.define("CREATE STREAM placed (k BIGINT, at TIMESTAMP) ORDERED BY at CLOCK")
    table = pa.table({"k": [1], "at": pa.array([START], pa.timestamp("us", "UTC"))})
    deltalake.write_deltalake(str(tmp_path / "table"), table)

    def write(stream: str) -> None:
        place = f'delta = {{ table = "table" }}\nstream = "{stream}"'
        sources.write(f'[sources.d]\n{place}\nidle_heartbeat = "1s"\n')

    def has_come(seconds: float) -> bool:
        now = client.stream("s").now
        return now is not None and now >= START + timedelta(seconds=seconds)

    write("s")
    for seconds in (1, 3):
        process = sources.start()
        sources.wait_for(partial(has_come, seconds))
        process.kill()
    assert client.stream("s").row_count == 1
    for stream, problem in (("clock", "has no ORDERED BY"), ("placed", "has ORDERED BY … CLOCK")):
        write(stream)
        check = CliRunner().invoke(cli, ["source", "check", str(sources.file)])
        assert check.exit_code == 2 and problem in check.output, check.output


@pytest.mark.parametrize(
    ("place", "text", "message"),
    [
        ('files = "*.csv"', "10s", "is for kafka"),
        ('delta = { table = "t" }', "ten", "not a duration"),
        ('delta = { table = "t" }', "0s", "a second or more"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, place: str, text: str, message: str) -> None:
    file = tmp_path / "sources.toml"
    file.write_text(f'[sources.d]\n{place}\nstream = "s"\nidle_heartbeat = "{text}"\n')
    with pytest.raises(BadSettings, match=message):
        load_settings(file)
