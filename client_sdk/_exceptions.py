"""The errors between a client and a store.

    PsoupError
    ├── ConnectionFailed       no server answered at the target
    │   └── ForeignAnswer      something did that is no PSoup store: a proxy, a captive portal
    ├── Timeout                the deadline passed first
    ├── InvalidRequest         the request itself is wrong; sending it again won't help
    │   ├── QueryProblem       … somewhere in its SQL: `line`, `column`, `excerpt`
    │   └── RowProblem         … somewhere in its rows: `row`, `field`
    ├── Unauthenticated        the store asks who calls; no token, or one that is worth nothing
    ├── PermissionDenied       the store knows who calls, and that is not for this caller
    ├── NotFound               no such stream or registration
    ├── Conflict               the name, key or sequence is taken by something else
    ├── PreconditionFailed     right in itself, but not in the state the store is in
    ├── PermissionDenied       the caller may not do that
    ├── LimitExceeded          larger than the server, or this client, accepts
    │   └── QuotaExceeded      … or more than the tenant or owner may have or do
    ├── ServerError            the server failed, or broke the protocol
    ├── CopyError              a file of offline copies, or a copy in it; nothing was sent
    │   ├── UnknownCopy        no copy of that name is kept; a KeyError too
    │   ├── NotSynced          the copy is kept, but has not come yet
    │   ├── NotComputable      its answer can't be told from base rows
    │   ├── LocalQueryProblem  the SQL of `query` is wrong, or would write
    │   ├── OtherStore         the file belongs to another store than the one that answers
    │   ├── FileBusy           another process or thread holds the file for too long
    │   ├── FileFull           the disk is full; the copies are as they were
    │   ├── FileDamaged        the file can't be read; `Copies.recover` saves what can be
    │   └── WrongFile          another program's file, or a newer version's
    └── PullError              a pull, not the store it asks
        ├── BadPull            its description is wrong; a ValueError too
        ├── Incomplete         the transfer was cut; the next pull goes on from there
        ├── OutputBusy         another process is pulling into the same output
        ├── OutputFailed       the output could not be written; what was there still is
        └── HookFailed         the command to run on a change failed or took too long

Misuse of the SDK itself (a handle of 5 bytes, a sequence without a publisher) is ValueError or
TypeError, raised before anything is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """A detail is what the server said for programs; a field that does not apply is empty, 0, -1
    (`row`) or None.

    `store_id` is the store that said it; empty where no store did. `retry_after` is how long the
    store wants to be left alone.
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


class PsoupError(Exception):
    """An error has a message for people, a `detail` for programs, and the gRPC status as `code`."""

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
        """A stable name such as UNKNOWN_STREAM; empty where the server gave none."""
        return self.detail.reason

    @property
    def hint(self) -> str:
        """A sentence that says what to do; may be empty."""
        return self.detail.hint


class ConnectionFailed(PsoupError):
    code = "UNAVAILABLE"


class ForeignAnswer(ConnectionFailed):
    """The store that the request was meant for has not seen it, or has not said so.

    `code` is what something else answered. Ask again later, or at another address.
    """


class Timeout(PsoupError):
    code = "DEADLINE_EXCEEDED"


class InvalidRequest(PsoupError):
    code = "INVALID_ARGUMENT"


class QueryProblem(InvalidRequest):
    """`line` and `column` count from 1; `excerpt` is the line with the place underlined."""

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
    """`row` counts from 0 in the batch given (-1: the batch as a whole); `field` is its column."""

    @property
    def row(self) -> int:
        return self.detail.row

    @property
    def field(self) -> str:
        return self.detail.field


class Unauthenticated(PsoupError):
    """The credential is none, unknown, expired or revoked; `hint` says what would do.

    `renewed` tells whether the client's token or certificate has changed since: then the call is
    made again.
    """

    code = "UNAUTHENTICATED"
    renewed = False


class PermissionDenied(PsoupError):
    code = "PERMISSION_DENIED"


class NotFound(PsoupError):
    code = "NOT_FOUND"


class Conflict(PsoupError):
    code = "ALREADY_EXISTS"


class PreconditionFailed(PsoupError):
    code = "FAILED_PRECONDITION"


class LimitExceeded(PsoupError):
    code = "RESOURCE_EXHAUSTED"


class QuotaExceeded(LimitExceeded):
    """`detail.field` names the limit, `detail.expected` its number; `detail.retry_after` is there
    where waiting helps."""


class ServerError(PsoupError):
    code = "INTERNAL"


class CopyError(PsoupError):
    code = "FAILED_PRECONDITION"


class UnknownCopy(CopyError, KeyError):
    """The message is given plainly, where a KeyError would quote it."""

    code = "NOT_FOUND"

    def __str__(self) -> str:
        return self.message


class NotSynced(CopyError):
    pass


class NotComputable(CopyError):
    """The answer of this query can't be told from its base rows; `hint` says what to keep."""

    code = "INVALID_ARGUMENT"


class LocalQueryProblem(CopyError):
    code = "INVALID_ARGUMENT"


class OtherStore(CopyError):
    """Nothing was sent. `Copies.move` lets what waits in the file go to the other store."""


class FileBusy(CopyError):
    code = "ABORTED"


class FileFull(CopyError):
    code = "RESOURCE_EXHAUSTED"


class FileDamaged(CopyError):
    code = "DATA_LOSS"


class WrongFile(CopyError):
    pass


class PullError(PsoupError):
    """The pull failed, and not the store."""


class BadPull(PullError, ValueError):
    """The pull was not tried."""


class Incomplete(PullError):
    """Nothing was written; the rows that came are kept."""


class OutputBusy(PullError):
    """The pull was not tried."""


class OutputFailed(PullError):
    """A reader of the output still sees what was there before."""


class HookFailed(PullError):
    """The output was written."""
