"""One consumer for all partitions of a source: a thread of its own hands out what arrives."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from psoup.source.connectors.kafka.broker import Broker, reason
from psoup.source.errors import SourceAway

# What all partitions together hold; then nothing more is taken of the consumer.
BUFFERED_BYTES = 16 << 20
# What a message takes beside its key and value.
_MESSAGE_BYTES = 300
_CONSUMED_MESSAGES = 1000
_CONSUME_SECONDS = 0.2
_GATHER_SECONDS = 0.01
_ANSWER_SECONDS = 10.0


class SharedConsumer:
    """The consumer of a source. It is there while buffers are open; the next one is another."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._pump: Pump | None = None

    def open(self, partition: int) -> PartitionBuffer:
        """Return an empty buffer for a partition. Raises BadSettings."""
        with self._lock:
            if self._pump is None or self._pump.has_ended or not self._pump.users:
                self._pump = Pump(self._broker)
            self._pump.users += 1
            return PartitionBuffer(self, self._pump, partition)

    def release(self, pump: Pump) -> None:
        """Note that a buffer is closed; the last one ends the consumer."""
        with self._lock:
            pump.users -= 1


class Pump:
    """A consumer and the thread that distributes its messages, until it has no users.

    Only the thread uses the consumer, whose calls wait for each other, and changes what is
    assigned. So a message of an earlier assignment never comes to a later one of its partition.
    """

    def __init__(self, broker: Broker) -> None:
        self.users = 0
        self.topic = broker.topic
        self.consumer = broker.consumer(self._note)
        self.buffers: dict[int, PartitionBuffer] = {}
        self.commands: deque[Callable[[], None]] = deque()
        self.room = threading.Condition()
        self.size = 0
        # It waits for its first user.
        self._is_used = self.has_ended = False
        threading.Thread(target=self._run, name="psoup-kafka", daemon=True).start()

    @property
    def is_full(self) -> bool:
        return self.size >= BUFFERED_BYTES

    def _note(self, error: Any) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._fail(error)

    def _fail(self, error: Any) -> None:
        for buffer in self.buffers.values():
            buffer.failure = error
            buffer.notify()

    def _run(self) -> None:
        try:
            while self.users or not self._is_used:
                self._is_used = self._is_used or self.users > 0
                while self.commands:
                    self.commands.popleft()()
                self._distribute()
        except Exception as error:
            self._fail(error)
        finally:
            self.has_ended = True
            self.consumer.close()

    def _distribute(self) -> None:
        with self.room:
            if not self.room.wait_for(lambda: not self.is_full, _CONSUME_SECONDS):
                return
        try:
            messages = self.consumer.consume(1, _CONSUME_SECONDS)
            if messages:
                messages += self.consumer.consume(_CONSUMED_MESSAGES, _GATHER_SECONDS)
        except (confluent_kafka.KafkaException, RuntimeError) as error:
            self._fail(error)
            return
        arrived = defaultdict[int, list[Any]](list)
        for message in messages:
            arrived[message.partition()].append(message)
        for partition, part in arrived.items():
            if (buffer := self.buffers.get(partition)) is not None:
                self.count(buffer.add(part))
            elif partition < 0:
                self._fail(part[0].error())

    def count(self, size: int) -> None:
        """Count bytes that were added to a buffer, or taken of it if they are negative."""
        with self.room:
            self.size += size
            self.room.notify_all()


class PartitionBuffer:
    """Messages of one partition that have arrived and are not taken."""

    def __init__(self, shared: SharedConsumer, pump: Pump, partition: int) -> None:
        # An error of the connection, until messages come again.
        self.failure: Any = None
        self._shared, self._pump, self._partition = shared, pump, partition
        self._messages: deque[Any] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._is_started = self._is_closed = False
        # Of the task that waits, if there is one.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def start(self, offset: int) -> None:
        """Begin to receive the messages from an offset on. Raises SourceAway."""
        place = self._place(offset)
        errors, done = list[Exception](), threading.Event()

        def assign() -> None:
            try:
                self._pump.buffers[self._partition] = self
                self._pump.consumer.incremental_assign([place])
            except confluent_kafka.KafkaException as error:
                errors.append(error)
            done.set()

        self._is_started = True
        self._pump.commands.append(assign)
        if not done.wait(_ANSWER_SECONDS):
            raise SourceAway("Kafka: the consumer does not answer")
        if errors:
            raise SourceAway(f"Kafka: {reason(errors[0])}")

    def _place(self, offset: int = OFFSET_INVALID) -> TopicPartition:
        return TopicPartition(self._pump.topic, self._partition, offset)

    def commit(self, offset: int) -> None:
        """Commit an offset to the group, some time."""

        def commit() -> None:
            # It is only for tools that look there.
            with suppress(confluent_kafka.KafkaException):
                self._pump.consumer.commit(offsets=[self._place(offset)], asynchronous=True)

        self._pump.commands.append(commit)

    def close(self) -> None:
        """Receive nothing more, and drop what was received."""
        if self._is_closed:
            return
        self._is_closed = True

        def unassign() -> None:
            if self._pump.buffers.get(self._partition) is self:
                del self._pump.buffers[self._partition]
            self.take(math.inf, 0.0)
            with suppress(confluent_kafka.KafkaException):
                self._pump.consumer.incremental_unassign([self._place()])

        if self._is_started:
            self._pump.commands.append(unassign)
        self._shared.release(self._pump)

    def add(self, messages: list[Any]) -> int:
        """Add messages that arrived, or events such as the end of the partition; return their
        bytes."""
        size = sum(map(size_of, messages))
        with self._changed:
            self._messages.extend(messages)
            self._size += size
        self.notify()
        return size

    def notify(self) -> None:
        """Wake those who wait for messages."""
        with self._changed:
            self._changed.notify_all()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    def take(self, most_bytes: float, seconds: float) -> list[Any]:
        """Return messages until they have so many bytes; wait for the first of them."""
        messages, size = list[Any](), 0
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self.failure, seconds)
            while self._messages and size < most_bytes:
                messages.append(self._messages.popleft())
                size += size_of(messages[-1])
            self._size -= size
        self._pump.count(-size)
        return messages

    async def wait(self, size: int, seconds: float, idle_seconds: float) -> None:
        """Wait until messages of `size` bytes are there, or the first of them is `seconds` old;
        without any for `idle_seconds`.
        """
        self._loop = asyncio.get_running_loop()
        deadline, is_idle = time.monotonic() + idle_seconds, True
        while True:
            self._event.clear()
            if self.failure or self._size >= size or (self._size and self._pump.is_full):
                return
            if self._size and is_idle:
                deadline, is_idle = time.monotonic() + seconds, False
            try:
                await asyncio.wait_for(self._event.wait(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                return


def size_of(message: Any) -> int:
    """Return about how many bytes a message takes."""
    return _MESSAGE_BYTES + len(message.value() or b"") + len(message.key() or b"")
