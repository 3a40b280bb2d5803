"""Effects: the input and output that a method of a client requests, and its retries.

Every method is a *flow*: a generator that yields effects, and is sent their results or has their
errors thrown in. Flows take all decisions, retries included; a driver only carries effects out. So
the sync and the async client differ in their drivers only.
"""

from __future__ import annotations

import enum
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import Message

from client_sdk._exceptions import ConnectionFailed, PsoupError, Timeout, Unauthenticated
from psoup.v1 import psoup_pb2 as pb

T = TypeVar("T")

Question: TypeAlias = pb.InvokeRequest | pb.AskRequest


@dataclass(frozen=True, slots=True)
class Unary:
    """Send one request. The result is the response."""

    method: str
    request: Message
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Collect:
    """Receive all messages of an answer. The result is an Answer."""

    method: str
    request: Question
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin an answer. The result is its first message, and the iterator of the others."""

    method: str
    request: Question
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Open:
    """Open the PublishStream for the Write, Read and Finish that follow. An earlier one is
    cancelled.
    """

    timeout: float | None


@dataclass(frozen=True, slots=True)
class Write:
    """Send one request on the PublishStream."""

    request: pb.PublishRequest


@dataclass(frozen=True, slots=True)
class Read:
    """Wait for the next response of the PublishStream, which is the result."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Announce that no more requests follow, and wait until the server has ended the call."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Open a call whose messages Hear then returns. An earlier one is cancelled."""

    method: str
    request: Message
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Hear:
    """Wait for the next message of the call. The result is None after the last one."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Give:
    """Hand a value to the caller that iterates over the flow, and wait until it wants the next."""

    value: Any


Effect: TypeAlias = (
    Unary | Collect | Begin | Open | Write | Read | Finish | Listen | Hear | Pause | Give
)
Flow: TypeAlias = Generator[Effect, Any, T]


class Repeat(enum.Enum):
    """What may happen if the same request is sent twice."""

    HARMFUL = "the store may do it twice"
    SAFE = "the store recognises the second request"
    READ = "nothing changes"


# A server or a proxy that sheds load answers CANCELLED. A call that this client cancels never gets
# here.
_RETRIED_CODES = frozenset({"UNAVAILABLE", "ABORTED", "CANCELLED"})
# Messages of connections that broke during a call and did not become UNAVAILABLE.
_RESET_MESSAGES = ("RST_STREAM", "Stream removed", "Connection reset")


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: at most `attempts` attempts, with pauses that double from `first` to
    `longest` seconds.

    Each pause is shortened at random by up to a half, so that clients that were cut off together do
    not come back together.
    """

    attempts: int = 5
    first: float = 0.1
    longest: float = 3.0

    def pause(self, attempts: int) -> float:
        """Return the seconds to wait after this many attempts."""
        return min(self.longest, self.first * 2.0 ** (attempts - 1)) * random.uniform(0.5, 1.0)

    def pause_after(self, error: PsoupError, attempts: int) -> float:
        """Return the seconds to wait, at least what the server asks for, lengthened at random."""
        retry_after = error.detail.retry_after
        seconds = 0.0 if retry_after is None else retry_after.total_seconds()
        return max(seconds * random.uniform(1.0, 1.5), self.pause(attempts))


class Attempts:
    """The attempts of one method, counted against one deadline for all of them."""

    def __init__(self, retry: Retry, repeat: Repeat, timeout: float | None) -> None:
        self._retry = retry
        self._repeat = repeat
        self._timeout = timeout
        self.reset()

    def reset(self) -> None:
        """Count attempts and time from here, because progress was made."""
        self.count = 0
        self._last: PsoupError | None = None
        self._end = None if self._timeout is None else time.monotonic() + self._timeout

    def remaining(self) -> float | None:
        """Return the seconds for the next attempt.

        If none remain, raise the error of the last attempt, or Timeout.
        """
        if self._end is None:
            return None
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise self._last or Timeout(f"no answer within {self._timeout:g} s")
        return seconds

    def pause_after(self, error: PsoupError) -> float:
        """Return the seconds to wait before the next attempt. Raises `error` if there is none."""
        self.count += 1
        self._last = error
        if self.count >= self._retry.attempts or not may_repeat(error, self._repeat):
            raise error
        pause = self._retry.pause_after(error, self.count)
        if self._end is not None and time.monotonic() + pause >= self._end:
            raise error
        return pause


def may_repeat(error: PsoupError, repeat: Repeat) -> bool:
    """Return whether a request that failed with this error may be sent again."""
    if isinstance(error, Unauthenticated):
        return error.renewed  # the store checks the credential before anything else
    if isinstance(error, ConnectionFailed) and error.elsewhere:
        return True  # no server has begun it
    if error.detail.retry_after is not None:
        return True  # the store has done nothing, and says when to ask again
    if repeat is Repeat.HARMFUL:
        return False
    if error.code in _RETRIED_CODES:
        return True
    return repeat is Repeat.READ and any(sign in error.message for sign in _RESET_MESSAGES)


def retrying(
    effect: Callable[[float | None], Effect],
    repeat: Repeat,
    retry: Retry,
    timeout: float | None,
) -> Flow[tuple[Any, bool]]:
    """Return the result of an effect, and whether it took more than one attempt.

    `effect` makes the effect for an attempt with this many seconds.
    """
    attempts = Attempts(retry, repeat, timeout)
    while True:
        try:
            result = yield effect(attempts.remaining())
        except PsoupError as error:
            yield Pause(attempts.pause_after(error))
        else:
            return result, attempts.count > 0
