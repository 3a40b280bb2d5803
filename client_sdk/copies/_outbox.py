"""Publishing while offline: what is published waits in the file until it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from client_sdk._async_client import AsyncClient
from client_sdk._client import Client
from client_sdk._exceptions import ConnectionFailed, CopyError, PsoupError, Timeout
from client_sdk._grpc.effects import Flow
from client_sdk._session import Session
from client_sdk._wire.models import Stream
from client_sdk._wire.rows import Rows, deletes
from client_sdk._wire.status import StoreLimits
from client_sdk.copies import _batches, _sending
from client_sdk.copies._batches import Room
from client_sdk.copies._file import CopyFile
from client_sdk.copies._home import home_of, visit
from client_sdk.copies._put_aside import PutAside
from client_sdk.copies._queue import QUEUE_BYTES, Queue
from client_sdk.copies._queued import Doubtful, Queued, Rejected, Sent
from client_sdk.copies._streams import remembered


class Outbox:
    """The half of Copies that publishes. No method needs a connection but those that take one."""

    def __init__(self, file: CopyFile, queue_bytes: int = QUEUE_BYTES) -> None:
        self._file = file
        self._queue = Queue(file, queue_bytes)
        self._put_aside = PutAside(file)

    def publish(self, stream: str, rows: Rows) -> int | None:
        """Queues one batch, on the disk when this returns. Its number; None where it has no rows.

        Rows are as for `Client.publish`. Where the stream is known from the last contact they are
        checked at once, else when they are sent. A row of a stream with arrival time gets its ts
        when the store takes it. Until then, and until the next sync, no copy has the rows.
        """
        with self._file.reading() as connection:
            known, home = remembered(connection, stream), home_of(connection)
        if not hasattr(rows, "columns"):
            rows = rows if isinstance(rows, Mapping | str | bytes) else list(rows)
        if known is None:
            return self._queue.put(stream, _batches.unchecked(rows))
        limits = StoreLimits() if home is None else home.limits
        room = Room.of(limits, limits.message_bytes)
        pieces = _batches.checked(rows, known, room)
        _batches.require_room(pieces, room)
        return self._queue.put(stream, pieces)

    def delete(self, stream: str, keys: Iterable[Mapping[str, Any]]) -> int | None:
        """Queues a batch that deletes keys of a keyed stream, given as for `Client.delete`."""
        return self.publish(stream, deletes(keys))

    def heartbeat(self, stream: str, instant: datetime) -> int | None:
        """Queues a heartbeat: NOW of an event-time stream moves to `instant`, if that is later."""
        return self._queue.put(stream, [_batches.heartbeat(instant)])

    @property
    def queued(self) -> Queued:
        """What waits."""
        return self._queue.state()

    @property
    def rejected(self) -> list[Rejected]:
        """What the store refused for good. It stays here until it is requeued or discarded."""
        return self._put_aside.rejected()

    @property
    def doubtful(self) -> list[Doubtful]:
        """What may be in the store, and may not. It stays here until it is resent or discarded."""
        return self._put_aside.doubtful()

    def requeue(self, batch: int | None = None) -> int:
        """Puts a refused batch (None: all of them) at the end of the queue. How many pieces.

        Raises ValueError where that batch was not refused.
        """
        return self._put_aside.requeue(batch)

    def resend(self, batch: int | None = None) -> int:
        """Puts a doubtful batch (None: all of them) at the end of the queue. How many pieces.

        It is sent as a batch that was never sent before: if it is in the store, it will be twice.
        Raises ValueError where that batch is not doubtful.
        """
        return self._put_aside.resend(batch)

    def discard(self, batch: int | None = None) -> int:
        """Deletes a refused or a doubtful batch (None: all refused ones). How many pieces.

        Raises ValueError where that batch is neither.
        """
        return self._put_aside.discard(batch)

    def send(self, client: Client) -> Sent:
        """Sends what waits, in order, each batch exactly once.

        Batches that are refused for good are put aside and named in the result. Any other error
        is raised; what has been sent is out of the queue, the rest waits on.
        """
        return client._run(self._sending(client._session))

    async def send_async(self, client: AsyncClient) -> Sent:
        return await client._run(self._sending(client._session))

    def learn(self, client: Client, stream: str) -> Stream:
        """Keeps what a stream is like, so that rows are checked as they are queued."""
        return client._run(_sending.learn(client._session, self._file, stream))

    async def learn_async(self, client: AsyncClient, stream: str) -> Stream:
        return await client._run(_sending.learn(client._session, self._file, stream))

    @property
    def store_id(self) -> str | None:
        """The store the file belongs to; None before the first contact."""
        with self._file.reading() as connection:
            home = home_of(connection)
        return None if home is None else home.store_id

    def move(self, client: Client) -> str:
        """Makes the file belong to the store of `client`, whose id is returned.

        What waits is sent there from now on, under a new name, also what the store before may have
        taken without saying so. The copies are replaced by the next sync.
        """
        return client._run(visit(client._session, self._file, move=True)).store_id

    async def move_async(self, client: AsyncClient) -> str:
        home = await client._run(visit(client._session, self._file, move=True))
        return home.store_id

    def known_stream(self, stream: str) -> Stream | None:
        """As it was at the last contact; None where there was none."""
        with self._file.reading() as connection:
            return remembered(connection, stream)

    def _sending(self, session: Session) -> Flow[Sent]:
        return _sending.Sending(session, self._file, self._queue).all()

    def _sent(self, session: Session) -> Flow[Sent]:
        """The same in a sync, which goes on where the store is there but does not take a batch."""
        run = _sending.Sending(session, self._file, self._queue)
        try:
            return (yield from run.all())
        except (ConnectionFailed, Timeout, CopyError):
            raise
        except PsoupError as error:
            return replace(run.sent, error=error)
