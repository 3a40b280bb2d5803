"""A log commit in the making: events get their positions and ids, and later events see earlier
ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from datastem.keyed_rows import SortedRuns
from psoup.store import AcceptedBatch, Data, Entry, Event, Jump, Position, State
from psoup.store.log.position import MAX_EVENTS_PER_COMMIT
from psoup.store.state.streams import PublisherKey
from psoup.write.conditions import NO_NEW_ROWS, NewRows

T_co = TypeVar("T_co", covariant=True)

# The tenant and the owner that a caller authenticated as.
Actor: TypeAlias = tuple[str, str]

# About how many bytes an event takes in the log beside the rows it brings.
HEADER_BYTES = 500
_MAX_RECENT_BATCHES = 100_000


class Stale(Exception):
    """A stream that a proposal was prepared for was dropped since, or its columns were altered: the
    caller prepares it again."""


def check_bound(state: State, stream_ids: Iterable[int], altered_at: int) -> None:
    """Raise Stale if one of some streams was dropped, or has another column than at the packed
    position `altered_at`, the newest change of their columns that a text was bound to."""
    for stream_id in stream_ids:
        stream = state.streams[stream_id]
        if stream.dropped or stream.schema.altered_at > altered_at:
            raise Stale


class Chain:
    """The batches of one call: after the first refused batch, all later ones are refused. They wait
    in one `line`, in order."""

    def __init__(self) -> None:
        self.broken = False
        self.line: str | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a commit: its stamp, and the server and its clock, if a clock vouches for it.
    `jump`, if any, precedes the commit's events."""

    stamp: int
    server: str
    clock: int | None
    jump: Jump | None = None


class RecentBatches:
    """The digests of recent batches, so that a repeated batch can be compared with the first.

    The state keeps the last batch of each publisher for ever. That earlier ones were accepted
    follows from their sequence. Their digests are only cached here: for batches that this process
    has read, the newest `capacity` of them.
    """

    def __init__(self, capacity: int = _MAX_RECENT_BATCHES) -> None:
        self._capacity = capacity
        self._batches: OrderedDict[tuple[PublisherKey, int], AcceptedBatch] = OrderedDict()

    def insert(self, entry: Entry) -> None:
        event = entry.event
        if not isinstance(event, Data) or not event.publisher:
            return
        publisher = entry.tenant, entry.owner, event.publisher
        self._batches[publisher, event.sequence] = AcceptedBatch.of(event, entry)
        while len(self._batches) > self._capacity:
            self._batches.popitem(last=False)

    def probe(self, publisher: PublisherKey, sequence: int) -> AcceptedBatch | None:
        return self._batches.get((publisher, sequence))


class CommitDraft:
    """A commit that is not written yet. Dropping the draft drops everything in it.

    `state` must be a draft for this commit alone: its events are applied to it. `quiet` is the time
    between the last stamp of the log and this commit's. `actor` is the caller who requests the
    events that are appended next; None if it did not authenticate. `new_rows` are those that
    conditions of edits are checked with.
    """

    def __init__(
        self,
        state: State,
        version: int,
        moment: Moment,
        recent: RecentBatches,
        new_rows: NewRows = NO_NEW_ROWS,
    ) -> None:
        self.state = state
        self.version = version
        self.stamp = moment.stamp
        self.quiet = moment.stamp - state.clock
        self.entries: list[Entry] = []
        self.broken: set[Chain] = set()
        self.actor: Actor | None = None
        self._moment = moment
        self._recent = recent
        self._new_rows = new_rows
        # By stream: how many entries were looked at, and the rows of its stream in them and before.
        self._newest: dict[int, tuple[int, SortedRuns]] = {}
        if moment.jump is not None:
            self.append("", "", moment.jump)

    @property
    def empty(self) -> bool:
        """True while there is nothing to commit; a jump alone is not worth a commit."""
        return len(self.entries) == (0 if self._moment.jump is None else 1)

    @property
    def vouched(self) -> int:
        """The stamp of this commit without the unconfirmed jumps."""
        return self.stamp - self.state.jumps.unconfirmed

    @property
    def room(self) -> int:
        """The number of events that the commit can still hold, beside its writer mark."""
        return MAX_EVENTS_PER_COMMIT - 1 - len(self.entries)

    def append(self, tenant: str, owner: str, event: Event) -> Position:
        """Append an event and apply it to the draft's state; return its position."""
        position = Position(self.version, len(self.entries))
        moment = self._moment
        who = _actor(self.actor, tenant, owner)
        entry = Entry(position, self.stamp, tenant, owner, event, moment.server, moment.clock, who)
        self.state.apply(entry)
        self.entries.append(entry)
        return position

    def batch(self, publisher: PublisherKey, sequence: int) -> AcceptedBatch | None:
        """Return an earlier batch; None if its contents are no longer known."""
        # The state has only the last batch of a publisher. Earlier ones may be in the cache.
        last = self.state.publishers.get(publisher)
        if last is not None and last.sequence == sequence:
            return last
        return self._drafted(publisher, sequence) or self._recent.probe(publisher, sequence)

    def newest_rows(self, stream_id: int) -> SortedRuns:
        """Return the rows of a keyed stream that were accepted since the conditions of the commit's
        edits were prepared, and those of this draft. Raise what reading them has raised."""
        seen, runs = self._newest.get(stream_id) or (0, self._new_rows.accepted_rows(stream_id))
        for entry in self.entries[seen:]:
            event = entry.event
            if isinstance(event, Data) and event.stream_id == stream_id and event.rows:
                rows = self._new_rows.proposed[event.digest]
                runs = runs.append(rows.at(event.first_row_id, self.stamp))
        self._newest[stream_id] = len(self.entries), runs
        return runs

    def _drafted(self, publisher: PublisherKey, sequence: int) -> AcceptedBatch | None:
        # Newest first: a publisher that was forgotten in this commit may use a sequence twice.
        for entry in reversed(self.entries):
            event = entry.event
            if (
                isinstance(event, Data)
                and (entry.tenant, entry.owner, event.publisher) == publisher
                and event.sequence == sequence
            ):
                return AcceptedBatch.of(event, entry)
        return None


def _actor(actor: Actor | None, tenant: str, owner: str) -> str:
    """Return the caller as an entry names it: empty if it is the owner itself."""
    if actor is None or actor == (tenant, owner):
        return ""
    return actor[1] if actor[0] == tenant else "/".join(actor)


class Proposal(Protocol[T_co]):
    """Something to append. `propose` may be called several times, each time with a newer state.

    `nbytes` estimates the bytes it adds to the commit. A proposal of a `chain` is refused if an
    earlier one of that chain was.
    """

    @property
    def nbytes(self) -> int: ...

    @property
    def chain(self) -> Chain | None: ...

    def propose(self, draft: CommitDraft) -> T_co:
        """Append the events and return what to answer once they are durable.

        Raise before the first event if the proposal must be refused.
        """
