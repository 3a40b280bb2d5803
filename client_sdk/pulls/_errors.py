"""What can go wrong with a pull besides what can go wrong with a store.

PsoupError
└── PullError
    ├── BadPull         its description is wrong; also a ValueError
    ├── Incomplete      the transfer was cut; the next pull goes on from there
    ├── OutputBusy      another process is pulling into the same output
    ├── OutputFailed    the output could not be written; what was there still is
    └── HookFailed      the command to run on a change failed or took too long
"""

from __future__ import annotations

from client_sdk._exceptions import (
    Conflict,
    ConnectionFailed,
    FileBusy,
    FileFull,
    InvalidRequest,
    LimitExceeded,
    PsoupError,
    Timeout,
)


class PullError(PsoupError):
    """Of a pull, not of the store."""


class BadPull(PullError, ValueError):
    """Nothing was tried."""


class Incomplete(PullError):
    """Nothing was written; what came is kept."""


class OutputBusy(PullError):
    """Nothing was tried."""


class OutputFailed(PullError):
    """A reader still sees what was there before."""


class HookFailed(PullError):
    """The output was written."""


def passes(error: PsoupError) -> bool:
    """The same pull may well succeed later, with nothing mended by hand."""
    if isinstance(error, ConnectionFailed):
        return True
    busy = isinstance(error, OutputBusy | FileBusy | FileFull)
    return busy or isinstance(error, Incomplete | Timeout | LimitExceeded)


def hopeless(error: PsoupError) -> bool:
    """The pull itself is wrong: trying it again, however often, gives the same.

    Of what a server says only a store's own word counts.
    """
    said = bool(error.detail.store_id) and isinstance(error, InvalidRequest | Conflict)
    return said or isinstance(error, BadPull)
