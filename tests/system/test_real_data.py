"""Real rows, published with the command line; queries as in the PSoup paper and as clients write
them; DuckDB as judge."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from client_sdk import Client
from tests.support.system.duck import Judge, close
from tests.support.system.processes import REPOSITORY, RunningStore
from tests.support.system.question import values_of
from tests.support.system.real_queries import (
    CLIMATE,
    CLIMATE_QUERIES,
    TICKS,
    TICKS_CONDITIONS,
    TICKS_QUERIES,
    TICKS_WINDOWS,
    TRAFFIC,
    TRAFFIC_CONDITIONS,
    TRAFFIC_QUERIES,
    TRAFFIC_WINDOWS,
)

pytestmark = [pytest.mark.process, pytest.mark.spark]


def psoup(target: str, tenant: str, *arguments: str, code: int = 0) -> str:
    """Run the command line as a user does; return what it printed."""
    command = [sys.executable, "-m", "psoup.cli", "--target", target, "--tenant", tenant]
    done = subprocess.run([*command, *arguments], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def check_windows(
    client: Client, judge: Judge, handles: dict[str, bytes], windows: dict[str, str]
) -> int:
    """Check the answers of all windows; return their number of rows."""
    count = 0
    for where, handle in handles.items():
        for window, condition in windows.items():
            answer = values_of(client.invoke(handle, window=window))
            sql = f"SELECT ts, row_id FROM known WHERE ({where}) AND {condition} ORDER BY 1, 2"
            assert answer == judge.answer(sql), f"{where} {window}"
            count += len(answer)
    return count


def check_queries(client: Client, judge: Judge, queries: dict[str, str], middle: datetime) -> None:
    """Check queries now and as of the middle of the data; registered, and asked once."""
    for sql, judge_sql in queries.items():
        handle = client.register(sql, key=sql)
        assert close(values_of(client.invoke(handle)), judge.answer(judge_sql)), sql
        expected = judge.answer(judge_sql, middle)
        assert expected, "nothing to compare"
        answer = client.invoke(handle, as_of=middle, knowledge="today")
        assert close(values_of(answer), expected), sql
        assert close(values_of(client.ask(sql, as_of=middle, knowledge="today")), expected), sql


@pytest.mark.long
def test_a_day_of_traffic(
    client: Client, tenant: str, running: RunningStore, shared_data: Path, tmp_path: Path
) -> None:
    day = tmp_path / "day.csv"
    with gzip.open(shared_data / "traffic" / "speeds_3days.csv.gz", "rt") as whole:
        day.write_text("".join(line for line in whole if line[:10] in ("2012-03-01", "ts,station")))
    types = {"ts": "TIMESTAMP", "station": "BIGINT", "speed_mph": "DOUBLE"}
    client.define(TRAFFIC)
    register = {
        w: f"SELECT ts, row_id FROM traffic WHERE {w} RANGE 1 HOUR" for w in TRAFFIC_CONDITIONS
    }
    handles = {where: client.register(sql).handle for where, sql in list(register.items())[:3]}
    psoup(running.targets[0], tenant, "publish", "traffic", str(day))
    handles |= {where: client.register(sql).handle for where, sql in list(register.items())[3:]}
    judge, noon = Judge(day, types), datetime(2012, 3, 1, 12, 7, tzinfo=UTC)
    assert client.stream("traffic").row_count == 59_616
    assert check_windows(client, judge, handles, TRAFFIC_WINDOWS) > 1000
    check_queries(client, judge, TRAFFIC_QUERIES, noon)
    running.wait_until_matched(client)
    check_windows(client, judge, handles, TRAFFIC_WINDOWS)
    check_queries(client, judge, TRAFFIC_QUERIES, noon)


@pytest.mark.long
def test_a_day_of_trades(
    client: Client, tenant: str, running: RunningStore, shared_data: Path
) -> None:
    path = shared_data / "ticks" / "trades.csv.gz"
    types = {
        "ts": "TIMESTAMP", "symbol": "VARCHAR", "price": "DOUBLE", "size": "BIGINT",
        "exchange": "VARCHAR", "sale_condition": "VARCHAR", "suspicious": "BIGINT",
    }  # fmt: skip
    client.define(TICKS)
    register = {
        w: f"SELECT ts, row_id FROM trades WHERE {w} RANGE 5 HOURS" for w in TICKS_CONDITIONS
    }
    handles = {where: client.register(sql).handle for where, sql in list(register.items())[:3]}
    psoup(running.targets[0], tenant, "publish", "trades", str(path))
    psoup(running.targets[0], tenant, "publish", "trades", str(path))
    handles |= {where: client.register(sql).handle for where, sql in list(register.items())[3:]}
    judge, noon = Judge(path, types), datetime(2013, 10, 7, 12, tzinfo=UTC)
    assert client.stream("trades").row_count == 388_417
    assert check_windows(client, judge, handles, TICKS_WINDOWS) > 1000
    check_queries(client, judge, TICKS_QUERIES, noon)
    running.wait_until_matched(client)
    check_windows(client, judge, handles, TICKS_WINDOWS)
    check_queries(client, judge, TICKS_QUERIES, noon)


def test_a_room_s_climate(
    client: Client, tenant: str, running: RunningStore, shared_data: Path, tmp_path: Path
) -> None:
    """Its lines have a number that its header does not name: refused, then published by name."""
    target, original = running.targets[0], shared_data / "rooms" / "climate.csv"
    client.define(CLIMATE)
    names = {"date": "ts", "HumidityRatio": "humidity_ratio"}
    names |= {name: name.lower() for name in ("Temperature", "Humidity", "Light", "Occupancy")}
    renamed = [
        f"--rename={file_name}={column}" for file_name, column in {**names, "CO2": "co2"}.items()
    ]
    refused = psoup(target, tenant, "publish", "climate", str(original), *renamed, code=1)
    assert "has 8 fields, not 7" in refused and client.stream("climate").row_count == 0
    whole = tmp_path / "climate.csv"
    whole.write_text('"number",' + original.read_text())
    psoup(target, tenant, "publish", "climate", str(whole), *renamed, "--drop=number")
    assert client.stream("climate").row_count == 2665
    numbers = ("temperature", "humidity", "light", "co2", "humidity_ratio")
    types = {"number": "BIGINT", "ts": "TIMESTAMP", **dict.fromkeys(numbers, "DOUBLE")}
    judge = Judge(whole, {**types, "occupancy": "BIGINT"})
    check_queries(client, judge, CLIMATE_QUERIES, datetime(2015, 2, 3, 9, 30, tzinfo=UTC))
    query = "SELECT occupancy, count(*) AS n FROM climate GROUP BY occupancy RANGE 1 HOUR"
    answer = json.loads(psoup(target, tenant, "ask", query, "--format", "json"))["rows"]
    counted = "SELECT occupancy, count(*) FROM known WHERE ts > {now} - INTERVAL 1 HOUR GROUP BY 1"
    assert [tuple(row.values()) for row in answer] == judge.answer(counted + " ORDER BY 1")
