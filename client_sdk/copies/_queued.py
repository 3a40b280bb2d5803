"""What waits in a file to be sent, what was sent, and what was put aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from client_sdk._exceptions import PsoupError
from client_sdk._wire.values import from_micros
from client_sdk.copies._batches import Piece, rows_of
from client_sdk.copies._sealed import unseal


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
    """What waits, by stream. A batch that was cut counts as several.

    `rejected` and `doubtful` were put aside, and wait for a decision.
    """

    streams: dict[str, QueuedStream]
    rejected: int
    doubtful: int = 0

    @property
    def batches(self) -> int:
        return sum(one.batches for one in self.streams.values())

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.streams.values())

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.streams.values())

    def rows_for(self, stream: str | None) -> int:
        """How many rows wait for one stream; for all, where that is not known."""
        if stream is None:
            return self.rows
        name = stream.lower()
        return sum(one.rows for each, one in self.streams.items() if each.lower() == name)

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self.streams)


@dataclass(frozen=True, slots=True)
class _Aside:
    batch: int
    number: int
    stream: str
    row_count: int
    since: int
    reason: str
    message: str
    _piece: Piece = field(repr=False)

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Self:
        """A row of the queue, whose last two columns say why."""
        batch, number, stream, kind, payload, count, _, queued_at, _, *sealed = row
        found = [unseal(one) for one in sealed if one is not None]
        why = (found and found[0]) or {"reason": "", "message": "the reason can't be read any more"}
        piece = Piece(kind, payload, count)
        said = why["reason"], why["message"]
        return cls(batch, number, stream, count, queued_at, *said, piece)

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
class Rejected(_Aside):
    """A batch, or a piece of one, that was refused for good: sending it again won't help.

    `reason` is as in PsoupError. Mend `content` and publish it anew, then discard this; or requeue
    it where the store was mended, say by creating the stream.
    """


@dataclass(frozen=True, slots=True)
class Doubtful(_Aside):
    """A batch, or a piece of one, that may be in the store already, and may not.

    The store has taken its sequence, and no longer knows with which rows: this file was copied, or
    came from a back-up. Look whether `content` is there; resend it if not, else discard it.
    """


@dataclass(frozen=True, slots=True)
class Sent:
    """What a send did.

    `duplicates` of the batches had been there already, from an earlier send whose acknowledgement
    was lost. `rejected` and `doubtful` were put aside. In a sync `error` is what keeps the rest
    waiting, if anything does.
    """

    batches: int = 0
    rows: int = 0
    duplicates: int = 0
    rejected: tuple[Rejected, ...] = ()
    doubtful: tuple[Doubtful, ...] = ()
    error: PsoupError | None = None
