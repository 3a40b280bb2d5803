"""Whatever is queued offline is sent in order, or is named as refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from client_sdk import AsyncClient, RowProblem
from client_sdk.copies._queue.outbox import Outbox
from tests.support.client_sdk.flaky_store import FlakyStore, client_of, rows

AT = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def test_what_is_queued_offline_is_sent_in_order(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    outbox = opened()
    assert not outbox.queued and outbox.publish("s", []) is None
    assert [outbox.publish("s", rows(n, n + 100)) for n in range(5)] == [1, 2, 3, 4, 5]
    queued = opened().queued
    assert (queued.batches, queued.rows, list(queued.streams)) == (5, 10, ["s"])
    assert queued.bytes > 0 and queued.streams["s"].oldest <= datetime.now(UTC)
    sent = outbox.send(client_of(store))
    assert (sent.batches, sent.rows, sent.duplicates, sent.rejected) == (5, 10, 0, ())
    assert store.values() == [0, 100, 1, 101, 2, 102, 3, 103, 4, 104]
    assert not outbox.queued and outbox.send(client_of(store)).batches == 0


async def test_async_sends_the_same_queue(store: FlakyStore, opened: Callable[[], Outbox]) -> None:
    outbox = opened()
    outbox.publish("s", rows(1, 2))
    async with AsyncClient(transport=store.transport()) as client:
        assert (await outbox.learn_async(client, "s")).name == "s"
        assert (await outbox.send_async(client)).rows == 2
    assert store.values() == [1, 2]


def test_rows_are_checked_at_once_where_the_stream_is_known(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    outbox = opened()
    assert outbox.known_stream("s") is None
    assert outbox.learn(client_of(store), "s") is not None
    again = opened().known_stream("s")
    assert again is not None and [column.type for column in again.columns] == ["BIGINT", "TEXT"]
    with pytest.raises(RowProblem, match="row 1: missing b"):
        outbox.publish("s", [{"a": 1, "b": "x"}, {"a": 2}])
    assert not outbox.queued


def test_rows_for_an_unknown_stream_keep_what_they_are(opened: Callable[[], Outbox]) -> None:
    """Every type, and which columns each row has; they are checked when they are sent."""
    store, outbox = FlakyStore(), opened()
    client = client_of(store)
    row = {
        "i": 2**53 + 1, "d": 0.1, "t": "é\x00", "p": Decimal("1.50"), "k": True, "n": None,
        "m": AT, "y": date(2024, 2, 29),
    }  # fmt: skip
    outbox.publish("every", [row, {**row, "n": 7}])
    outbox.publish("every", pa.Table.from_pylist([row], schema=None))
    outbox.publish("every", [row, {"i": 1}])
    outbox.publish("every", [{**row, "n": 8}])
    client.define(
        "CREATE STREAM every (i BIGINT, d DOUBLE, t TEXT, p DECIMAL(10,2), k BOOLEAN, n BIGINT, "
        "m TIMESTAMP, y DATE)"
    )
    sent = outbox.send(client)
    assert (sent.batches, sent.rows) == (3, 4)
    assert store.values("every", "n") == [None, 7, None, 8]
    assert store._streams["every"].rows.slice(0, 1).select(list(row)).to_pylist() == [row]
    [refused] = outbox.rejected
    assert sent.rejected == (refused,) and "row 1: missing" in refused.message
    assert refused.content == [row, {"i": 1}]
    assert (refused.batch, refused.stream, refused.row_count) == (3, "every", 2)
    with pytest.raises(TypeError, match="has no type"):
        outbox.publish("other", [{"a": object()}])


def test_what_the_store_refuses_for_good_is_put_aside(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    """It blocks nothing, is not lost, and leaves no gap in the sequences."""
    outbox, client = opened(), client_of(store)
    outbox.publish("s", rows(1))
    outbox.heartbeat("gone", AT)
    outbox.publish("gone", rows(2))
    outbox.publish("s", rows(3))
    sent = outbox.send(client)
    assert (sent.batches, store.values()) == (2, [1, 3])
    assert [rejected.reason for rejected in sent.rejected] == ["UNKNOWN_STREAM"] * 2
    assert (outbox.queued.batches, outbox.queued.rejected) == (0, 2)
    client.define("CREATE STREAM gone (a BIGINT, b TEXT)")
    assert outbox.requeue(sent.rejected[1].batch) == 1
    assert outbox.send(client).rows == 1 and store.values("gone") == [2]
    with pytest.raises(ValueError, match="no batch 3 was refused; those that were: 2"):
        outbox.requeue(3)
    assert outbox.rejected[0].content == AT
    assert outbox.discard() == 1 and not outbox.rejected


def test_deletes_and_heartbeats_are_queued_too(opened: Callable[[], Outbox]) -> None:
    store, outbox = FlakyStore(), opened()
    client = client_of(store)
    client.define("CREATE STREAM k (a BIGINT, b TEXT, at TIMESTAMP) KEY (b) ORDERED BY at")
    outbox.publish("k", [{"a": 1, "b": "x", "at": AT}])
    outbox.delete("k", [{"b": "x", "at": AT + timedelta(hours=1)}])
    outbox.heartbeat("k", AT + timedelta(hours=2))
    assert outbox.send(client).batches == 3
    assert store.values("k", "_op") == ["row", "delete"]
    assert store._streams["k"].now == AT + timedelta(hours=2)
