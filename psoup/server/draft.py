"""A log commit in the making: events get their places and ids, and later ones see earlier ones."""

from __future__ import annotations

from dataclasses import dataclass

from psoup.server.recent import Recent
from psoup.store import Data, Entry, Event, Jump, Position, Publisher, State
from psoup.store.position import MAX_EVENTS_PER_COMMIT


class Chain:
    """The batches of one call: after the first that is refused none is taken."""

    def __init__(self) -> None:
        self.broken = False


@dataclass(frozen=True, slots=True)
class Moment:
    """When a commit is made: its stamp, and whose clock says what. `jump` precedes its events."""

    stamp: int
    server: str
    clock: int
    jump: Jump | None = None


class Draft:
    """`state` is a draft of its own. Dropping this drops everything.

    `quiet` is the time since the last stamp of the log.
    """

    def __init__(self, state: State, version: int, moment: Moment, recent: Recent) -> None:
        self.state = state
        self.version = version
        self.stamp = moment.stamp
        self.quiet = moment.stamp - state.clock
        self.entries: list[Entry] = []
        self.broken: set[Chain] = set()
        self._moment = moment
        self._recent = recent
        if moment.jump is not None:
            self.append("", "", moment.jump)

    @property
    def empty(self) -> bool:
        """A jump by itself is nothing to say."""
        return len(self.entries) == (0 if self._moment.jump is None else 1)

    @property
    def vouched(self) -> int:
        """The stamp of this commit without the jumps that nobody has confirmed."""
        return self.stamp - self.state.jumps.unconfirmed

    @property
    def room(self) -> int:
        """How many more events the commit can hold."""
        return MAX_EVENTS_PER_COMMIT - len(self.entries)

    def append(self, tenant: str, owner: str, event: Event) -> Position:
        position = Position(self.version, len(self.entries))
        moment = self._moment
        entry = Entry(position, self.stamp, tenant, owner, event, moment.server, moment.clock)
        self.state.apply(entry)
        self.entries.append(entry)
        return position

    def batch(self, tenant: str, publisher: str, sequence: int) -> Publisher | None:
        """An earlier batch, where it is still known what it held."""
        last = self.state.publishers.get((tenant, publisher))
        if last is not None and last.sequence == sequence:
            return last
        return self._drafted(tenant, publisher, sequence) or self._recent.probe(
            tenant, publisher, sequence
        )

    def _drafted(self, tenant: str, publisher: str, sequence: int) -> Publisher | None:
        for entry in self.entries:
            event = entry.event
            if isinstance(event, Data) and (entry.tenant, event.publisher, event.sequence) == (
                tenant,
                publisher,
                sequence,
            ):
                return Publisher(
                    sequence, event.digest, event.first_row_id, event.rows, entry.position
                )
        return None
