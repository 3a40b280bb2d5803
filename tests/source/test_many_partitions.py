"""One consumer and one budget for all partitions of a source, without a broker."""

from __future__ import annotations

import asyncio
import queue
import threading
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from psoup.source.connectors.kafka import shared as shared_module
from psoup.source.connectors.kafka.shared import SharedConsumer, size_of
from psoup.source.errors import SourceAway
from psoup.source.feeding import queue as queue_module
from psoup.source.feeding.batches import BATCH_BYTES, Batch
from psoup.source.feeding.queue import BatchQueue, MemoryBudget, batch_bytes

SIZE = 100


@dataclass
class Message:
    number: int
    place: int

    def partition(self) -> int:
        return self.place

    def value(self) -> bytes:
        return b"x" * SIZE

    def key(self) -> bytes | None:
        return None

    def error(self) -> Any:
        return None


class StubConsumer:
    """A consumer whose calls wait for each other, as those of the real one."""

    def __init__(self) -> None:
        self.arrivals: queue.Queue[list[Message]] = queue.Queue()
        self.assigned: list[tuple[int, int]] = []
        self.closed = threading.Event()
        self.lock = threading.Lock()
        self.fails = False

    def consume(self, count: int, seconds: float) -> list[Message]:
        with self.lock:
            try:
                return self.arrivals.get(timeout=0.01)
            except queue.Empty:
                return []

    def incremental_assign(self, places: list[Any]) -> None:
        with self.lock:
            self.assigned += [(place.partition, place.offset) for place in places]

    def incremental_unassign(self, places: list[Any]) -> None:
        with self.lock:
            self.assigned = [pair for pair in self.assigned if pair[0] != places[0].partition]

    def close(self) -> None:
        self.closed.set()


class StubBroker:
    topic = "t"

    def __init__(self) -> None:
        self.consumers: list[StubConsumer] = []

    def consumer(self, on_error: Any) -> StubConsumer:
        self.consumers.append(StubConsumer())
        return self.consumers[-1]


def numbers(messages: list[Message]) -> list[int]:
    return [message.number for message in messages]


def test_partitions_share_a_consumer_and_its_end() -> None:
    broker = StubBroker()
    shared: Any = SharedConsumer(broker)  # type: ignore[arg-type]
    first, second = shared.open(0), shared.open(1)
    first.start(5)
    second.start(7)
    (consumer,) = broker.consumers
    assert consumer.assigned == [(0, 5), (1, 7)]
    consumer.arrivals.put([Message(1, 0), Message(2, 1), Message(3, 0)])
    assert numbers(first.take(SIZE * 100, 10.0)) == [1, 3]
    assert numbers(second.take(SIZE * 100, 10.0)) == [2]
    first.close()
    again = shared.open(0)
    again.start(9)
    assert sorted(consumer.assigned) == [(0, 9), (1, 7)]
    consumer.arrivals.put([Message(4, 0)])
    assert numbers(again.take(SIZE * 100, 10.0)) == [4] and not first.take(SIZE, 0.0)
    again.close()
    second.close()
    second.close()
    assert consumer.closed.wait(10.0)
    shared.open(2).close()
    assert len(broker.consumers) == 2


def test_nothing_is_taken_of_the_consumer_while_buffers_are_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = Message(0, 0)
    monkeypatch.setattr(shared_module, "BUFFERED_BYTES", 3 * size_of(message))
    broker = StubBroker()
    shared: Any = SharedConsumer(broker)  # type: ignore[arg-type]
    buffers = [shared.open(number) for number in (0, 1)]
    for buffer in buffers:
        buffer.start(0)
    (consumer,) = broker.consumers
    for number in range(10):
        consumer.arrivals.put([Message(number, number % 2)])
    received = [list[int](), list[int]()]
    pump = buffers[0]._pump
    # One is behind by as much as fits; both have everything in the end.
    while len(received[0]) + len(received[1]) < 10:
        with pump.room:
            pump.room.wait_for(lambda: pump.is_full or consumer.arrivals.empty(), 10.0)
            # It consumes twice before it looks again.
            assert pump.size <= 4 * size_of(message)
        for part, buffer in zip(received, buffers, strict=True):
            part += numbers(buffer.take(1, 0.0))
    assert received == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    for buffer in buffers:
        buffer.close()


def test_a_failure_of_the_consumer_is_that_of_all_partitions() -> None:
    broker = StubBroker()
    shared: Any = SharedConsumer(broker)  # type: ignore[arg-type]
    buffer = shared.open(0)
    buffer.start(0)

    def fail(places: list[Any]) -> None:
        raise ZeroDivisionError

    (consumer,) = broker.consumers
    consumer.incremental_assign = fail  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_module, "_ANSWER_SECONDS", 0.05)
        with pytest.raises(SourceAway, match="does not answer"):
            shared.open(1).start(0)
    assert consumer.closed.wait(10.0)
    assert not buffer.take(SIZE, 10.0) and isinstance(buffer.failure, ZeroDivisionError)
    # The next partition has another consumer.
    shared.open(0).start(3)
    assert broker.consumers[1].assigned == [(0, 3)]


async def test_waiting_for_a_partition_takes_no_thread() -> None:
    broker = StubBroker()
    shared: Any = SharedConsumer(broker)  # type: ignore[arg-type]
    buffer = shared.open(0)
    await asyncio.to_thread(buffer.start, 0)
    waiting = asyncio.create_task(buffer.wait(2 * size_of(Message(0, 0)), 600.0, 600.0))
    broker.consumers[0].arrivals.put([Message(1, 0)])
    while not buffer._size:
        await asyncio.sleep(0.01)
    assert not waiting.done()
    broker.consumers[0].arrivals.put([Message(2, 0)])
    await waiting
    assert numbers(buffer.take(SIZE, 0.0)) == [1]
    # The first one is old enough at once; without any, there is nothing to wait for.
    await buffer.wait(1 << 20, 0.0, 600.0)
    assert numbers(buffer.take(SIZE, 0.0)) == [2]
    await buffer.wait(1 << 20, 600.0, 0.0)
    buffer.close()


def batch(size: int) -> Batch:
    return Batch(pa.table({"k": pa.array(range(size // 8), pa.int64())}), (), (), {})


async def test_partitions_share_a_budget_and_none_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_module, "SHARED_BYTES", 800)
    budget = MemoryBudget()
    first, second = BatchQueue(budget), BatchQueue(budget)
    await first.put(batch(800))
    waiting = asyncio.create_task(first.put(batch(8)))
    # It has nothing yet, so it may have one batch.
    await second.put(batch(800))
    await asyncio.sleep(0)
    assert not waiting.done()
    batches = await first.take()
    await first.release(batches)
    await waiting
    await second.close()
    await first.close()
    assert budget._used == 0
    await asyncio.wait_for(first.put(batch(800)), 10.0)


def test_batches_of_many_partitions_are_small() -> None:
    assert batch_bytes(0) == batch_bytes(1) == BATCH_BYTES
    for partitions in (2, 10, 100, 1000):
        assert partitions * batch_bytes(partitions) <= queue_module.OWN_BYTES
