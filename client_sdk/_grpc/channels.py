"""The channels calls are made on, and what a call that failed means.

A channel that found no server waits longer and longer before it asks for the address again, and one
whose line is dead, or ends at a captive portal, may keep it for hours. So after a call to which no
store has answered the next one is made on a new channel, at most once a second. Calls under way on
the old channel go on; it is closed when the last has ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from client_sdk._exceptions import (
    Conflict,
    ConnectionFailed,
    ErrorDetail,
    ForeignAnswer,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    PsoupError,
    QueryProblem,
    QuotaExceeded,
    RowProblem,
    ServerError,
    Timeout,
    Unauthenticated,
)
from client_sdk._session import MEBIBYTE
from psoup.v1 import psoup_pb2 as pb

# gRPC's own pauses between two connects grow to two minutes: a client that comes back would stay
# cut off. One connect may take the last of these, for slow links; then another is tried.
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_CONNECT = 100, 1000, 5000
_SHORTEST_LIFE = 1.0


def channel_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """Gives the options of a channel for clients that come and go: it connects again soon.

    There is room for the largest message the server takes, and for the fields around its rows.
    Channels of a process share no connection, else a new one waits for the pauses of the others.
    """
    limit = max_message_bytes + MEBIBYTE
    return [
        ("grpc.max_send_message_length", limit),
        ("grpc.max_receive_message_length", limit),
        ("grpc.initial_reconnect_backoff_ms", _FIRST_PAUSE),
        ("grpc.max_reconnect_backoff_ms", _LONGEST_PAUSE),
        ("grpc.min_reconnect_backoff_ms", _LONGEST_CONNECT),
        ("grpc.use_local_subchannel_pool", 1),
    ]


@dataclass(eq=False, slots=True)
class HeldChannel:
    """A held channel has its stub, and the count of calls that are under way on it. `files` marks
    the certificates it was made with."""

    channel: Any
    stub: Any
    made_at: float = field(default_factory=time.monotonic)
    calls: int = 0
    files: object = None


class Channels:
    """Gives each call its channel. Usable from several threads; closing is left to the caller."""

    def __init__(
        self, make: Callable[[], tuple[Any, Any]], files: Callable[[], object] = lambda: None
    ) -> None:
        """`make` gives a channel and its stub, `files` the mark of what it is made with."""
        self._make = make
        self._files = files
        self._lock = threading.Lock()
        self._newest: HeldChannel | None = None
        self._held: set[HeldChannel] = set()
        self.closed = False

    def take(self) -> HeldChannel:
        """Takes the channel for one call, to be given back. Raises ValueError after `close`."""
        with self._lock:
            if self.closed:
                raise ValueError("the client was closed")
            if self._newest is None:
                files = self._files()
                self._newest = HeldChannel(*self._make(), files=files)
                self._held.add(self._newest)
            self._newest.calls += 1
            return self._newest

    def give_back(self, held: HeldChannel, error: PsoupError | None = None) -> Any | None:
        """Ends a call, with an error if it had one. Gives a channel that is to be closed."""
        with self._lock:
            held.calls -= 1
            old = time.monotonic() - held.made_at >= _SHORTEST_LIFE
            stale = isinstance(error, Unauthenticated) and error.renewed
            if self._newest is held and (stale or (old and _is_unheard(error))):
                self._newest = None
            if self._newest is held or held.calls or held not in self._held:
                return None
            self._held.remove(held)
            return held.channel

    def close(self) -> list[Any]:
        """Gives all channels, to be closed whatever is under way on them."""
        with self._lock:
            self.closed, self._newest = True, None
            channels = [held.channel for held in self._held]
            self._held.clear()
            return channels


def _is_unheard(error: PsoupError | None) -> bool:
    """Tells whether the error means that no store has answered."""
    return isinstance(error, ConnectionFailed | Timeout) and not error.detail.store_id


_DETAILS_KEY = "grpc-status-details-bin"

_BY_CODE: dict[str, type[PsoupError]] = {
    "UNAVAILABLE": ConnectionFailed,
    "DEADLINE_EXCEEDED": Timeout,
    "INVALID_ARGUMENT": InvalidRequest,
    "OUT_OF_RANGE": InvalidRequest,
    "UNIMPLEMENTED": InvalidRequest,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": Conflict,
    "ABORTED": Conflict,
    "FAILED_PRECONDITION": PreconditionFailed,
    "RESOURCE_EXHAUSTED": LimitExceeded,
}


# Codes that gRPC itself gives too, on either side, where a store has not spoken.
_GRPC_S_OWN = frozenset(
    {"CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE"}
)
# How gRPC tells that plain HTTP was answered, whatever code it makes of that.
_PLAIN_HTTP = "http2 header with status"


def from_rpc(error: grpc.RpcError, target: str) -> PsoupError:
    """Makes the exception for a failed call, of grpc or of grpc.aio."""
    code: str = error.code().name
    message: str = error.details() or code.lower().replace("_", " ")
    trailing: Iterable[tuple[str, str | bytes]] = cast(Any, error).trailing_metadata() or ()
    try:
        detail = detail_of(trailing, error.code().value[0])
    except (DecodeError, ValueError) as problem:
        said = f"the answer of {target} is not what was sent: {problem}"
        return ForeignAnswer(said, code=code)
    if detail == ErrorDetail():
        if code not in _GRPC_S_OWN or _PLAIN_HTTP in message:
            said = f"this is not a PSoup store, or something between: {target} says {message}"
            return ForeignAnswer(said, code=code)
        if code == "UNAVAILABLE":
            message = f"No answer from a store at {target}: {message}"
    return error_for(code, message, detail)


def error_for(code: str, message: str, detail: ErrorDetail) -> PsoupError:
    """Makes the exception for a status; one that has no class is a ServerError that keeps the
    code.
    """
    kind = _BY_CODE.get(code, ServerError)
    if kind is InvalidRequest and detail.line > 0:
        kind = QueryProblem
    elif kind is InvalidRequest and detail.row >= 0:
        kind = RowProblem
    elif kind is LimitExceeded and detail.reason == "QUOTA_EXCEEDED":
        kind = QuotaExceeded
    return kind(message, detail=detail, code=code)


def detail_of(metadata: Iterable[tuple[str, str | bytes]], code: int) -> ErrorDetail:
    """Finds the psoup.v1.ErrorDetail inside google.rpc.Status; gives an empty one where there is
    none.

    Raises DecodeError, and ValueError where the status has another code than the call.
    """
    for key, value in metadata:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            status = status_pb2.Status.FromString(value)
            if status.code != code:
                raise ValueError(f"its status is {status.code} and {code}")
            for packed in status.details:
                found = pb.ErrorDetail()
                if packed.Unpack(found):
                    return detail_from(found)
    return ErrorDetail()


def detail_from(message: pb.ErrorDetail) -> ErrorDetail:
    return ErrorDetail(
        reason=message.reason,
        line=message.line,
        column=message.column,
        excerpt=message.excerpt,
        hint=message.hint,
        expected=message.expected,
        got=message.got,
        row=message.row,
        field=message.field,
        store_id=message.store_id,
        retry_after=_retry_after(message),
    )


def _retry_after(message: pb.ErrorDetail) -> timedelta | None:
    return message.retry_after.ToTimedelta() if message.HasField("retry_after") else None
