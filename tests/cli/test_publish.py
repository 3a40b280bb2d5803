"""Files into streams: whole, once, and bad lines by number."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from client_sdk import Client, ConnectionFailed, InvalidRequest, MockTransport
from psoup.cli import load
from tests.cli.conftest import TRADES, Run

GOOD = """At,symbol,price,size
2026-01-05 09:00:00,IBM,99.5,1
2026-01-05T09:05:00+01:00,"D,E
C",,2

2026-01-05 09:09:00.250,"",101,
"""


@pytest.fixture(autouse=True)
def trades(run: Run) -> None:
    run("stream", "create", TRADES)


def rows(client: Client) -> list[tuple[object, ...]]:
    answer = client.invoke(client.register("SELECT * FROM trades"))
    return sorted(tuple(row.values()) for row in answer)


EXPECTED = [
    (datetime(2026, 1, 5, 8, 5, tzinfo=UTC), "D,E\nC", None, 2),
    (datetime(2026, 1, 5, 9, 0, tzinfo=UTC), "IBM", 99.5, 1),
    (datetime(2026, 1, 5, 9, 9, 0, 250_000, tzinfo=UTC), "", 101.0, None),
]


@pytest.mark.parametrize("name", ["day.csv", "day.csv.gz"])
def test_csv(run: Run, client: Client, tmp_path: Path, name: str) -> None:
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wt") as file:
        file.write(GOOD)
    assert "3 rows in trades" in run("publish", "trades", str(tmp_path / name)).stderr
    assert rows(client) == EXPECTED


@pytest.mark.parametrize("name", ["day.jsonl", "day.ndjson.gz"])
def test_json_lines(run: Run, client: Client, tmp_path: Path, name: str) -> None:
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wt") as file:
        for at, symbol, price, size in EXPECTED:
            row = {"At": at.isoformat(), "symbol": symbol, "price": price, "size": size}
            file.write(json.dumps(row) + "\n\n")
    run("publish", "trades", str(tmp_path / name))
    assert rows(client) == EXPECTED


def test_parquet(run: Run, client: Client, tmp_path: Path) -> None:
    columns = list(zip(*EXPECTED, strict=True))
    table = pa.table(
        {
            "size": pa.array(columns[3], pa.int16()),
            "at": pa.array(columns[0], pa.timestamp("ms", tz="UTC")),
            "price": pa.array(columns[2], pa.float32()),
            "symbol": pa.array(columns[1]).dictionary_encode(),
        }
    )
    pa.parquet.write_table(table, tmp_path / "day.parquet")
    run("publish", "trades", str(tmp_path / "day.parquet"))
    assert rows(client) == EXPECTED


def test_the_same_file_again_publishes_nothing(run: Run, client: Client, tmp_path: Path) -> None:
    for name in ("day.csv", "copy.csv"):
        (tmp_path / name).write_text(GOOD)
    run("publish", "trades", str(tmp_path / "day.csv"))
    again = run("publish", "trades", str(tmp_path / "copy.csv"))
    assert "3 already stored" in again.stderr
    assert "copy.csv was published before" in again.stderr
    assert len(rows(client)) == 3
    run("publish", "trades", str(tmp_path / "day.csv"), "--publisher", "once-more")
    assert len(rows(client)) == 6


def test_a_stream_made_anew_takes_the_file_anew(run: Run, client: Client, tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text(GOOD)
    for _ in range(2):
        run("publish", "trades", str(tmp_path / "day.csv"))
        assert client.stream("trades").row_count == 3
        run("stream", "drop", "trades", "--yes")
        run("stream", "create", TRADES)


BAD = """at,symbol,price,size
2026-01-05 09:00:00,IBM,1.5,1
2026-01-05 09:01:00,"two
lines",cheap,1

2026-01-05 09:02:00,IBM,1.5
2026-13-05 09:03:00,IBM,1.5,1
2026-01-05 09:04:00,IBM,1.5,0x1A
2026-01-05 09:05:00,IBM,1.5,9223372036854775808
,IBM,1.5,1
2026-01-05 09:07:00,\udcff,1.5,1
2026-01-05 09:08:00.1234567,IBM,1.5,1
2026-01-05 09:09:00,IBM,2.5,7
"""


def test_bad_lines_are_named_and_nothing_is_published(
    run: Run, client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "day.csv"
    path.write_text(BAD, errors="surrogateescape")
    messages = run("publish", "trades", str(path), code=1).stderr
    assert [line.split(": ")[0] for line in messages.splitlines() if line.startswith("line ")] == [
        "line 3, price",
        "line 6",
        "line 7, at",
        "line 8, size",
        "line 9, size",
        "line 10, at",
        "line 11, symbol",
        "line 12, at",
    ]
    assert "'cheap' is not DOUBLE" in messages
    assert "has 3 fields, not 4" in messages
    assert "can't be NULL" in messages
    assert "is not UTF-8" in messages
    assert "nothing was published" in messages
    assert client.stream("trades").row_count == 0


def test_good_lines_are_published_where_asked(run: Run, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text(BAD, errors="surrogateescape")
    messages = run("publish", "trades", str(path), "--skip-bad").stderr
    assert "2 rows in trades, 8 bad lines skipped" in messages
    assert [row[3] for row in rows(client)] == [1, 7]


def test_bad_json_lines_are_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    good = {"at": "2026-01-05T09:00:00Z", "symbol": "IBM", "price": 1, "size": 1}
    lines = [
        good,
        good | {"size": 1.5},
        good | {"symbol": 5},
        {"at": None},
        good | {"at": None},
        good | {"size": 2**70},
        good | {"more": 1},
        [1],
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{\n")
    messages = run("publish", "trades", str(path), code=1).stderr
    assert [line.split(": ")[0] for line in messages.splitlines() if line.startswith("line ")] == [
        "line 2, size",
        "line 3, symbol",
        "line 4",
        "line 5, at",
        "line 6, size",
        "line 7",
        "line 8",
        "line 9",
    ]
    assert "missing: symbol, price, size" in messages
    assert "unknown: more" in messages


def test_bad_parquet_rows_are_named(run: Run, tmp_path: Path) -> None:
    table = pa.table(
        {
            "at": pa.array([0, 1, 2], pa.timestamp("ns", tz="UTC")),
            "symbol": ["a", "b", "c"],
            "price": [1.0, 2.0, 3.0],
            "size": pa.array([1, 2, 2**63], pa.uint64()),
        }
    )
    pa.parquet.write_table(table, tmp_path / "day.parquet")
    messages = run("publish", "trades", str(tmp_path / "day.parquet"), code=1).stderr
    assert "line 2, at" in messages
    assert "line 3, at" in messages
    wrong = table.set_column(3, "size", pa.array(["1", "2", "3"]))
    pa.parquet.write_table(wrong, tmp_path / "wrong.parquet")
    messages = run("publish", "trades", str(tmp_path / "wrong.parquet"), code=2).stderr
    assert "string values can't go into size BIGINT" in messages


def test_columns_are_renamed_dropped_and_null(run: Run, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("when,symbol,price,size,venue\n2026-01-05,NA,NA,NA,x\n")
    result = run("publish", "trades", str(path), code=2).stderr
    assert "missing: at" in result
    assert "unknown: when, venue" in result
    options = ["--rename", "when=at", "--drop", "venue", "--null", "NA"]
    run("publish", "trades", str(path), *options)
    assert rows(client) == [(datetime(2026, 1, 5, tzinfo=UTC), None, None, None)]


def test_a_heartbeat_with_and_without_a_file(run: Run, client: Client, tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text(GOOD)
    run("publish", "trades", str(tmp_path / "day.csv"), "--heartbeat", "2026-01-06")
    assert client.stream("trades").now == datetime(2026, 1, 6, tzinfo=UTC)
    run("publish", "trades", "--heartbeat", "2026-01-07T00:00")
    assert client.stream("trades").now == datetime(2026, 1, 7, tzinfo=UTC)
    run("publish", "trades", code=2)


@pytest.mark.parametrize("name", ["day.txt", "day"])
def test_an_unknown_format_is_wrong_usage(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(GOOD)
    assert "unknown format" in run("publish", "trades", str(tmp_path / name), code=2).stderr


def test_files_without_rows(run: Run, client: Client, tmp_path: Path) -> None:
    (tmp_path / "header.csv").write_text("at,symbol,price,size\n")
    assert "0 rows in trades" in run("publish", "trades", str(tmp_path / "header.csv")).stderr
    (tmp_path / "empty.csv").write_text("")
    assert "is empty" in run("publish", "trades", str(tmp_path / "empty.csv"), code=2).stderr


def test_a_cut_is_said_and_carried_on_from(
    run: Run,
    client: Client,
    transport: MockTransport,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("psoup.source.readers.READ_BYTES", 2_000)
    monkeypatch.setattr("client_sdk._grpc.effects.Retry.pause", lambda self, made: 0.0)
    path = tmp_path / "day.csv"
    lines = [f"2026-01-05 09:00:00,IBM,1.5,{n}\n" for n in range(1000)]
    path.write_text("at,symbol,price,size\n" + "".join(lines))
    real, up = transport._handlers["Publish"], True

    def cut(request: object) -> object:
        if not up and request.sequence > 5:  # type: ignore[attr-defined]
            raise ConnectionFailed("cut")
        return real(request)

    transport._handlers["Publish"] = cut
    up = False
    messages = run("publish", "trades", str(path), code=3).stderr
    assert "only partly" in messages
    half = client.stream("trades").row_count
    assert 0 < half < 1000
    assert f"{half:,} rows (" in messages
    up = True
    assert f"{half:,} already stored" in run("publish", "trades", str(path)).stderr
    assert [row[3] for row in rows(client)] == list(range(1000))


def test_a_refusal_says_that_nothing_was_published(
    run: Run, client: Client, transport: MockTransport, tmp_path: Path
) -> None:
    def refuse(request: object) -> object:
        raise InvalidRequest("the ts is more than AHEAD past the clock")

    path = tmp_path / "day.csv"
    path.write_text(GOOD)
    transport._handlers["Publish"] = refuse
    messages = run("publish", "trades", str(path), code=1).stderr
    assert "nothing of day.csv was published" in messages
    assert client.stream("trades").row_count == 0


def test_a_file_that_changes_under_our_hands_is_refused(
    run: Run, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "day.csv"
    path.write_text(GOOD)
    stamps = iter([(1, 1), (2, 2)])
    monkeypatch.setattr(load.Load, "_stamp", lambda self: next(stamps))
    assert "changed while it was read" in run("publish", "trades", str(path), code=1).stderr
    assert client.stream("trades").row_count == 0
