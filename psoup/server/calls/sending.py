"""Answers on their way to clients: messages are made as the client reads, and weighed until then.

An answer of many rows is kept as ids (`psoup.answers.chosen`), any other one that needs several
messages as it was computed. Both count in the server's room for answers until they are sent. For a
client that reads quickly some messages are made ahead; for a slow one a message is made when it has
taken the last one. A client that stalls loses its answer if others wait for room.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Protocol, TypeVar

from datastem.stem_view import StemView
from psoup.answers import Answer, ChosenRows
from psoup.errors import RowsGone
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.server.sharing.room import SMALL_BYTES, Hold
from psoup.server.wire.arrow import WHOLE, AnswerPart, Encode, Message
from querystem.query import Query

T = TypeVar("T")

# The bytes of rows in a chunk of a large answer.
CHUNK_BYTES = 256 << 10
# A visit to a thread costs as much as making a message, so one visit makes several for a client
# that is quick.
_MAX_AHEAD = 8
# The share of the room for answers in which messages are made ahead. The rest is for answers.
_AHEAD_SHARE = 0.25
# A client that takes longer than this for a message is slow.
_SLOW_SECONDS = 0.05
# A client that takes no message for this long stalls, and how often is checked whether others wait.
STALL_SECONDS = 10.0
_STALL_POLL_SECONDS = 1.0


class Outgoing(Protocol):
    """The messages of one answer, of about `message_bytes` each. `first` has those that were made
    when it was computed."""

    message_bytes: int
    first: list[Message]

    @property
    def nbytes(self) -> int:
        """The bytes that are held until the last message is made, about."""

    @property
    def done(self) -> bool:
        """Whether all messages are made."""

    @property
    def is_small(self) -> bool:
        """Whether all rows may be sent with the header."""

    async def make(self, core: Core, call: Call, count: int) -> list[Message]:
        """Return about `count` of the next messages."""

    def drop(self) -> None:
        """Forget the answer: there are no more messages."""


class ComputedMessages:
    """The messages of an answer that is in memory, made one ahead, so that the last is known to be
    the last."""

    def __init__(self, answer: Answer, source: Iterator[Message], limit: int) -> None:
        self.message_bytes = limit
        self._source = source
        self._next = next(source, None)
        self.first = self._make(1)
        self._nbytes = sum(map(_size, self.first))
        # An answer that fits into one message is not kept beside it.
        if not self.done:
            self._nbytes += sum(batch.get_total_buffer_size() for batch in answer.batches)

    @property
    def nbytes(self) -> int:
        return self._nbytes if self._nbytes > SMALL_BYTES else 0

    @property
    def done(self) -> bool:
        return self._next is None

    @property
    def is_small(self) -> bool:
        return self.done and self._nbytes <= SMALL_BYTES

    async def make(self, core: Core, call: Call, count: int) -> list[Message]:
        return await core.in_thread(call, self._make, count)

    def drop(self) -> None:
        self._source, self._next = iter(()), None

    def _make(self, count: int) -> list[Message]:
        messages: list[Message] = []
        while self._next is not None and len(messages) < count:
            messages.append(self._next)
            self._next = next(self._source, None)
        return messages


class ChunkMessages:
    """The messages of an answer that is kept as row ids."""

    message_bytes = CHUNK_BYTES
    is_small = False

    def __init__(self, rows: ChosenRows, encode: Encode, limit: int) -> None:
        self._rows = rows
        self._encode = encode
        self._limit = limit
        self._chunk = 0
        self.first: list[Message] = []

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + 2 * CHUNK_BYTES

    @property
    def done(self) -> bool:
        return self._chunk == len(self._rows.chunks)

    async def make(self, core: Core, call: Call, count: int) -> list[Message]:
        async def attempt() -> list[Message]:
            stem = core.follower.view.find_stem(self._rows.stream_id)
            return await core.in_thread(call, self._make, stem, count)

        messages = await core.follower.read(attempt)
        # Only after success: an attempt that fails is repeated with the same chunks.
        self._chunk = min(self._chunk + count, len(self._rows.chunks))
        return messages

    def drop(self) -> None:
        self._rows = replace(self._rows, chunks=())
        self._chunk = 0

    def _make(self, stem: StemView | None, count: int) -> list[Message]:
        rows = self._rows
        last = len(rows.chunks) - 1
        return [
            message
            for number in range(self._chunk, min(self._chunk + count, last + 1))
            for message in self._encode(
                rows.take(number, stem),
                rows.query.columns,
                self._limit,
                AnswerPart(number == 0, number == last),
            )
        ]


def outgoing(query: Query, answer: Answer | ChosenRows, encode: Encode, limit: int) -> Outgoing:
    """Return the messages of an answer, none of much more than `limit` bytes."""
    if isinstance(answer, ChosenRows):
        return ChunkMessages(answer, encode, limit)
    source = encode(answer.batches, query.columns, limit, WHOLE)
    return ComputedMessages(answer, source, limit)


async def weighed(
    call: Call, hold: Hold, attempt: Callable[[], Awaitable[T]], weight: Callable[[T], int]
) -> T:
    """Return the outcome of `attempt`, with room for what it weighs. Without room the outcome is
    dropped and made again, so that a call that waits holds nothing. Raise Overloaded."""
    while True:
        outcome = await attempt()
        nbytes = weight(outcome)
        if hold.try_reserve(nbytes):
            return outcome
        del outcome
        hold.shrink(0)
        # A call that waits for room does not work, so its tenant must not count as crowding for it.
        call.end_turn()
        await hold.reserve(nbytes)


async def send(
    core: Core, call: Call, messages: Outgoing, hold: Hold
) -> AsyncGenerator[Message, None]:
    """Yield the messages of an answer that `hold` has room for. Raise RowsGone if the client
    stalled while others waited for that room."""
    ready, messages.first = deque(messages.first), []
    base, ahead = messages.nbytes, 1

    def drop() -> None:
        ready.clear()
        messages.drop()

    with Stalls(hold, drop) as stalls:
        while ready or not messages.done:
            task = None
            # For a quick client the next messages are made while it reads those that are ready.
            if not messages.done and (not ready or ahead > 1):
                task = asyncio.ensure_future(messages.make(core, call, ahead))
            started, count = time.monotonic(), len(ready)
            try:
                while ready:
                    stalls.begin()
                    yield ready.popleft()
                    stalls.end()
                seconds = time.monotonic() - started
                if task is not None:
                    ready.extend(await task)
            finally:
                if task is not None:
                    task.cancel()
            if count:
                # Judged by the time for all messages of the round: one slow read among quick ones
                # is no reason.
                quick = seconds < _SLOW_SECONDS * count
                ahead = min(2 * ahead, _MAX_AHEAD) if quick else 1
                # Twice: the messages that the client reads, and those that are made meanwhile.
                nbytes = base + 2 * ahead * messages.message_bytes
                if ahead > 1 and not hold.try_reserve(nbytes, _AHEAD_SHARE):
                    ahead = 1
                if ahead == 1:
                    hold.shrink(base)


class Stalls:
    """Watches how long a client takes for each message, and drops the answer of one that stalls
    while others wait for its room."""

    def __init__(self, hold: Hold, drop: Callable[[], None]) -> None:
        """`drop` forgets what the hold has room for."""
        self._hold = hold
        self._drop = drop
        self._timer: asyncio.TimerHandle | None = None
        self._dropped = False

    def __enter__(self) -> Stalls:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def begin(self) -> None:
        """Note that a message is given to the client."""
        # An answer that holds no room keeps none from others, so its client may stall.
        if self._hold.nbytes:
            self._wait(STALL_SECONDS)

    def end(self) -> None:
        """Note that the client has taken it. Raise RowsGone."""
        self._stop()
        if self._dropped:
            raise RowsGone(
                f"the client took no message for {STALL_SECONDS:g} seconds, and others waited for "
                "the memory that its answer took",
                hint="ask again, and read without a pause; or keep a copy with Sync",
            )

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        if not self._hold.contended:
            self._wait(_STALL_POLL_SECONDS)
            return
        self._dropped = True
        self._drop()
        self._hold.shrink(0)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _size(message: Message) -> int:
    return len(message) if isinstance(message, bytes) else message.ByteSize()
