"""The parts of a source that are read at the same time, each under a publisher of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from client_sdk import AsyncClient, Client, PublisherRecord, Stream
from psoup.source.feeding.feed import OpenReader
from psoup.source.feeding.piece import Mark, Piece, decode_mark
from psoup.source.lag import Lag
from psoup.source.readers import FileChunk
from psoup.source.settings import SourceSettings

# Why a record that has a schema elsewhere can't be read again.
NO_FIELDS = "has a field without a text, and can't be replayed"
# What the store knows of the publishers of a source, by name.
Records = Mapping[str, PublisherRecord]


def stored_mark(record: PublisherRecord) -> Mark:
    """Return the mark of a publisher, empty if a source has not written it."""
    try:
        return decode_mark(record.mark)
    except ValueError:
        return {}


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of a source. `publisher` is its name in the store.

    `begin` returns the mark of a place, which is `earliest`, `latest`, or what a person wrote; it
    raises BadSettings, which says what a mark of this source looks like. `finished` is called when
    all of it is in the store.
    """

    publisher: str
    open_reader: OpenReader
    begin: Callable[[str], Mark]
    lease: timedelta | None = None
    finished: Callable[[], None] = lambda: None


@dataclass
class Context:
    """What a connector works with: its settings, its stream, a client, and lines for people."""

    settings: SourceSettings
    stream: Stream
    client: AsyncClient
    notice: Callable[[str], None] = field(default=lambda line: None)

    def seeing_client(self) -> Client:
        """Return a client that sees what the source has published, whichever server answers."""
        store = self.settings.store
        client = Client(
            store.target, tenant=store.tenant, owner=store.owner, credentials=store.credentials
        )
        client.position = self.client.position
        return client


class Connector(Protocol):
    """A kind of source. Its methods are called in threads, one at a time."""

    # How often to look for new partitions; 0 if there are never any.
    look_seconds: float
    # How many partitions are read at the same time.
    parallel: int
    # Whether a partition without a mark may be read although the stream has rows.
    fresh_partitions: bool

    @property
    def left_out(self) -> Mapping[str, int]:
        """Fields that no column takes, with how many records had them."""

    def partitions(self, records: Records) -> list[Partition]:
        """Return the partitions that are to be read now. Raises SourceAway or SourceError."""

    def check(self) -> list[str]:
        """Return lines about the source, for people. Raises as `partitions`."""

    def sample(self, records: Records) -> Piece | None:
        """Return the first records that there are, without changing anything anywhere."""

    def lag(self, records: Records) -> dict[str, Lag]:
        """Return how far each publisher is behind."""

    def setup(self) -> str:
        """Return the statements that the other side needs."""

    def replayed(self, raw: str, metadata: Mapping[str, Any]) -> FileChunk:
        """Return the rows of a record that was put aside, as the first read would have made them.
        Raises ValueError."""
