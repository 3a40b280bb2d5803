"""The errors between a client and a store.

    PsoupError
    ├── ConnectionFailed       no server answered at the target
    │   └── ForeignAnswer      something answered that is no PSoup store: a proxy, a captive portal
    ├── Timeout                the deadline passed first
    ├── InvalidRequest         the request itself is wrong; sending it again does not help
    │   ├── QueryProblem       … in its SQL: `line`, `column`, `excerpt`
    │   └── RowProblem         … in its rows: `row`, `field`
    ├── Unauthenticated        the credential is missing, unknown, expired or revoked
    ├── PermissionDenied       the store knows the caller, who may not do this
    ├── NotFound               no such stream, view, registration or key
    ├── Conflict               the name, client key or sequence is in use for something else
    ├── PreconditionFailed     right in itself, but not in the present state of the store
    │   └── RowConflict        … an edit would replace a row that its editor has not seen
    ├── LimitExceeded          larger than the server, or this client, accepts
    │   └── QuotaExceeded      … or more than the tenant or owner may have or do
    ├── ServerError            the server failed, or broke the protocol
    ├── CopyError              a file of offline copies, or a copy in it
    │   ├── UnknownCopy        no copy of that name is kept; a KeyError too
    │   ├── NotSynced          the copy is kept, but its answer is not in the file
    │   ├── Unsent             rows that the store has not taken would be lost
    │   ├── NotComputable      its answer can't be computed from base rows
    │   ├── LocalQueryProblem  the SQL of `query` is wrong, or would write
    │   ├── OtherStore         the file belongs to another store than the one that answers
    │   ├── FileBusy           another process or thread has used the file for too long
    │   ├── FileFull           the disk is full; the copies are as they were
    │   ├── FileDamaged        the file can't be read; `Copies.recover` saves what can be
    │   ├── WrongFile          a file of another program, or of another version
    │   └── WrongKey           the file is encrypted with another key, or not at all
    └── PullError              a pull, not the store it asks
        ├── BadPull            its description is wrong; a ValueError too
        ├── Incomplete         the transfer was cut; the next pull continues it
        ├── OutputBusy         another process is pulling into the same output
        ├── OutputFailed       the output could not be written; what was there still is
        └── HookFailed         the command to run on a change failed or took too long

Misuse of the SDK itself (a handle of 5 bytes, a sequence without a publisher) is ValueError or
TypeError, raised before anything is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """What the server said for programs. A field that does not apply is empty, 0, None, or -1
    (`row`).

    `store_id` is the store that reported the error; it is empty if no store did. `retry_after` is
    how long to wait before the next attempt. `current` is the row that is there instead of the one
    that an edit expects, if the caller may see it, with `row_id` and `ts`. `trace_id` is the trace
    of the call, if the server sends traces.
    """

    reason: str = ""
    line: int = 0
    column: int = 0
    excerpt: str = ""
    hint: str = ""
    expected: str = ""
    got: str = ""
    row: int = -1
    field: str = ""
    store_id: str = ""
    retry_after: timedelta | None = None
    current: dict[str, Any] | None = None
    trace_id: str = ""


class PsoupError(Exception):
    """The base of all errors: a message for people, a `detail` for programs, the gRPC status as
    `code`.
    """

    code = "UNKNOWN"

    def __init__(
        self, message: str, *, detail: ErrorDetail | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail or ErrorDetail()
        if code is not None:
            self.code = code

    @property
    def reason(self) -> str:
        """A stable name such as UNKNOWN_STREAM; empty if the server gave none."""
        return self.detail.reason

    @property
    def hint(self) -> str:
        """A sentence that says what to do; may be empty."""
        return self.detail.hint


class ConnectionFailed(PsoupError):
    """No server answered at the target.

    `elsewhere` is True if the request was not sent and the client has another server to send it to:
    then the call is repeated.
    """

    code = "UNAVAILABLE"
    elsewhere = False


class ForeignAnswer(ConnectionFailed):
    """Something that is no PSoup store has answered, such as a proxy or a captive portal.

    Whether the store has seen the request is unknown. `code` is what was answered instead. Ask
    again later, or at another address.
    """


class Timeout(PsoupError):
    """The deadline passed before there was an answer."""

    code = "DEADLINE_EXCEEDED"


class InvalidRequest(PsoupError):
    """The request itself is wrong. Sending it again does not help."""

    code = "INVALID_ARGUMENT"


class QueryProblem(InvalidRequest):
    """An error in the SQL. `line` and `column` count from 1; `excerpt` is the line with the place
    underlined.
    """

    @property
    def line(self) -> int:
        return self.detail.line

    @property
    def column(self) -> int:
        return self.detail.column

    @property
    def excerpt(self) -> str:
        return self.detail.excerpt


class RowProblem(InvalidRequest):
    """An error in the rows of a batch. `row` counts from 0, and is -1 for the batch as a whole;
    `field` is the column.
    """

    @property
    def row(self) -> int:
        return self.detail.row

    @property
    def field(self) -> str:
        return self.detail.field


class Unauthenticated(PsoupError):
    """The credential is missing, unknown, expired or revoked. `hint` says what the store accepts.

    `renewed` is True if the client's token or certificate has changed since: then the call is
    repeated.
    """

    code = "UNAUTHENTICATED"
    renewed = False


class PermissionDenied(PsoupError):
    """The store knows the caller, who may not do this."""

    code = "PERMISSION_DENIED"


class NotFound(PsoupError):
    """There is no such stream, view, registration or key, or the caller may not see it."""

    code = "NOT_FOUND"


class Conflict(PsoupError):
    """The name, client key or sequence is in use for something else."""

    code = "ALREADY_EXISTS"


class PreconditionFailed(PsoupError):
    """The request is right in itself, but not in the present state of the store."""

    code = "FAILED_PRECONDITION"


class RowConflict(PreconditionFailed):
    """An edit expects another row of its key than the current one. Nothing of its batch was
    accepted.

    `row` is its place in the batch, counted from 0. `current` is the row that is there instead;
    None if there is none, if the caller may not see it, or if it is large. `row_id` is its id, -1
    if there is none, None if the caller may not see it.
    """

    @property
    def row(self) -> int:
        return self.detail.row

    @property
    def current(self) -> dict[str, Any] | None:
        return self.detail.current

    @property
    def row_id(self) -> int | None:
        return int(self.detail.got) if self.detail.got else None


class LimitExceeded(PsoupError):
    """The request is larger than the server, or this client, accepts."""

    code = "RESOURCE_EXHAUSTED"


class QuotaExceeded(LimitExceeded):
    """A quota of the tenant or owner is used up.

    `detail.field` names the limit, `detail.expected` is its number. `detail.retry_after` is set if
    waiting helps.
    """


class ServerError(PsoupError):
    """The server failed, or broke the protocol."""

    code = "INTERNAL"


class CopyError(PsoupError):
    """The base of errors of a file of copies, or of a copy in it."""

    code = "FAILED_PRECONDITION"


class UnknownCopy(CopyError, KeyError):
    """No copy of that name is kept. It is a KeyError too."""

    code = "NOT_FOUND"

    def __str__(self) -> str:
        """Return the message as it is; a KeyError would quote it."""
        return self.message


class NotSynced(CopyError):
    """The copy is kept, but its answer is not in the file: no sync has received it yet, or it was
    evicted at the instant `evicted_at`.
    """

    evicted_at: datetime | None = None


class Unsent(CopyError):
    """The file has rows that the store has not taken, and they would be lost. Nothing was removed.

    `rows` counts those that wait or were put aside.
    """

    rows: int = 0


class NotComputable(CopyError):
    """The answer of this query can't be computed from its base rows. `hint` says what to keep
    instead.
    """

    code = "INVALID_ARGUMENT"


class LocalQueryProblem(CopyError):
    """The SQL of a `query` over copies is wrong, or would write."""

    code = "INVALID_ARGUMENT"


class OtherStore(CopyError):
    """The file belongs to another store than the one that answers. Nothing was sent.

    `Copies.move` sends the batches that wait in the file to the other store.
    """


class FileBusy(CopyError):
    """Another process or thread has used the file for too long."""

    code = "ABORTED"


class FileFull(CopyError):
    """The disk is full. The copies are as they were."""

    code = "RESOURCE_EXHAUSTED"


class FileDamaged(CopyError):
    """The file can't be read. `Copies.recover` makes a new one of what can be read."""

    code = "DATA_LOSS"


class WrongFile(CopyError):
    """A file of another program, of a newer version, or of a development version."""


class WrongKey(CopyError):
    """The file is encrypted with another key, or is not encrypted. It is not damaged."""

    code = "PERMISSION_DENIED"


class PullError(PsoupError):
    """The base of errors of a pull that are not the store's."""


class BadPull(PullError, ValueError):
    """The description of a pull is wrong. It is a ValueError too. The pull was not tried."""


class Incomplete(PullError):
    """The transfer was cut. Nothing was written; the next pull continues with the rows received so
    far.
    """


class OutputBusy(PullError):
    """Another process is pulling into the same output. The pull was not tried."""


class OutputFailed(PullError):
    """The output could not be written. Its readers still see what was there before."""


class HookFailed(PullError):
    """The command to run on a change failed or took too long. The output was written."""
