"""The gRPC channels of a client, and the exceptions for calls that failed.

A channel without a server waits longer and longer before it resolves the address again. A channel
whose connection is dead, or ends at a captive portal, may keep it for hours. So the call after one
that no store has answered gets a new channel, at most once a second. Calls in progress on the old
channel continue; it is closed when the last of them has ended.

A client of several servers uses one of them. If that one is away or stopping, the new channel goes
to the next in the list. The client stays there until that one fails, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
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
    RowConflict,
    RowProblem,
    ServerError,
    Timeout,
    Unauthenticated,
)
from client_sdk._session import MEBIBYTE
from client_sdk._wire.values import from_rows
from psoup.v1 import psoup_pb2 as pb

# By default gRPC waits up to two minutes between two attempts to connect: too long for a client
# that comes back online. The last one is the timeout of an attempt, generous for slow links.
_FIRST_BACKOFF_MS, _LONGEST_BACKOFF_MS, _CONNECT_TIMEOUT_MS = 100, 1000, 5000
# A younger channel is not replaced: calls that fail at once would open channel after channel.
_LEAST_CHANNEL_SECONDS = 1.0


def channel_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """Return the options of a channel that reconnects soon, for clients that come and go.

    The limit leaves room for the fields around the rows of a message. Channels share no
    connections: a new channel would otherwise wait for the backoff of the old one.
    """
    limit = max_message_bytes + MEBIBYTE
    return [
        ("grpc.max_send_message_length", limit),
        ("grpc.max_receive_message_length", limit),
        ("grpc.initial_reconnect_backoff_ms", _FIRST_BACKOFF_MS),
        ("grpc.max_reconnect_backoff_ms", _LONGEST_BACKOFF_MS),
        ("grpc.min_reconnect_backoff_ms", _CONNECT_TIMEOUT_MS),
        ("grpc.use_local_subchannel_pool", 1),
    ]


@dataclass(eq=False, slots=True)
class CountedChannel:
    """A channel to a target with its stub, and the number of calls in progress on it.

    `files` identifies the certificate files that it was made with.
    """

    target: str
    channel: Any
    stub: Any
    created_at: float = field(default_factory=time.monotonic)
    calls: int = 0
    files: object = None


class Channels:
    """The open channels of a client, the newest of which is used for new calls.

    Several threads may use it. It never closes a channel: it returns those that the caller must
    close.
    """

    def __init__(
        self,
        targets: Sequence[str],
        make: Callable[[str], tuple[Any, Any]],
        files: Callable[[], object] = lambda: None,
    ) -> None:
        """Open no channel yet. `make` returns a new channel to a target and its stub; `files`
        returns a value that changes when the certificate files do.
        """
        self._targets = targets
        self._turn = 0  # of the target for the next channel
        # The channels in a row that ended because no store had answered.
        self._failed_channels = 0
        self._make = make
        self._files = files
        self._lock = threading.Lock()
        self._newest: CountedChannel | None = None
        self._open: set[CountedChannel] = set()
        self.closed = False

    def take(self) -> CountedChannel:
        """Return the channel for one call, which the caller must give back. Raises ValueError after
        `close`.
        """
        with self._lock:
            if self.closed:
                raise ValueError("the client was closed")
            if self._newest is None:
                # Read before the channel is made: if a file changes in between, the channel counts
                # as stale.
                files = self._files()
                target = self._targets[self._turn % len(self._targets)]
                self._newest = CountedChannel(target, *self._make(target), files=files)
                self._open.add(self._newest)
            self._newest.calls += 1
            return self._newest

    def give_back(self, channel: CountedChannel, error: PsoupError | None = None) -> Any | None:
        """End a call, with its error if it failed. Return a channel that the caller must close, or
        None.
        """
        with self._lock:
            channel.calls -= 1
            if self._newest is channel:
                self._judge(channel, error)
            # Calls in progress keep an old channel open; the last of them returns it. After `close`
            # it is not in `_open`, because `close` has returned it.
            if self._newest is channel or channel.calls or channel not in self._open:
                return None
            self._open.remove(channel)
            return channel.channel

    def _judge(self, channel: CountedChannel, error: PsoupError | None) -> None:
        """Give up the newest channel if the end of a call says so."""
        if isinstance(error, Unauthenticated) and error.renewed:
            self._newest = None
        elif not (_is_unanswered(error) or (_is_stopping(error) and len(self._targets) > 1)):
            self._failed_channels = 0
        else:
            is_old = time.monotonic() - channel.created_at >= _LEAST_CHANNEL_SECONDS
            # While there is a target that was not tried yet, nothing is gained by waiting.
            has_others = self._failed_channels < len(self._targets) - 1
            if is_old or has_others:
                self._newest = None
                self._turn += 1
                self._failed_channels += 1
            if isinstance(error, ConnectionFailed):
                error.elsewhere = has_others and _UNSENT in error.message

    def close(self) -> list[Any]:
        """Return all channels, which the caller must close whatever calls are in progress."""
        with self._lock:
            self.closed, self._newest = True, None
            channels = [channel.channel for channel in self._open]
            self._open.clear()
            return channels


# A part of gRPC's message if there was no connection to send the request on.
_UNSENT = "failed to connect to all addresses"


def _is_unanswered(error: PsoupError | None) -> bool:
    """Return whether the error means that no store has answered."""
    return isinstance(error, ConnectionFailed | Timeout) and not error.detail.store_id


def _is_stopping(error: PsoupError | None) -> bool:
    """Return whether the server has refused a call because it stops."""
    return error is not None and error.reason == "STOPPING"


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


# Codes that gRPC itself reports, on either side, without an answer of a store.
_CODES_OF_GRPC = frozenset(
    {"CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE"}
)
# A part of gRPC's message if the answer was plain HTTP; the code depends on the HTTP status.
_PLAIN_HTTP = "http2 header with status"


def from_rpc(error: grpc.RpcError, target: str) -> PsoupError:
    """Return the exception for a failed call, of grpc or of grpc.aio.

    It is a ForeignAnswer if something other than a PSoup store has answered.
    """
    code: str = error.code().name
    message: str = error.details() or code.lower().replace("_", " ")
    trailing: Iterable[tuple[str, str | bytes]] = cast(Any, error).trailing_metadata() or ()
    try:
        detail = detail_of(trailing, error.code().value[0])
    except (DecodeError, ValueError) as problem:
        return ForeignAnswer(f"the answer of {target} was garbled: {problem}", code=code)
    if detail == ErrorDetail():
        if code not in _CODES_OF_GRPC or _PLAIN_HTTP in message:
            reply = f"this is not a PSoup store, or something between: {target} says {message}"
            return ForeignAnswer(reply, code=code)
        if code == "UNAVAILABLE":
            message = f"No answer from a store at {target}: {message}"
    return error_for(code, message, detail)


def error_for(code: str, message: str, detail: ErrorDetail) -> PsoupError:
    """Return the exception for a status code. A code without a class becomes a ServerError that
    keeps it.
    """
    kind = _BY_CODE.get(code, ServerError)
    if kind is InvalidRequest and detail.line > 0:
        kind = QueryProblem
    elif kind is InvalidRequest and detail.row >= 0:
        kind = RowProblem
    elif kind is PreconditionFailed and detail.reason == "CONFLICT_ROW":
        kind = RowConflict
    elif kind is LimitExceeded and detail.reason == "QUOTA_EXCEEDED":
        kind = QuotaExceeded
    return kind(message, detail=detail, code=code)


def detail_of(metadata: Iterable[tuple[str, str | bytes]], code: int) -> ErrorDetail:
    """Return the psoup.v1.ErrorDetail inside google.rpc.Status, or an empty one if it has none.

    `code` is the number of the call's status. Raises DecodeError, and ValueError if
    google.rpc.Status has another code.
    """
    for key, value in metadata:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            status = status_pb2.Status.FromString(value)
            if status.code != code:
                raise ValueError(f"its status is both {status.code} and {code}")
            for packed in status.details:
                detail = pb.ErrorDetail()
                if packed.Unpack(detail):
                    return detail_from(detail)
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
        current=_current(message),
        trace_id=message.trace_id,
    )


def _current(message: pb.ErrorDetail) -> dict[str, Any] | None:
    rows = from_rows(message.current, list(message.current.columns))
    return rows[0] if rows else None


def _retry_after(message: pb.ErrorDetail) -> timedelta | None:
    return message.retry_after.ToTimedelta() if message.HasField("retry_after") else None
