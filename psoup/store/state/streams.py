"""The streams of a state, and what each publisher has sent last."""

from __future__ import annotations

from dataclasses import dataclass, field

from datastem.schema import StreamSchema
from psoup.store.log.events import Data
from psoup.store.log.position import Position
from psoup.store.state.asked import AskedInterest


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream: `high` is its next row id, `reached` the greatest ts of its rows and heartbeats.

    A dropped stream keeps its place, so that registrations over it can say what became of them.
    `asked` is the interest in its rows that servers have asked for, by predicate.
    """

    id: int
    tenant: str
    owner: str
    schema: StreamSchema
    position: Position
    high: int = 0
    reached: int | None = None
    registrations: int = 0
    dropped: bool = False
    asked: AskedInterest = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AcceptedBatch:
    """A batch of a publisher; every earlier sequence of that publisher was accepted too."""

    sequence: int
    digest: bytes
    first_row_id: int
    rows: int
    position: Position

    @classmethod
    def of(cls, event: Data, position: Position) -> AcceptedBatch:
        return cls(event.sequence, event.digest, event.first_row_id, event.rows, position)
