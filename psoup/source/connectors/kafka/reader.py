"""The reader of one partition of a topic. Its mark is an offset of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError

from psoup.source.connectors.kafka.broker import Broker, reason
from psoup.source.connectors.kafka.decoding import MessageDecoder
from psoup.source.connectors.kafka.shared import SharedConsumer
from psoup.source.connectors.kafka.truncation import Truncation
from psoup.source.errors import PlaceLost, SourceAway
from psoup.source.feeding.piece import Mark, Piece

_COMMIT_SECONDS = 5.0
_IDLE_SECONDS = 10.0
_LOST_CODES = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


class KafkaReader:
    """A reader that is assigned to a partition by hand, and never moves by itself.

    Offsets are also committed to the group, for tools that look there; they are never read.
    """

    can_seek = True
    at_end = False

    def __init__(
        self,
        broker: Broker,
        shared: SharedConsumer,
        topic_id: str,
        partition: int,
        decoder: MessageDecoder,
        truncation: Truncation,
        mark: Mark,
        most_bytes: int,
    ) -> None:
        if mark and mark.get("topic_id") != topic_id:
            raise PlaceLost(
                f"topic {broker.topic} was made again: its id is {topic_id}, that of the mark "
                f"{mark.get('topic_id')}. What the old one had after offset {mark['offset']} is "
                "lost; go on with skip --to earliest"
            )
        self._broker, self._topic_id, self._partition = broker, topic_id, partition
        self._decoder, self._truncation, self._most_bytes = decoder, truncation, most_bytes
        self._pieces: Iterator[Piece] = iter(())
        # Whether there may be pieces of messages that were taken.
        self._has_pieces = False
        # The next offset by the last message, and by the end of the partition, which may also have
        # marks of transactions; and since when nothing came.
        self._next = self._end = 0
        self._quiet_at = time.monotonic()
        self._acknowledged = self._stored = -1
        self._committed_at = time.monotonic()
        self._buffer = shared.open(partition)
        try:
            self._assign(mark)
        except BaseException:
            self._buffer.close()
            raise

    def _assign(self, mark: Mark) -> None:
        topic = self._broker.topic
        low, high = self._broker.ends([self._partition])[self._partition]
        offset = int(mark["offset"]) if mark else low
        if not low <= offset <= high:
            raise PlaceLost(
                f"{topic}[{self._partition}] has offsets {low} to {high}, and {offset} is needed: "
                f"{max(0, low - offset):,} messages are lost. Go on with skip --to earliest"
            )
        self._next = self._stored = offset
        self._buffer.start(offset)

    async def arrival(self, seconds: float) -> None:
        if not self._has_pieces:
            await self._buffer.wait(self._most_bytes, seconds, _IDLE_SECONDS)

    def poll(self, seconds: float) -> Piece | None:
        piece = next(self._pieces, None)
        if piece is None:
            self._pieces = self._read(seconds)
            piece = next(self._pieces, None)
        self._has_pieces = piece is not None
        return piece

    def _read(self, seconds: float) -> Iterator[Piece]:
        """Yield what comes next. Raises SourceAway or PlaceLost behind the messages before."""
        messages = self._buffer.take(self._most_bytes, seconds)
        self._commit()
        good, failure = list[Any](), None
        for message in messages:
            try:
                if self._check(message):
                    good.append(message)
            except (SourceAway, PlaceLost) as error:
                failure = error
                break
        if good:
            self._buffer.failure = None
            self._next, self._quiet_at = good[-1].offset() + 1, time.monotonic()
            yield from self._decoder.pieces(good, self._mark, self._truncated)
        if failure is not None:
            raise failure
        if not good and self._buffer.failure is not None:
            raise SourceAway(f"Kafka: {reason(self._buffer.failure)}")
        if not good and (piece := self._idle()) is not None:
            yield piece

    def _truncated(self, place: str, offset: int, metadata: Mapping[str, Any]) -> Iterator[Piece]:
        def is_stored() -> bool:
            return self._stored >= offset

        return self._truncation.pieces(place, metadata, self._mark(offset), is_stored)

    def _idle(self) -> Piece | None:
        """Move the mark behind marks of transactions and aborted messages at the end."""
        if not self.at_end or time.monotonic() - self._quiet_at < _IDLE_SECONDS:
            return None
        if self._end <= self._next:
            return None
        self._next = self._end
        return Piece(self._decoder.empty, mark=self._mark(self._end))

    def _check(self, message: Any) -> bool:
        """Return whether it is a message. Raises SourceAway or PlaceLost for an error."""
        error = message.error()
        self.at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if error is None:
            return True
        if self.at_end:
            self._end = message.offset()
            return False
        if error.code() in _LOST_CODES:
            raise PlaceLost(
                f"{self._broker.topic}[{self._partition}]: {error.str()}; go on with skip"
            )
        # Also a topic that is unknown: a broker that starts does not know all of them at first.
        raise SourceAway(f"Kafka: {error.str()}")

    def _mark(self, offset: int) -> Mark:
        return {"topic_id": self._topic_id, "offset": offset}

    def acknowledge(self, mark: Mark) -> None:
        self._acknowledged = self._stored = int(mark["offset"])

    def _commit(self) -> None:
        if self._acknowledged < 0 or time.monotonic() - self._committed_at < _COMMIT_SECONDS:
            return
        self._buffer.commit(self._acknowledged)
        self._committed_at, self._acknowledged = time.monotonic(), -1

    def interrupt(self) -> None:
        """A poll does not wait for long."""

    def close(self) -> None:
        self._buffer.close()
