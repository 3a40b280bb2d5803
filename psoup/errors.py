"""The errors that clients of a store get, through a server or without one.

A server maps each to a status code (`psoup.server.status_codes`); the packages below it know no
wire.

ServerError
├── BadRequest          a field of the request is wrong
├── Garbled             the request is not what was sent; nothing was done
├── Unauthenticated     the call has no credential, or an invalid one
├── PermissionDenied    the caller may not do that
│   └── AdministrationDenied    … which would be to administer; the audit has it
├── QuotaExceeded       the tenant or owner has reached a limit
├── UnknownHandle
├── RegistrationExpired its lease ran out without contact
├── UnknownTimeZone     the store has no rules of a time zone
├── NoSuchStream
├── NoSuchPublisher     the owner has no publisher of that name, or it was forgotten
├── NoSuchAccessKey           the tenant has no such key, or it was revoked
├── StreamExists
├── ColumnExists
├── InUse               registrations need what is to be changed
├── StreamDropped       the registration's stream is gone, or a view it goes through
├── NotAStream          the name is a view's, and a stream is required
├── NamedByViews        views name what is to be dropped
├── PolicyExists
├── NoSuchPolicy
├── ClientKeyTaken            the client key belongs to another query
├── SequenceGap         the sequence before this one is missing
├── SequenceReused      that sequence was given to other rows
├── ConflictRow         another row of its key is current than the one that an edit expects
├── NotCurrent          an edit would not become the current row of its key
├── NoCurrentRow        a patch of a key without a current row
├── KeyErased           the row's key was erased, and is not accepted for a while
├── AfterFailure        an earlier batch of the same call was refused
├── Overloaded          too much at once: try again after a while
├── LogFull             the engine is so far behind that no rows are taken
├── TooMuchWork         more rows to compute than the server may
├── NotReached          a wait timed out
├── OutOfTime           the call's deadline passed while it was computed
├── ConditionFails      a condition of the query can't be evaluated, and is in quarantine
├── RowsLost            the answer needs rows that were accepted and are lost
├── RowsGone            the answer was read so slowly that rows of it were deleted
├── DiskFull
├── StorageFailed
├── ClockAhead          this server's clock is ahead of the others'
├── ClockUnconfirmed    an event time that only an unconfirmed jump of the clock allows
└── Stopping
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


class ServerError(Exception):
    """An error with a stable name, `reason`, and details for programs.

    The keywords are fields of the wire's ErrorDetail, such as `field`, `got`, `hint` or
    `retry_after`.
    """

    reason = "SERVER"

    def __init__(self, message: str, *, reason: str = "", **detail: Any) -> None:
        super().__init__(message)
        self.reason = reason or type(self).reason
        self.detail = detail


class BadRequest(ServerError):
    reason = "BAD_REQUEST"


class Garbled(ServerError):
    reason = "GARBLED"


class Unauthenticated(ServerError):
    reason = "UNAUTHENTICATED"


class PermissionDenied(ServerError):
    reason = "PERMISSION_DENIED"


class AdministrationDenied(PermissionDenied):
    pass


class QuotaExceeded(ServerError):
    reason = "QUOTA_EXCEEDED"


class UnknownHandle(ServerError):
    reason = "UNKNOWN_HANDLE"


class RegistrationExpired(ServerError):
    reason = "REGISTRATION_EXPIRED"


class UnknownTimeZone(ServerError):
    """The store has no rules of some time zones: `names`."""

    reason = "UNKNOWN_TIME_ZONE"

    def __init__(self, names: Collection[str], hint: str = "") -> None:
        self.names = frozenset(names)
        written = ", ".join(sorted(names))
        hint = hint or "a server gives the store its rules when a query first names it"
        super().__init__(f"no rules of the time zone {written}", got=written, hint=hint)


class NoSuchStream(ServerError):
    reason = "UNKNOWN_STREAM"


class NoSuchPublisher(ServerError):
    reason = "UNKNOWN_PUBLISHER"


class NoSuchAccessKey(ServerError):
    reason = "UNKNOWN_KEY"


class StreamExists(ServerError):
    reason = "STREAM_EXISTS"


class ColumnExists(ServerError):
    reason = "COLUMN_EXISTS"


class InUse(ServerError):
    reason = "IN_USE"


class StreamDropped(ServerError):
    reason = "STREAM_DROPPED"


class NotAStream(ServerError):
    reason = "NOT_A_STREAM"


class NamedByViews(ServerError):
    reason = "NAMED_BY_VIEWS"


class PolicyExists(ServerError):
    reason = "POLICY_EXISTS"


class NoSuchPolicy(ServerError):
    reason = "UNKNOWN_POLICY"


class ClientKeyTaken(ServerError):
    reason = "CLIENT_KEY_TAKEN"


class SequenceGap(ServerError):
    reason = "SEQUENCE_GAP"


class SequenceReused(ServerError):
    reason = "SEQUENCE_REUSED"


class ConflictRow(ServerError):
    """The edit at place `row` of a batch expects another current row of its key than the one of the
    stream `stream_id` with the id `row_id`; -1 if the key has none. The detail names neither:
    whoever reports the error must know whether the caller may see them."""

    reason = "CONFLICT_ROW"

    def __init__(
        self, message: str, *, stream_id: int = 0, row_id: int = -1, **detail: Any
    ) -> None:
        super().__init__(message, **detail)
        self.stream_id = stream_id
        self.row_id = row_id


class NotCurrent(ServerError):
    reason = "NOT_CURRENT"


class NoCurrentRow(ServerError):
    """A patch whose key has no current row, or one that the caller may not see."""

    reason = "NO_CURRENT_ROW"


class KeyErased(ServerError):
    reason = "ERASED"


class AfterFailure(ServerError):
    reason = "AFTER_FAILURE"


class Overloaded(ServerError):
    reason = "OVERLOADED"


class LogFull(ServerError):
    reason = "LOG_FULL"


class TooMuchWork(ServerError):
    reason = "TOO_MUCH_WORK"


class NotReached(ServerError):
    reason = "NOT_REACHED"


class OutOfTime(ServerError):
    reason = "OUT_OF_TIME"


class ConditionFails(ServerError):
    reason = "CONDITION_FAILS"


class RowsLost(ServerError):
    reason = "CORRUPT_STORE"


class RowsGone(ServerError):
    reason = "DATA_FILE_GONE"


class DiskFull(ServerError):
    reason = "DISK_FULL"


class StorageFailed(ServerError):
    reason = "STORAGE_FAILED"


class ClockAhead(ServerError):
    reason = "CLOCK_AHEAD"


class ClockUnconfirmed(ServerError):
    reason = "CLOCK_UNCONFIRMED"


class Stopping(ServerError):
    reason = "STOPPING"
