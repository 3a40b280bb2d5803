"""The one table that gives each error its status code, and errors as messages of the wire."""

from __future__ import annotations

import logging
import secrets
from typing import Any

import grpc
from google.rpc import code_pb2, status_pb2

from datastem.errors import DataError, DecodeError, RowError, TooMuchText
from psoup import errors
from psoup.errors import ServerError
from psoup.store import errors as store
from psoup.v1 import psoup_pb2 as pb
from querystem.language import errors as language

log = logging.getLogger("psoup.server")

# Both travel in HTTP/2 trailers, of which clients take 8 KiB; beyond ASCII a byte costs three.
_MESSAGE_BYTES = 1200
_VALUE_BYTES = 200


_Code = grpc.StatusCode

# One row for each class; a test finds classes that are missing here.
CODES: dict[type[Exception], grpc.StatusCode] = {
    ServerError: _Code.INTERNAL,
    errors.BadRequest: _Code.INVALID_ARGUMENT,
    errors.Garbled: _Code.ABORTED,
    errors.Unauthenticated: _Code.UNAUTHENTICATED,
    errors.PermissionDenied: _Code.PERMISSION_DENIED,
    errors.AdministrationDenied: _Code.PERMISSION_DENIED,
    errors.QuotaExceeded: _Code.RESOURCE_EXHAUSTED,
    errors.UnknownHandle: _Code.NOT_FOUND,
    errors.RegistrationExpired: _Code.NOT_FOUND,
    errors.UnknownTimeZone: _Code.INVALID_ARGUMENT,
    errors.NoSuchStream: _Code.NOT_FOUND,
    errors.NoSuchAccessKey: _Code.NOT_FOUND,
    errors.NoSuchPublisher: _Code.NOT_FOUND,
    errors.StreamExists: _Code.ALREADY_EXISTS,
    errors.ColumnExists: _Code.ALREADY_EXISTS,
    errors.InUse: _Code.FAILED_PRECONDITION,
    errors.StreamDropped: _Code.FAILED_PRECONDITION,
    errors.NotAStream: _Code.INVALID_ARGUMENT,
    errors.NamedByViews: _Code.FAILED_PRECONDITION,
    errors.PolicyExists: _Code.ALREADY_EXISTS,
    errors.NoSuchPolicy: _Code.NOT_FOUND,
    errors.ClientKeyTaken: _Code.ALREADY_EXISTS,
    errors.SequenceGap: _Code.FAILED_PRECONDITION,
    errors.SequenceReused: _Code.ALREADY_EXISTS,
    errors.ConflictRow: _Code.FAILED_PRECONDITION,
    errors.NotCurrent: _Code.FAILED_PRECONDITION,
    errors.NoCurrentRow: _Code.FAILED_PRECONDITION,
    errors.KeyErased: _Code.FAILED_PRECONDITION,
    errors.AfterFailure: _Code.ABORTED,
    errors.Overloaded: _Code.RESOURCE_EXHAUSTED,
    errors.LogFull: _Code.RESOURCE_EXHAUSTED,
    errors.TooMuchWork: _Code.RESOURCE_EXHAUSTED,
    errors.NotReached: _Code.DEADLINE_EXCEEDED,
    errors.OutOfTime: _Code.DEADLINE_EXCEEDED,
    errors.ConditionFails: _Code.FAILED_PRECONDITION,
    errors.RowsLost: _Code.DATA_LOSS,
    errors.RowsGone: _Code.ABORTED,
    errors.DiskFull: _Code.RESOURCE_EXHAUSTED,
    errors.StorageFailed: _Code.UNAVAILABLE,
    errors.ClockAhead: _Code.UNAVAILABLE,
    errors.ClockUnconfirmed: _Code.UNAVAILABLE,
    errors.Stopping: _Code.UNAVAILABLE,
    language.QueryError: _Code.INVALID_ARGUMENT,
    language.SyntaxProblem: _Code.INVALID_ARGUMENT,
    language.NotYet: _Code.UNIMPLEMENTED,
    language.BindProblem: _Code.INVALID_ARGUMENT,
    language.UnknownStream: _Code.NOT_FOUND,
    language.UnknownColumn: _Code.INVALID_ARGUMENT,
    language.UnknownFunction: _Code.INVALID_ARGUMENT,
    language.UnknownParameter: _Code.INVALID_ARGUMENT,
    language.TypeProblem: _Code.INVALID_ARGUMENT,
    language.WindowProblem: _Code.INVALID_ARGUMENT,
    language.RefreshProblem: _Code.INVALID_ARGUMENT,
    DataError: _Code.INVALID_ARGUMENT,
    RowError: _Code.INVALID_ARGUMENT,
    DecodeError: _Code.DATA_LOSS,
    TooMuchText: _Code.RESOURCE_EXHAUSTED,
    store.StoreError: _Code.UNAVAILABLE,
    store.Conflict: _Code.UNAVAILABLE,
    store.NotAStore: _Code.FAILED_PRECONDITION,
    store.UnsupportedFormat: _Code.FAILED_PRECONDITION,
    store.CorruptStore: _Code.DATA_LOSS,
    store.Repairing: _Code.UNAVAILABLE,
    store.LogTrimmed: _Code.UNAVAILABLE,
    store.ForeignPosition: _Code.INVALID_ARGUMENT,
}

Context = grpc.aio.ServicerContext[Any, Any]

FAMILIES: tuple[type[Exception], ...] = (
    ServerError,
    language.QueryError,
    DataError,
    store.StoreError,
)

_NUMBERED = {code.value[0]: code for code in grpc.StatusCode}

_REASONS: dict[type[Exception], str] = {
    DecodeError: "UNDECODABLE",
    store.Conflict: "CONFLICT",
    store.NotAStore: "NOT_A_STORE",
    store.UnsupportedFormat: "UNSUPPORTED_FORMAT",
    store.CorruptStore: "CORRUPT_STORE",
    store.Repairing: "REPAIRING",
    store.LogTrimmed: "LOG_TRIMMED",
    store.ForeignPosition: "FOREIGN_POSITION",
}


def code_of(error: Exception) -> grpc.StatusCode:
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    return _Code.INTERNAL


def reason_of(error: Exception) -> str:
    """Return the stable name of an error."""
    return _detail(error).reason


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
        case TooMuchText(count=count, limit=limit):
            return pb.ErrorDetail(
                reason=errors.TooMuchWork.reason,
                expected=f"at most {limit} bytes",
                got=f"{count} bytes",
                hint="narrow the window, or make shorter texts",
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


def status_of(error: Exception, store_id: str, trace_id: str = "") -> status_pb2.Status:
    """Return the google.rpc.Status whose details hold the one ErrorDetail."""
    status = status_pb2.Status(code=code_of(error).value[0], message=_clip(str(error)))
    detail = detail_of(error, store_id)
    detail.trace_id = trace_id
    status.details.add().Pack(detail)
    return status


def internal_status(ident: str, store_id: str, trace_id: str = "") -> status_pb2.Status:
    """Return the status of an unexpected error, whose cause is in the server's log under
    `ident`."""
    message = f"the server failed in a way it did not expect; its log has the cause under {ident}"
    status = status_pb2.Status(code=code_pb2.INTERNAL, message=message)
    detail = pb.ErrorDetail(
        reason="INTERNAL", row=-1, got=ident, store_id=store_id, trace_id=trace_id
    )
    status.details.add().Pack(detail)
    return status


def _clip(text: str, limit: int = _MESSAGE_BYTES) -> str:
    """Return the beginning of a text, which may have come from anywhere, in UTF-8."""
    content = text.encode(errors="backslashreplace")
    if len(content) <= limit:
        return content.decode()
    return content[:limit].decode(errors="ignore") + "…"


def refuse(context: Context, error: Exception, store_id: str, trace_id: str = "") -> None:
    """End a call with the status of an error, and its detail in the trailer, once its handler
    returns.

    `context.abort` would raise an exception that gRPC keeps together with its traceback, whose
    frames hold the request: as a cycle, until the garbage is collected. For the same reason the
    error lets go of its own frames here.
    """
    status = status_for(error, store_id, trace_id)
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


def status_for(error: Exception, store_id: str, trace_id: str = "") -> status_pb2.Status:
    """Return the status of any error; one that is not expected goes to the server's log."""
    if isinstance(error, FAMILIES):
        return status_of(error, store_id, trace_id)
    ident = secrets.token_hex(4)
    log.error("unexpected error %s", ident, exc_info=error)
    return internal_status(ident, store_id, trace_id)
