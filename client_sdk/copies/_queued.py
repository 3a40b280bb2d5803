"""What waits in a file to be sent, what was sent, and what the store would not have."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from client_sdk._exceptions import PsoupError
from client_sdk._time import from_micros
from client_sdk.copies._batches import Piece, rows_of


@dataclass(frozen=True, slots=True)
class QueuedStream:
    """`since` is when the oldest was queued, in microseconds."""

    batches: int
    rows: int
    bytes: int
    since: int

    @property
    def oldest(self) -> datetime:
        return from_micros(self.since)


@dataclass(frozen=True, slots=True)
class Queued:
    """What waits, by stream. A batch that was cut counts as several. `rejected` were put aside."""

    streams: dict[str, QueuedStream]
    rejected: int

    @property
    def batches(self) -> int:
        return sum(one.batches for one in self.streams.values())

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.streams.values())

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.streams.values())

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self.streams)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A batch, or a piece of one, that the store refused for good: sending it again won't help.

    `reason` is as in PsoupError. Mend `content` and publish it anew, then discard this; or requeue
    it where the store was mended, say by creating the stream.
    """

    batch: int
    number: int
    stream: str
    row_count: int
    since: int
    reason: str
    message: str
    _piece: Piece = field(repr=False)

    @property
    def queued_at(self) -> datetime:
        return from_micros(self.since)

    @property
    def content(self) -> Any:
        """What was published: an Arrow table, dicts, or the instant of a heartbeat.

        Raises ValueError where it can't be read any more.
        """
        return rows_of(self._piece)


@dataclass(frozen=True, slots=True)
class Sent:
    """What a send did.

    `duplicates` of the batches had been there already, from an earlier send whose acknowledgement
    was lost. In a sync `error` is what keeps the rest waiting, if anything does.
    """

    batches: int = 0
    rows: int = 0
    duplicates: int = 0
    rejected: tuple[Rejected, ...] = ()
    error: PsoupError | None = None
