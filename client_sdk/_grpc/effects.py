"""Effects: what a verb asks of the outside, and when it asks again.

Every verb is a *flow*: a generator that yields effects and is sent their results, or has their
errors thrown in. All decisions are taken in flows, calls that are made again included; a driver
only carries effects out. Effects are all that a sync and an async client do differently.
"""

from __future__ import annotations

import enum
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import Message

from client_sdk._exceptions import PsoupError, Timeout, Unauthenticated
from psoup.v1 import psoup_pb2 as pb

T = TypeVar("T")

Question: TypeAlias = pb.InvokeRequest | pb.AskRequest


@dataclass(frozen=True, slots=True)
class Unary:
    """Sends one request; the result is the response."""

    method: str
    request: Message
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Collect:
    """Takes all messages of an answer; the result is an Answer."""

    method: str
    request: Question
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Begin:
    """Begins an answer; the result is its first message, and the iterator of the others."""

    method: str
    request: Question
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Open:
    """Opens the PublishStream for the Write, Read and Finish that follow; an earlier one is
    dropped.
    """

    timeout: float | None


@dataclass(frozen=True, slots=True)
class Write:
    request: pb.PublishRequest


@dataclass(frozen=True, slots=True)
class Read:
    """Waits for the next response on the line, which is the result."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Says that no more requests follow; is done when the server has ended the call well."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Opens a call whose messages Hear then gives; an earlier one is dropped."""

    method: str
    request: Message
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Hear:
    """Waits for the next message of the call; the result is None after the last."""


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Give:
    """Hands a value to whoever iterates over the flow, which goes on when it is asked for more."""

    value: Any


Effect: TypeAlias = (
    Unary | Collect | Begin | Open | Write | Read | Finish | Listen | Hear | Pause | Give
)
Flow: TypeAlias = Generator[Effect, Any, T]


class Repeat(enum.Enum):
    """A second sending of the same request can do one of these."""

    HARMFUL = "the store may do it twice"
    SAFE = "the store knows it from the first"
    READ = "it changes nothing"


# CANCELLED is how a server or a proxy sheds a call; a call that ends here is never waited for.
_AWAY = frozenset({"UNAVAILABLE", "ABORTED", "CANCELLED"})
# How a connection that breaks under a call shows besides UNAVAILABLE.
_RESETS = ("RST_STREAM", "Stream removed", "Connection reset")


@dataclass(frozen=True, slots=True)
class Retry:
    """At most `attempts` sendings are made, with pauses that double from `first` to `longest`
    seconds.

    Each pause is drawn between half of itself and itself, so that clients cut off together do not
    come back together.
    """

    attempts: int = 5
    first: float = 0.1
    longest: float = 3.0

    def pause(self, made: int) -> float:
        return min(self.longest, self.first * 2.0 ** (made - 1)) * random.uniform(0.5, 1.0)

    def pause_after(self, error: PsoupError, made: int) -> float:
        """Gives a pause no shorter than the server asks for, spread out likewise."""
        asked = error.detail.retry_after
        wanted = 0.0 if asked is None else asked.total_seconds() * random.uniform(1.0, 1.5)
        return max(wanted, self.pause(made))


class Attempts:
    """Counts sendings against one overall deadline."""

    def __init__(self, retry: Retry, repeat: Repeat, timeout: float | None) -> None:
        self._retry = retry
        self._repeat = repeat
        self._timeout = timeout
        self.reset()

    def reset(self) -> None:
        """Counts sendings, and runs the clock, from here: progress was made."""
        self.made = 0
        self._last: PsoupError | None = None
        self._end = None if self._timeout is None else time.monotonic() + self._timeout

    def remaining(self) -> float | None:
        """Gives the seconds for the next sending.

        Where none are left it raises the error of the last sending, or Timeout.
        """
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise self._last or Timeout(f"no answer within {self._timeout:g} s")
        return left

    def pause_after(self, error: PsoupError) -> float:
        """Gives the seconds to wait before the next sending. Raises `error` where there is to be
        none.
        """
        self.made += 1
        self._last = error
        if self.made >= self._retry.attempts or not may_repeat(error, self._repeat):
            raise error
        pause = self._retry.pause_after(error, self.made)
        if self._end is not None and time.monotonic() + pause >= self._end:
            raise error
        return pause


def may_repeat(error: PsoupError, repeat: Repeat) -> bool:
    if isinstance(error, Unauthenticated):
        return error.renewed  # the store has looked at nothing else of it
    if error.detail.retry_after is not None:
        return True  # the store has done nothing yet, and says when it will
    if repeat is Repeat.HARMFUL:
        return False
    if error.code in _AWAY:
        return True
    return repeat is Repeat.READ and any(sign in error.message for sign in _RESETS)


def retrying(
    effect: Callable[[float | None], Effect],
    repeat: Repeat,
    retry: Retry,
    timeout: float | None,
) -> Flow[tuple[Any, bool]]:
    """Gives the effect's result, and whether it took more than one sending."""
    attempts = Attempts(retry, repeat, timeout)
    while True:
        try:
            result = yield effect(attempts.remaining())
        except PsoupError as error:
            yield Pause(attempts.pause_after(error))
        else:
            return result, attempts.made > 0
