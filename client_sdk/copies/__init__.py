"""Copies of answers that a client keeps while it is offline.

A program uses `Copies` (`_copies`) and each `Copy` of them. Six packages are behind these: `_file`
is the SQLite file with everything in it, `_sync` brings copies up to date and verifies them,
`_changes` keeps changes until they are read, `_query` reads copies at an instant and by SQL,
`_queue` sends what was published offline, and `_overlay` shows it in copies before it has come
back.
"""

from __future__ import annotations

from client_sdk.copies._changes.batch import AnswerChange, ChangeBatch
from client_sdk.copies._copies import Copies
from client_sdk.copies._file.catalog import Recovered
from client_sdk.copies._file.records import CopyState
from client_sdk.copies._leaving import Cleared, LoggedOut
from client_sdk.copies._query.reading import Copy
from client_sdk.copies._queue.batches import Doubtful, Queued, Rejected, Sent
from client_sdk.copies._queue.conflicts import EditConflict
from client_sdk.copies._sync.items import Change
from client_sdk.copies._sync.result import Synced
from client_sdk.copies._sync.verify import Verified

__all__ = [
    "AnswerChange",
    "Change",
    "ChangeBatch",
    "Cleared",
    "Copies",
    "Copy",
    "CopyState",
    "Doubtful",
    "EditConflict",
    "LoggedOut",
    "Queued",
    "Recovered",
    "Rejected",
    "Sent",
    "Synced",
    "Verified",
]
