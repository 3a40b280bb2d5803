"""Copies of answers that a client keeps while it is away.

`_copies` and `_copy` are what a program sees. `_flow` is a sync and `_watch` a watch, of `_items`,
over effects as everything in the SDK. `_apply` puts what came into the file in transactions;
`_file` is SQLite, `_shelf` and `_records` what it remembers of each copy, `_tables` the rows,
`_encoding` and `_checksum` their values. `_repair` finds what is damaged.

`_bases` are copies of base rows, whose answers `_computing` computes with the store's evaluator
(`_compute`). `_outbox` is what publishes: `_queue` keeps `_batches`, `_sending` sends them under an
`_identity` to the file's `_home`, and `_put_aside` has those that need a decision.
"""

from __future__ import annotations

from client_sdk.copies._copies import Copies
from client_sdk.copies._file.catalog import Recovered
from client_sdk.copies._file.records import CopyState
from client_sdk.copies._query.reading import Copy
from client_sdk.copies._queue.batches import Doubtful, Queued, Rejected, Sent
from client_sdk.copies._sync.flow import Synced
from client_sdk.copies._sync.items import Change

__all__ = [
    "Change",
    "Copies",
    "Copy",
    "CopyState",
    "Doubtful",
    "Queued",
    "Recovered",
    "Rejected",
    "Sent",
    "Synced",
]
