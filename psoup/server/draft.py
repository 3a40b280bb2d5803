"""A log commit in the making: events get their places and ids, and later ones see earlier ones."""

from __future__ import annotations

from psoup.server.recent import Recent
from psoup.store import Data, Entry, Event, Position, Publisher, State
from psoup.store.position import MAX_EVENTS_PER_COMMIT


class Chain:
    """The batches of one call: after the first that is refused none is taken."""

    def __init__(self) -> None:
        self.broken = False


class Draft:
    """`state` is a draft of its own. Dropping this drops everything."""

    def __init__(self, state: State, version: int, stamp: int, recent: Recent) -> None:
        self.state = state
        self.version = version
        self.stamp = stamp
        self.entries: list[Entry] = []
        self.broken: set[Chain] = set()
        self._recent = recent

    @property
    def room(self) -> int:
        """How many more events the commit can hold."""
        return MAX_EVENTS_PER_COMMIT - len(self.entries)

    def append(self, tenant: str, owner: str, event: Event) -> Position:
        position = Position(self.version, len(self.entries))
        entry = Entry(position, self.stamp, tenant, owner, event)
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
