"""Rows that were put aside become the rows that the first read would have made of them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from client_sdk import Column, Stream
from psoup.cli import cli
from psoup.source.connectors.kafka.decoding import MessageDecoder
from psoup.source.connectors.kafka.stored import StoredMessage
from psoup.source.mapping import RowMapping
from tests.source.conftest import Sources

ASIDE = (
    "CREATE STREAM rejected (source TEXT, place TEXT, reason TEXT, message TEXT, raw TEXT, "
    "metadata TEXT)"
)
COLUMNS = {
    "label": "$key",
    "region": "$headers.region",
    "at": "$timestamp",
    "number": "$offset",
    "part": "$partition",
    "line": "$value",
}
METADATA = {
    "topic": "t",
    "partition": 3,
    "offset": 17,
    "timestamp": 1_768_000_000_123,
    "key": "9",
    "headers": [["region", "first"], ["region", "south"], ["empty", None]],
}


def decoder(form: str, price: str) -> MessageDecoder:
    """Return a decoder for a stream in which only the type of the price differs."""
    types = {
        "id": "BIGINT",
        "price": price,
        "at": "TIMESTAMP",
        "number": "BIGINT",
        "part": "BIGINT",
    }
    names = ("id", "price", *COLUMNS)
    columns = tuple(Column(name, types.get(name, "TEXT")) for name in names)
    nothing = timedelta(0)
    stream = Stream("s", 1, columns, None, None, nothing, 0, None, "", 0, key=("id",))
    return MessageDecoder(stream, RowMapping(stream, COLUMNS), form)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return [dict(row) for row in table.to_pylist()]


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("json", {"id": 1, "price": "cheap"}),
        ("debezium", {"op": "c", "after": {"id": 1, "price": "cheap"}, "source": {"ts_ms": 5}}),
        ("debezium", {"payload": {"op": "r", "after": {"id": 1, "price": "cheap"}}}),
    ],
)
def test_a_message_with_all_that_it_has_beside_its_value(form: str, value: Any) -> None:
    message = StoredMessage(json.dumps(value), METADATA)
    (bad,) = piece(decoder(form, "BIGINT"), message).bad
    assert json.loads(bad.raw) == value
    lenient = decoder(form, "TEXT")
    replayed = lenient.replayed(bad.raw, json.loads(bad.metadata))
    (row,) = rows(replayed.table)
    assert row["label"] == "9" and row["region"] == "south" and row["number"] == 17
    assert [row] == rows(piece(lenient, message).table)


def test_one_record_of_a_message_that_has_two() -> None:
    """A changed key is a delete and a row: the row is put aside, and the delete was published."""
    value = {"op": "u", "before": {"id": 1}, "after": {"id": 2, "price": "cheap"}}
    message = StoredMessage(json.dumps(value), METADATA)
    before = piece(decoder("debezium", "BIGINT"), message)
    assert [row["_op"] for row in rows(before.table)] == ["delete"]
    (bad,) = before.bad
    lenient = decoder("debezium", "TEXT")
    replayed = lenient.replayed(bad.raw, json.loads(bad.metadata))
    assert [(row["id"], row.get("_op")) for row in rows(replayed.table)] == [(2, None)]


@pytest.mark.parametrize("value", [b"\xff\xfe", b"\\xff", b"plain", None])
def test_bytes_are_kept(value: bytes | None) -> None:
    first = StoredMessage("", {**METADATA, "key": "none"})
    first.value = lambda: value  # type: ignore[method-assign]
    first.key = lambda: b"\x80"  # type: ignore[method-assign]
    (bad,) = piece(decoder("json", "BIGINT"), first).bad
    again = StoredMessage(bad.raw, json.loads(bad.metadata))
    assert (again.value(), again.key()) == (value, b"\x80")
    assert again.headers()[2] == ("empty", None)
    assert "base64" not in bad.raw


def piece(decoder: MessageDecoder, message: Any) -> Any:
    return next(decoder.pieces([message], lambda offset: {"offset": offset}, lambda *_: iter(())))


@pytest.mark.process
def test_rows_of_files(sources: Sources) -> None:
    """Also those of formats that have no text: the fields of the row are kept."""
    sources.client.define("CREATE STREAM s (k BIGINT, v BIGINT)")
    sources.client.define("CREATE STREAM t (k BIGINT, word TEXT)")
    sources.client.define("ALTER STREAM t RENAME COLUMN word TO v")
    sources.client.define(ASIDE)
    (sources.folder / "a.csv").write_text('k,v\n1,"a, b"\n2,5\n')
    (sources.folder / "b.jsonl").write_text('{"v": "c", "k": 3}\n[]\n')
    table = pa.table({"k": [4, 5], "v": pa.array([2**63, 7], pa.uint64())})
    pyarrow.parquet.write_table(table, sources.folder / "c.parquet")
    aside = 'bad_rows = "aside"\naside = "rejected"\nstream = "{}"\n'
    source = '[sources.f]\nfiles = "[abc].*"\n' + aside
    sources.write(source.format("s"))
    run = sources.start()
    sources.wait_for(lambda: sources.client.stream("rejected").row_count == 4)
    assert run.stop() == 143
    asides = sources.client.ask("SELECT raw, metadata FROM rejected ORDER BY place")
    assert [(row["raw"], json.loads(row["metadata"] or "null")) for row in asides] == [
        ('1,"a, b"', {"row": {"k": "1", "v": "a, b"}}),
        ('{"v": "c", "k": 3}', None),
        ("[]", None),
        (json.dumps({"k": "4", "v": str(2**63)}), {"row": {"k": "4", "v": str(2**63)}}),
    ]
    sources.write(source.format("t"))
    for expected in ("3 rows in t, 1 row still bad", "0 rows in t, 0 rows still bad"):
        arguments = ["source", "replay-aside", str(sources.file), "f"]
        replay = CliRunner().invoke(cli, arguments)
        assert expected in replay.output, replay.output
    rows = sources.client.ask("SELECT k, v FROM t ORDER BY k")
    assert [tuple(row.values()) for row in rows] == [(1, "a, b"), (3, "c"), (4, str(2**63))]
