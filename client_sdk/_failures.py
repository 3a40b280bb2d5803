"""From a failed gRPC call to the exception of our tree."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, cast

import grpc
from google.rpc import status_pb2

from client_sdk._exceptions import (
    Conflict,
    ConnectionFailed,
    ErrorDetail,
    ForeignAnswer,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    PsoupError,
    QueryProblem,
    RowProblem,
    ServerError,
    Timeout,
)
from psoup.v1 import psoup_pb2 as pb

_DETAILS_KEY = "grpc-status-details-bin"

_BY_CODE: dict[str, type[PsoupError]] = {
    "UNAVAILABLE": ConnectionFailed,
    "DEADLINE_EXCEEDED": Timeout,
    "INVALID_ARGUMENT": InvalidRequest,
    "OUT_OF_RANGE": InvalidRequest,
    "UNIMPLEMENTED": InvalidRequest,
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
    """The exception for a failed call, sync or aio."""
    code: str = error.code().name
    message: str = error.details() or code.lower().replace("_", " ")
    trailing: Iterable[tuple[str, str | bytes]] = cast(Any, error).trailing_metadata() or ()
    detail = detail_of(trailing)
    if detail == ErrorDetail():
        if code not in _GRPC_S_OWN or _PLAIN_HTTP in message:
            said = f"this is not a PSoup store, or something between: {target} says {message}"
            return ForeignAnswer(said, code=code)
        if code == "UNAVAILABLE":
            message = f"No answer from a store at {target}: {message}"
    return error_for(code, message, detail)


def error_for(code: str, message: str, detail: ErrorDetail) -> PsoupError:
    """A status we have no class for is a ServerError that keeps the code."""
    kind = _BY_CODE.get(code, ServerError)
    if kind is InvalidRequest and detail.line > 0:
        kind = QueryProblem
    elif kind is InvalidRequest and detail.row >= 0:
        kind = RowProblem
    return kind(message, detail=detail, code=code)


def detail_of(metadata: Iterable[tuple[str, str | bytes]]) -> ErrorDetail:
    """The psoup.v1.ErrorDetail inside google.rpc.Status, or an empty one."""
    for key, value in metadata:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            for packed in status_pb2.Status.FromString(value).details:
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
