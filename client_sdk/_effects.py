"""What the core asks of the outside: the only things a sync and an async client do differently.

Every verb is a *flow*: a generator that yields effects and is sent their results, or has their
errors thrown in. All decisions are taken in flows; a driver only carries effects out.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import Message

from psoup.v1 import psoup_pb2 as pb

T = TypeVar("T")

Question: TypeAlias = pb.InvokeRequest | pb.AskRequest


@dataclass(frozen=True, slots=True)
class Unary:
    """One request, one response: the response."""

    method: str
    request: Message
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Collect:
    """A whole answer, all messages of it: an Answer."""

    method: str
    request: Question
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message of an answer, and the iterator of the others."""

    method: str
    request: Question
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Open:
    """Opens the PublishStream that Write, Read and Finish then mean; an earlier one is dropped."""

    timeout: float | None


@dataclass(frozen=True, slots=True)
class Write:
    request: pb.PublishRequest


@dataclass(frozen=True, slots=True)
class Read:
    """The next response on the line."""


@dataclass(frozen=True, slots=True)
class Finish:
    """No more requests; returns when the server has ended the call well."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Opens a call whose messages Hear then gives; an earlier one is dropped."""

    method: str
    request: Message
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Hear:
    """The next message of the call, or None after the last."""


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Give:
    """Something for whoever iterates over the flow, which goes on when it is asked for more."""

    value: Any


Effect: TypeAlias = (
    Unary | Collect | Begin | Open | Write | Read | Finish | Listen | Hear | Pause | Give
)
Flow: TypeAlias = Generator[Effect, Any, T]
