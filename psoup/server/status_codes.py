"""The one table that gives each error its status code, and errors as messages of the wire."""

from __future__ import annotations

import logging
import secrets
from typing import Any

import grpc
from google.rpc import code_pb2, status_pb2

from datastem.errors import DataError, DecodeError, RowError
from psoup.errors import (
    AdministrationDenied,
    AfterFailure,
    BadRequest,
    ClientKeyTaken,
    ClockAhead,
    ClockUnconfirmed,
    ConditionFails,
    DiskFull,
    Garbled,
    LogFull,
    NamedByViews,
    NoSuchAccessKey,
    NoSuchPolicy,
    NoSuchPublisher,
    NoSuchStream,
    NotAStream,
    NotReached,
    OutOfTime,
    Overloaded,
    PermissionDenied,
    PolicyExists,
    QuotaExceeded,
    RegistrationExpired,
    RowsGone,
    RowsLost,
    SequenceGap,
    SequenceReused,
    ServerError,
    Stopping,
    StorageFailed,
    StreamDropped,
    StreamExists,
    TooMuchWork,
    Unauthenticated,
    UnknownHandle,
)
from psoup.store.errors import (
    Conflict,
    CorruptStore,
    ForeignPosition,
    LogTrimmed,
    NotAStore,
    Repairing,
    StoreError,
    UnsupportedFormat,
)
from psoup.v1 import psoup_pb2 as pb
from querystem.language import errors as language

__all__ = [
    "AfterFailure",
    "BadRequest",
    "CODES",
    "ClockAhead",
    "ClockUnconfirmed",
    "ConditionFails",
    "DiskFull",
    "FAMILIES",
    "Garbled",
    "ClientKeyTaken",
    "LogFull",
    "NamedByViews",
    "NoSuchPolicy",
    "NoSuchStream",
    "NotAStream",
    "NotReached",
    "OutOfTime",
    "Overloaded",
    "PolicyExists",
    "RegistrationExpired",
    "RowsGone",
    "RowsLost",
    "SequenceGap",
    "SequenceReused",
    "ServerError",
    "Stopping",
    "StorageFailed",
    "StreamDropped",
    "StreamExists",
    "TooMuchWork",
    "UnknownHandle",
    "code_of",
    "detail_of",
    "internal_status",
    "status_of",
]

log = logging.getLogger("psoup.server")

# Both travel in HTTP/2 trailers, of which clients take 8 KiB; beyond ASCII a byte costs three.
_MESSAGE_BYTES = 1200
_VALUE_BYTES = 200


# One row for each class; a test finds classes that are missing here.
CODES: dict[type[Exception], grpc.StatusCode] = {
    ServerError: grpc.StatusCode.INTERNAL,
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    Garbled: grpc.StatusCode.ABORTED,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    AdministrationDenied: grpc.StatusCode.PERMISSION_DENIED,
    QuotaExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    UnknownHandle: grpc.StatusCode.NOT_FOUND,
    RegistrationExpired: grpc.StatusCode.NOT_FOUND,
    NoSuchStream: grpc.StatusCode.NOT_FOUND,
    NoSuchAccessKey: grpc.StatusCode.NOT_FOUND,
    NoSuchPublisher: grpc.StatusCode.NOT_FOUND,
    StreamExists: grpc.StatusCode.ALREADY_EXISTS,
    StreamDropped: grpc.StatusCode.FAILED_PRECONDITION,
    NotAStream: grpc.StatusCode.INVALID_ARGUMENT,
    NamedByViews: grpc.StatusCode.FAILED_PRECONDITION,
    PolicyExists: grpc.StatusCode.ALREADY_EXISTS,
    NoSuchPolicy: grpc.StatusCode.NOT_FOUND,
    ClientKeyTaken: grpc.StatusCode.ALREADY_EXISTS,
    SequenceGap: grpc.StatusCode.FAILED_PRECONDITION,
    SequenceReused: grpc.StatusCode.ALREADY_EXISTS,
    AfterFailure: grpc.StatusCode.ABORTED,
    Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    LogFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    TooMuchWork: grpc.StatusCode.RESOURCE_EXHAUSTED,
    NotReached: grpc.StatusCode.DEADLINE_EXCEEDED,
    OutOfTime: grpc.StatusCode.DEADLINE_EXCEEDED,
    ConditionFails: grpc.StatusCode.FAILED_PRECONDITION,
    RowsLost: grpc.StatusCode.DATA_LOSS,
    RowsGone: grpc.StatusCode.ABORTED,
    DiskFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    StorageFailed: grpc.StatusCode.UNAVAILABLE,
    ClockAhead: grpc.StatusCode.UNAVAILABLE,
    ClockUnconfirmed: grpc.StatusCode.UNAVAILABLE,
    Stopping: grpc.StatusCode.UNAVAILABLE,
    language.QueryError: grpc.StatusCode.INVALID_ARGUMENT,
    language.SyntaxProblem: grpc.StatusCode.INVALID_ARGUMENT,
    language.NotYet: grpc.StatusCode.UNIMPLEMENTED,
    language.BindProblem: grpc.StatusCode.INVALID_ARGUMENT,
    language.UnknownStream: grpc.StatusCode.NOT_FOUND,
    language.UnknownColumn: grpc.StatusCode.INVALID_ARGUMENT,
    language.UnknownFunction: grpc.StatusCode.INVALID_ARGUMENT,
    language.UnknownParameter: grpc.StatusCode.INVALID_ARGUMENT,
    language.TypeProblem: grpc.StatusCode.INVALID_ARGUMENT,
    language.WindowProblem: grpc.StatusCode.INVALID_ARGUMENT,
    language.RefreshProblem: grpc.StatusCode.INVALID_ARGUMENT,
    DataError: grpc.StatusCode.INVALID_ARGUMENT,
    RowError: grpc.StatusCode.INVALID_ARGUMENT,
    DecodeError: grpc.StatusCode.DATA_LOSS,
    StoreError: grpc.StatusCode.UNAVAILABLE,
    Conflict: grpc.StatusCode.UNAVAILABLE,
    NotAStore: grpc.StatusCode.FAILED_PRECONDITION,
    UnsupportedFormat: grpc.StatusCode.FAILED_PRECONDITION,
    CorruptStore: grpc.StatusCode.DATA_LOSS,
    Repairing: grpc.StatusCode.UNAVAILABLE,
    LogTrimmed: grpc.StatusCode.UNAVAILABLE,
    ForeignPosition: grpc.StatusCode.INVALID_ARGUMENT,
}

Context = grpc.aio.ServicerContext[Any, Any]

FAMILIES: tuple[type[Exception], ...] = (ServerError, language.QueryError, DataError, StoreError)

_NUMBERED = {code.value[0]: code for code in grpc.StatusCode}

_REASONS: dict[type[Exception], str] = {
    DecodeError: "UNDECODABLE",
    Conflict: "CONFLICT",
    NotAStore: "NOT_A_STORE",
    UnsupportedFormat: "UNSUPPORTED_FORMAT",
    CorruptStore: "CORRUPT_STORE",
    Repairing: "REPAIRING",
    LogTrimmed: "LOG_TRIMMED",
    ForeignPosition: "FOREIGN_POSITION",
}


def code_of(error: Exception) -> grpc.StatusCode:
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    return grpc.StatusCode.INTERNAL


def detail_of(error: Exception, store_id: str) -> pb.ErrorDetail:
    """Return the detail of an error, for programs. A client sees by `store_id` which store has
    answered."""
    detail = _detail(error)
    detail.store_id = store_id
    return detail


def _detail(error: Exception) -> pb.ErrorDetail:
    match error:
        case ServerError():
            return pb.ErrorDetail(**{"row": -1, **error.detail, "reason": error.reason})
        case language.QueryError():
            return pb.ErrorDetail(
                reason=error.reason,
                line=error.line,
                column=error.column,
                excerpt=error.excerpt,
                hint=error.hint,
                row=-1,
            )
        case RowError():
            return pb.ErrorDetail(
                reason=error.reason,
                row=error.row,
                field=_clip(error.field, _VALUE_BYTES),
                expected=_clip(error.expected, _VALUE_BYTES),
                got=_clip(error.got, _VALUE_BYTES),
                hint=_clip(error.hint, _VALUE_BYTES),
            )
    return pb.ErrorDetail(reason=_REASONS.get(type(error), "INTERNAL"), row=-1)


def status_of(error: Exception, store_id: str) -> status_pb2.Status:
    """Return the google.rpc.Status whose details hold the one ErrorDetail."""
    status = status_pb2.Status(code=code_of(error).value[0], message=_clip(str(error)))
    status.details.add().Pack(detail_of(error, store_id))
    return status


def internal_status(ident: str, store_id: str) -> status_pb2.Status:
    """Return the status of an unexpected error, whose cause is in the server's log under
    `ident`."""
    message = f"the server failed in a way it did not expect; its log has the cause under {ident}"
    status = status_pb2.Status(code=code_pb2.INTERNAL, message=message)
    detail = pb.ErrorDetail(reason="INTERNAL", row=-1, got=ident, store_id=store_id)
    status.details.add().Pack(detail)
    return status


def _clip(text: str, limit: int = _MESSAGE_BYTES) -> str:
    content = text.encode()
    if len(content) <= limit:
        return text
    return content[:limit].decode(errors="ignore") + "…"


def refuse(context: Context, error: Exception, store_id: str) -> None:
    """End a call with the status of an error, and its detail in the trailer, once its handler
    returns.

    `context.abort` would raise an exception that gRPC keeps together with its traceback, whose
    frames hold the request: as a cycle, until the garbage is collected. For the same reason the
    error lets go of its own frames here.
    """
    status = _status(error, store_id)
    context.set_code(_NUMBERED[status.code])
    context.set_details(status.message)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    _forget_frames(error)


def _forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error and of those it came from."""
    pending: list[BaseException | None] = [error]
    while pending:
        linked = pending.pop()
        if linked is not None:
            pending += [linked.__cause__, linked.__context__]
            linked.__traceback__ = linked.__cause__ = linked.__context__ = None


def _status(error: Exception, store_id: str) -> status_pb2.Status:
    if isinstance(error, FAMILIES):
        return status_of(error, store_id)
    ident = secrets.token_hex(4)
    log.error("unexpected error %s", ident, exc_info=error)
    return internal_status(ident, store_id)
