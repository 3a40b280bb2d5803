"""The streams of a state, and the last batch of each publisher."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from datastem.schema import StreamSchema
from psoup.store.log.events import Data, Entry, StreamAltered
from psoup.store.log.position import START, Position
from psoup.store.state.interest_requests import InterestRequests


@dataclass(frozen=True, slots=True)
class Leap:
    """An event of a publisher that took NOW of its stream to an instant past its own stamp."""

    owner: str
    publisher: str
    reached: int
    stamp: int


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream: `high` is its next row id, `reached` how far its events took it, which is NOW with
    event time unless that is the clock. `late_rows` came after NOW had passed their ts. `leap` is
    the last event that took NOW ahead of the clock.

    A dropped stream stays in the state, so that registrations over it can say why they fail.
    `interest_requests` is the interest in its rows that servers have requested, by predicate.
    `version` counts its schemas from 1. RETAIN was last changed at the position `retained_since`,
    or rows wait for NOW since then; START if neither.
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
    interest_requests: InterestRequests = field(default_factory=dict)
    version: int = 1
    retained_since: Position = START
    late_rows: int = 0
    leap: Leap | None = None

    def with_data(self, event: Data, entry: Entry) -> StreamState:
        """Return the stream after a batch or heartbeat, which is the event of `entry`."""
        leap, reached = self.leap, event.reached
        is_further = reached is not None and (event.before is None or reached > event.before)
        if is_further and reached is not None and reached > entry.stamp:
            leap = Leap(entry.owner, event.publisher, reached, entry.stamp)
        return replace(
            self,
            high=event.first_row_id + event.rows,
            reached=reached,
            late_rows=self.late_rows + event.late_rows,
            leap=leap,
        )

    def altered(self, event: StreamAltered, position: Position) -> StreamState:
        """Return the stream with the schema of an event at `position`."""
        before, after = self.schema, event.schema
        same = (before.retain, before.whole_from) == (after.retain, after.whole_from)
        same = same and before.rows_wait == after.rows_wait
        since = self.retained_since if same else position
        return replace(self, schema=after, version=event.version, retained_since=since)


# A tenant, an owner of it, and the name of one of the owner's publishers. Equal names of different
# owners are different publishers, so that no owner can use up or probe the sequences of another.
PublisherKey: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class AcceptedBatch:
    """A batch of a publisher, with the digest of what was sent; every earlier sequence of that
    publisher was accepted too, with `total_rows` rows in all. `lease` is the time for which the
    publisher is remembered, None for ever."""

    sequence: int
    request_digest: bytes
    first_row_id: int
    rows: int
    position: Position
    stamp: int
    total_rows: int
    mark: bytes = b""
    lease: int | None = None

    @classmethod
    def of(cls, event: Data, entry: Entry, earlier_rows: int = 0) -> AcceptedBatch:
        """Return the batch of a Data event, which is the event of `entry`. The publisher's earlier
        ones had `earlier_rows` rows: only for the last batch of a publisher do they matter."""
        batch = event.sequence, event.request_digest, event.first_row_id, event.rows
        place = entry.position, entry.stamp
        return cls(*batch, *place, earlier_rows + event.rows, event.mark or b"", event.lease)
