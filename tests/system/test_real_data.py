"""Real rows, published with the command line; queries as in the PSoup paper; DuckDB as judge."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from client_sdk import Client
from tests.system.processes import REPOSITORY, RunningStore

pytestmark = [pytest.mark.process, pytest.mark.spark]

TRAFFIC = "CREATE STREAM traffic (ts TIMESTAMP, station BIGINT, speed_mph DOUBLE) ORDERED BY ts"
TICKS = (
    "CREATE STREAM trades (ts TIMESTAMP, symbol TEXT, price DOUBLE, size BIGINT, exchange TEXT, "
    "sale_condition TEXT, suspicious BIGINT) ORDERED BY ts"
)


# A window, and the condition over ts it is at the instant now.
TRAFFIC_WINDOWS = {
    "BEGIN '2012-03-01 07:00' END '2012-03-01 09:00'": (
        "ts BETWEEN '2012-03-01 07:00' AND '2012-03-01 09:00'"
    ),
    "BEGIN '2012-03-01 18:00' END NOW": "ts >= '2012-03-01 18:00'",
    "BEGIN NOW - 2 HOURS END NOW - 30 MINUTES": (
        "ts BETWEEN now - INTERVAL 2 HOUR AND now - INTERVAL 30 MINUTE"
    ),
    "RANGE 1 HOUR": "ts > now - INTERVAL 1 HOUR",
    "UNBOUNDED": "TRUE",
}
TRAFFIC_QUERIES = [
    "speed_mph > 65 AND station BETWEEN 767000 AND 768000",
    "speed_mph < 20",
    "station IN (773869, 767541, 717447) AND NOT speed_mph BETWEEN 30 AND 60",
    "station = 773869 OR speed_mph >= 70",
    "speed_mph = 0",
]
TICKS_WINDOWS = {
    "BEGIN '2013-10-07 09:30' END '2013-10-07 09:45'": (
        "ts BETWEEN '2013-10-07 09:30' AND '2013-10-07 09:45'"
    ),
    "BEGIN '2013-10-07 16:00:00.000' END NOW": "ts >= '2013-10-07 16:00'",
    "BEGIN NOW - 4 HOURS END NOW - 3 HOURS": (
        "ts BETWEEN now - INTERVAL 4 HOUR AND now - INTERVAL 3 HOUR"
    ),
    "RANGE 5 HOURS": "ts > now - INTERVAL 5 HOUR",
    "UNBOUNDED": "TRUE",
}
TICKS_QUERIES = [
    "symbol = 'IBM' AND price > 182.5",
    "symbol = 'IBM' AND (price > 183 OR size >= 10000)",
    "symbol = 'SPY' AND price >= 167.2 AND price < 167.25 AND size > 1000",
    "symbol IN ('AIG', 'BAC') AND exchange = 'D' AND size BETWEEN 5000 AND 20000",
    "suspicious = 1",
    "symbol <> 'SPY' AND sale_condition LIKE '2000%' AND NOT size = 100",
]


def psoup(target: str, tenant: str, *arguments: str) -> str:
    """The command line, as a user runs it."""
    command = [sys.executable, "-m", "psoup.cli", "--target", target, "--tenant", tenant]
    done = subprocess.run([*command, *arguments], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def judge(path: Path, types: dict[str, str]) -> duckdb.DuckDBPyConnection:
    """The file's rows in its order, which is the order they were published in."""
    connection = duckdb.connect()
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
    connection.execute(
        "CREATE TABLE file AS SELECT *, row_number() OVER () - 1 AS row_id FROM "
        f"read_csv('{path}', header = true, columns = {{{columns}}}, parallel = false)"
    )
    return connection


def check(
    client: Client,
    connection: duckdb.DuckDBPyConnection,
    asked: dict[str, bytes],
    windows: dict[str, str],
) -> int:
    """How many rows the answers had."""
    ((now,),) = connection.execute("SELECT max(ts) FROM file").fetchall()
    found = 0
    for where, handle in asked.items():
        for window, condition in windows.items():
            answer = client.invoke(handle, window=window).to_arrow()
            moment = condition.replace("now", f"TIMESTAMP '{now}'")
            expected = connection.sql(
                f"SELECT ts, row_id FROM file WHERE ({where}) AND {moment} ORDER BY ts, row_id"
            ).to_arrow_table()
            assert _micros(answer) == _micros(expected), f"{where} {window}"
            found += answer.num_rows
    return found


def _micros(table: pa.Table) -> list[Any]:
    return [table.column("ts").cast(pa.int64()).to_pylist(), table.column("row_id").to_pylist()]


def test_a_day_of_traffic(
    client: Client, tenant: str, running: RunningStore, shared_data: Path, tmp_path: Path
) -> None:
    day = tmp_path / "day.csv"
    with gzip.open(shared_data / "traffic" / "speeds_3days.csv.gz", "rt") as whole:
        day.write_text("".join(line for line in whole if line[:10] in ("2012-03-01", "ts,station")))
    types = {"ts": "TIMESTAMP", "station": "BIGINT", "speed_mph": "DOUBLE"}
    client.define(TRAFFIC)
    register = {
        w: f"SELECT ts, row_id FROM traffic WHERE {w} RANGE 1 HOUR" for w in TRAFFIC_QUERIES
    }
    asked = {where: client.register(sql).handle for where, sql in list(register.items())[:3]}
    psoup(running.targets[0], tenant, "publish", "traffic", str(day))
    asked |= {where: client.register(sql).handle for where, sql in list(register.items())[3:]}
    with judge(day, types) as connection:
        assert client.stream("traffic").row_count == 59_616
        assert check(client, connection, asked, TRAFFIC_WINDOWS) > 1000
        running.wait_until_matched(client)
        check(client, connection, asked, TRAFFIC_WINDOWS)


def test_a_day_of_trades(
    client: Client, tenant: str, running: RunningStore, shared_data: Path
) -> None:
    path = shared_data / "ticks" / "trades.csv.gz"
    types = {
        "ts": "TIMESTAMP", "symbol": "VARCHAR", "price": "DOUBLE", "size": "BIGINT",
        "exchange": "VARCHAR", "sale_condition": "VARCHAR", "suspicious": "BIGINT",
    }  # fmt: skip
    client.define(TICKS)
    register = {w: f"SELECT ts, row_id FROM trades WHERE {w} RANGE 5 HOURS" for w in TICKS_QUERIES}
    asked = {where: client.register(sql).handle for where, sql in list(register.items())[:3]}
    psoup(running.targets[0], tenant, "publish", "trades", str(path))
    psoup(running.targets[0], tenant, "publish", "trades", str(path))
    asked |= {where: client.register(sql).handle for where, sql in list(register.items())[3:]}
    with judge(path, types) as connection:
        assert client.stream("trades").row_count == 388_417
        assert check(client, connection, asked, TICKS_WINDOWS) > 1000
        running.wait_until_matched(client)
        check(client, connection, asked, TICKS_WINDOWS)
