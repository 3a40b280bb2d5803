"""The commit of a Spark batch, without Spark: once, whatever the tasks were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from client_sdk import Client, ConnectionFailed, MockTransport
from psoup.spark import writing
from psoup.spark.options import SparkOptions
from psoup.spark.reading import AnswerReader, SparkQuestion
from psoup.spark.writing import BatchWriter, StreamWriter, TaskRows
from tests.support.client_sdk.fake_store import FakeStore


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> MockTransport:
    transport = FakeStore().transport()
    Client(transport=transport).define("CREATE STREAM s (k BIGINT, v TEXT)")
    monkeypatch.setattr(SparkOptions, "client", lambda self: Client(transport=transport))
    return transport


def keys(transport: MockTransport) -> list[int]:
    return sorted(row["k"] for row in Client(transport=transport).ask("SELECT * FROM s"))


def tasks(writer: Any, rows: Sequence[int], count: int, query: str = "q") -> list[TaskRows]:
    """Return what tasks of a query hand over, if rows are dealt to `count` of them."""
    parts = [rows[place::count] for place in range(count)]
    messages = [
        writer.write(
            iter(pa.table({"k": part, "v": [f"v{k}" for k in part]}).to_batches()) if part else ()
        )
        for part in parts
    ]
    return [replace(message, query=query) for message in messages]


def stream_writer(**options: str) -> StreamWriter:
    return StreamWriter(SparkOptions.of({"stream": "s", **options}))


def test_a_batch_that_is_repeated_adds_nothing(transport: MockTransport) -> None:
    writer = stream_writer()
    writer.commit(tasks(writer, range(30), 3), 0)
    writer.commit(tasks(writer, range(30), 7), 0)
    writer.commit(tasks(writer, range(30, 40), 2), 1)
    stream_writer().commit(tasks(writer, range(30, 40), 1), 1)
    stream_writer().commit(tasks(writer, (), 2), 2)
    assert keys(transport) == list(range(40))


def test_a_query_with_another_checkpoint_loses_no_row(transport: MockTransport) -> None:
    writer = stream_writer()
    writer.commit(tasks(writer, range(5), 2), 0)
    writer.commit(tasks(writer, range(5, 10), 2), 1)
    writer.commit(tasks(writer, range(10, 15), 2, "another"), 0)
    assert keys(transport) == list(range(15))
    named = stream_writer(publisher="trips")
    named.commit(tasks(writer, range(15, 20), 2), 0)
    with pytest.raises(ValueError, match="publisher trips has published batches of another query"):
        named.commit(tasks(writer, range(20, 25), 2, "another"), 0)
    assert keys(transport) == list(range(20))


@pytest.mark.parametrize(("number", "rows"), [(0, range(5)), (1, range(20, 25)), (1, range(3))])
def test_a_batch_that_is_not_the_one_of_the_store_is_refused(
    transport: MockTransport, number: int, rows: range
) -> None:
    """An older checkpoint, or a query that gives other rows at the second attempt."""
    writer = stream_writer()
    writer.commit(tasks(writer, range(5), 2), 0)
    writer.commit(tasks(writer, range(5, 10), 2), 1)
    with pytest.raises(ValueError, match="is not the one that the store has: that is batch 1"):
        writer.commit(tasks(writer, rows, 2), number)
    stream_writer(failOnDataLoss="false").commit(tasks(writer, rows, 2), number)
    writer.commit(tasks(writer, range(10, 15), 2), 2)
    assert keys(transport) == list(range(15))


def test_digests_are_of_values() -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("b", pa.bool_())])
    rows = [{"k": k if k % 3 else None, "v": f"v{k}", "b": None} for k in range(10)]
    table = pa.Table.from_pylist(rows, schema)
    cut = pa.concat_tables([table.slice(0, 3), table.slice(3)])
    mask = pa.array([k % 3 == 0 for k in range(10)])
    garbage = pa.Array.from_buffers(
        pa.int64(), 10, [table["k"].chunk(0).buffers()[0], pa.array(range(10)).buffers()[1]]
    )
    assert garbage.is_null().equals(mask)
    same = cut.set_column(0, "k", garbage)
    changed = table.set_column(1, "v", pa.array(["v"] * 10))
    assert len({writing._digest(item) for item in (table, cut, same)}) == 1
    assert writing._digest(changed) != writing._digest(table)


def test_a_commit_that_is_cut_goes_on_with_other_tasks(
    transport: MockTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BATCH_ROWS", 4)
    monkeypatch.setattr("client_sdk._grpc.effects.Retry.pause", lambda self, attempts: 0.0)
    real, calls = transport._handlers["Publish"], 0

    def cut(request: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise ConnectionFailed("cut")
        return real(request)

    transport._handlers["Publish"] = cut
    writer = stream_writer()
    with pytest.raises(ConnectionFailed):
        writer.commit(tasks(writer, range(30), 3), 0)
    assert 0 < len(keys(transport)) < 30
    transport._handlers["Publish"] = real
    stream_writer().commit(tasks(writer, range(30), 5), 0)
    assert keys(transport) == list(range(30))


def test_batch_writes_add_rows_unless_they_have_a_name(transport: MockTransport) -> None:
    for options in ({}, {}, {"publisher": "nightly"}, {"publisher": "nightly"}):
        writer = BatchWriter(SparkOptions.of({"stream": "s", **options}))
        writer.commit(tasks(writer, range(3), 2))
    assert keys(transport) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    writer = BatchWriter(SparkOptions.of({"stream": "s", "publisher": "nightly"}))
    with pytest.raises(ValueError, match="publisher nightly has published other rows already"):
        writer.commit(tasks(writer, (0, 1, 3), 2))
    Client(transport=transport).publisher("gateway").publish("s", [{"k": 4, "v": ""}], mark=b"at 4")
    writer = BatchWriter(SparkOptions.of({"stream": "s", "publisher": "gateway"}))
    with pytest.raises(ValueError, match="publisher gateway is used for something else"):
        writer.commit(tasks(writer, range(3), 2))


def test_large_tasks_go_through_a_folder(
    transport: MockTransport, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(writing, "MESSAGE_BYTES", 100)
    with pytest.raises(ValueError, match="staging"):
        tasks(stream_writer(), range(10), 1)
    writer = stream_writer(staging=str(tmp_path))
    messages = tasks(writer, range(10), 2)
    assert len(list(tmp_path.iterdir())) == 2
    writer.commit(messages, 0)
    assert keys(transport) == list(range(10)) and not list(tmp_path.iterdir())
    writer.abort(tasks(writer, range(10), 2), 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "s", "kye": "x"}, "no option kye"),
        ({"stream": "s", "key": "x"}, "give one of"),
        ({"stream": "s", "window": "RANGE 1 HOUR"}, "window is for key"),
        ({}, "give one of"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparkQuestion.of(SparkOptions.of(options))


def test_filters_that_the_store_takes() -> None:
    from pyspark.sql.datasource import EqualTo, In, IsNull, LessThan

    reader = AnswerReader(SparkOptions.of({"stream": "s"}), ["k", "v"])
    untaken = list(
        reader.pushFilters(
            [EqualTo(("v",), "a"), LessThan(("k",), 3), In(("k",), (1, 2)), IsNull(("v",))]
        )
    )
    assert untaken == [IsNull(("v",))]
    assert reader.conditions == ["{v} = :p0", "{k} < :p1", "{k} IN (:p2, :p3)"]
    assert reader.parameters == {"p0": "a", "p1": 3, "p2": 1, "p3": 2}
