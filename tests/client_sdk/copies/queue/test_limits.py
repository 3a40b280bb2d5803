"""Batches are cut to what the store takes, and a queue has a limit."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from client_sdk import LimitExceeded, Timeout
from client_sdk.copies._queue.outbox import Outbox
from psoup.v1 import psoup_pb2 as pb
from tests.support.client_sdk.flaky_store import FlakyStore, client_of, rows


def test_large_batches_are_cut(store: FlakyStore, opened: Callable[[], Outbox]) -> None:
    outbox, client = opened(), client_of(store)
    outbox.learn(client, "s")
    outbox.publish("s", pa.table({"a": range(9), "b": ["x" * 1_000_000] * 9}))
    assert outbox.queued.batches > 1
    assert outbox.send(client).rows == 9
    assert store.values() == list(range(9))


def test_a_full_queue_says_so(opened: Callable[[], Outbox]) -> None:
    outbox = opened()
    small = Outbox(outbox._file, queue_bytes=100)
    small.publish("s", rows(1))
    with pytest.raises(LimitExceeded, match="may hold 100; .* queue_bytes"):
        small.publish("s", rows(*range(50)))
    assert outbox.queued.rows == 1


def test_batches_are_cut_to_what_the_store_takes_now(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    """Also pieces of a batch, in their order; one row past the limit is refused alone, and here."""
    outbox, client = opened(), client_of(store)
    outbox.learn(client, "s")
    long = [{"a": n, "b": "x" * (90_000 if n == 5 else 3_000)} for n in range(12)]
    outbox.publish("s", long)
    outbox.publish("s", rows(100))
    store.limits = pb.Limits(message_bytes=20_000, batch_rows=3, batch_bytes=50_000)
    sent = outbox.send(client)
    assert store.values() == [n for n in range(12) if n != 5] + [100]
    assert max(store.taken_rows) == 3 and max(store.taken_bytes) <= 20_000
    [refused] = sent.rejected
    assert (refused.reason, refused.content.column("a").to_pylist()) == ("ROW_TOO_LARGE", [5])
    assert not outbox.queued


def test_rows_are_checked_against_the_limits_of_the_last_contact(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    outbox, client = opened(), client_of(store)
    store.limits = pb.Limits(message_bytes=20_000, batch_rows=3)
    outbox.learn(client, "s")
    outbox.publish("s", rows(0))
    outbox.send(client)
    with pytest.raises(LimitExceeded, match="one row takes") as caught:
        opened().publish("s", [{"a": 1, "b": "x" * 30_000}])
    assert caught.value.reason == "ROW_TOO_LARGE" and not outbox.queued
    outbox.publish("s", rows(1, 2, 3, 4))
    assert outbox.queued.batches == 2


def test_what_may_have_left_is_not_cut_otherwise(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    """It was taken whole, and the store that takes less now can't be asked: nothing is guessed."""
    outbox, client = opened(), client_of(store)
    outbox.learn(client, "s")
    outbox.publish("s", rows(1, 2, 3))
    outbox.publish("s", rows(4))
    store.faults = iter(["back"])
    with pytest.raises(Timeout):
        outbox.send(client)
    store.limits = pb.Limits(batch_rows=2)
    sent = outbox.send(client)
    assert store.values() == [1, 2, 3, 4]
    assert [doubtful.reason for doubtful in sent.doubtful] == ["TOO_LARGE_NOW"]
