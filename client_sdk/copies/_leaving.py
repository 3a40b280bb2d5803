"""What leaves a device: rows of copies, the queue, and at log-out all that the file has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from client_sdk import _flows
from client_sdk._async_client import AsyncClient
from client_sdk._client import Client
from client_sdk._exceptions import ConnectionFailed, NotFound, PsoupError, Timeout, Unsent
from client_sdk._grpc.effects import Flow
from client_sdk._session import Session
from client_sdk.copies._file import catalog, sqlite
from client_sdk.copies._file.catalog import CLEARED, Record
from client_sdk.copies._overlay import confirmed, own_rows
from client_sdk.copies._queue.batches import ARROW, Sent
from client_sdk.copies._queue.outbox import Outbox

_UNSENT = "acknowledged_at IS NULL"


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was removed from a file: the rows of `copies`, and `discarded_rows` of the queue.

    It was not `scrubbed` if another process was reading the file: then the space of removed rows
    is overwritten in time, and not at once.
    """

    copies: tuple[str, ...]
    discarded_rows: int
    scrubbed: bool


@dataclass(frozen=True, slots=True)
class LoggedOut:
    """The result of a log-out. `sent` is what was sent before.

    The registrations of the copies `unregistered` have ended. Those of `remaining` could not be
    reached, and end with their lease.
    """

    cleared: Cleared
    sent: Sent
    unregistered: tuple[str, ...]
    remaining: tuple[str, ...]


class Leaving(Outbox):
    """The part of Copies that removes what a file has."""

    def clear(
        self,
        only: Sequence[str] | None = None,
        *,
        keep_queue: bool = True,
        forget: bool = False,
        discard_queue: bool = False,
    ) -> Cleared:
        """Remove the rows of all copies, or of those that `only` names, and rewrite the file.

        Declarations stay, and the next sync receives the answers again; with `forget` they go too.
        The queue stays, with what was put aside. Without `keep_queue` it is emptied, which raises
        Unsent if the store has not taken all of it, unless `discard_queue` is True. Raises
        UnknownCopy; nothing is removed if anything is raised.
        """
        if isinstance(only, str):
            raise TypeError("only is a list of names, not one name")
        if only is not None and (discard_queue or not keep_queue):
            raise ValueError("the queue belongs to all copies: leave `only` out to empty it")
        discarded = 0
        with self._file.writing(durable=True) as connection:
            if discard_queue or not keep_queue:
                discarded = _empty_queue(connection, self._file.name, discard=discard_queue)
            records = _chosen(connection, only)
            for record in records:
                _remove(connection, record, forget=forget)
            _drop_acknowledged(connection, everything=only is None)
        names = tuple(record.name for record in records)
        return Cleared(names, discarded, self._file.scrub())

    def log_out(self, client: Client | None = None, *, discard_queue: bool = False) -> LoggedOut:
        """Send what waits, end the registrations of the copies, and remove all that the file has.

        Without a `client`, or if its store can't be reached, nothing is sent and registrations end
        with their lease. Raises Unsent if something waits or was put aside then, and nothing is
        removed, unless `discard_queue` is True. Registrations that were kept by their handle stay.
        The file is as new afterwards, and may be used by another caller or store.

        If it is interrupted, either every copy is there and goes on, or none is: then registrations
        may be left, which end with their lease. Log out again to rewrite the file.
        """
        if client is None:
            cleared, handles = self._leave(discard_queue)
            return LoggedOut(cleared, Sent(), (), _names(handles))
        return client._run(self._logging_out(client._session, discard_queue))

    async def log_out_async(
        self, client: AsyncClient | None = None, *, discard_queue: bool = False
    ) -> LoggedOut:
        """Log out with an AsyncClient, as `log_out` does."""
        if client is None:
            return self.log_out(discard_queue=discard_queue)
        return await client._run(self._logging_out(client._session, discard_queue))

    def _logging_out(self, session: Session, discard_queue: bool) -> Flow[LoggedOut]:
        sent, reached = Sent(), True
        try:
            sent = yield from self._sending(session, None)
        except (ConnectionFailed, Timeout):
            reached = False
        except PsoupError:
            # The store does not take what waits, for whatever reason: the check below decides.
            pass
        # Registrations end last: whatever is refused or killed before leaves every copy as it was.
        cleared, handles = self._leave(discard_queue)
        unregistered: list[tuple[str, bytes]] = []
        remaining: list[tuple[str, bytes]] = []
        for name, handle in handles:
            reached = reached and (yield from _unregistered(session, handle))
            (unregistered if reached else remaining).append((name, handle))
        return LoggedOut(cleared, sent, _names(unregistered), _names(remaining))

    def _leave(self, discard_queue: bool) -> tuple[Cleared, list[tuple[str, bytes]]]:
        """Remove all that the file has, in one transaction. Return name and handle of the copies
        whose queries were registered for them. Raises Unsent."""
        with self._file.writing(durable=True) as connection:
            discarded = _empty_queue(connection, self._file.name, discard=discard_queue)
            records = catalog.records(connection)
            for record in records:
                _remove(connection, record, forget=True)
            for table in ("_psoup_queue", "_psoup_streams", "_psoup_store", "_psoup_publisher"):
                connection.execute(f"DELETE FROM {table}")
        declarations = [record.declaration for record in records]
        handles = [(copy.name, copy.handle) for copy in declarations if copy.sql and copy.handle]
        names = tuple(record.name for record in records)
        return Cleared(names, discarded, self._file.scrub()), handles


def _names(copies: Sequence[tuple[str, bytes]]) -> tuple[str, ...]:
    return tuple(name for name, _ in copies)


def _unregistered(session: Session, handle: bytes) -> Flow[bool]:
    """End a registration; return False if the store could not be reached."""
    try:
        yield from _flows.unregister(session, handle)
    except NotFound:
        return True
    except PsoupError:
        return False
    return True


def _chosen(connection: sqlite.Connection, only: Sequence[str] | None) -> list[Record]:
    if only is None:
        return catalog.records(connection)
    return [catalog.find(connection, name) for name in dict.fromkeys(only)]


def _remove(connection: sqlite.Connection, record: Record, *, forget: bool) -> None:
    if forget:
        catalog.delete(connection, [record.copy_id])
    else:
        catalog.empty(connection, record, CLEARED)


def _check_unsent(connection: sqlite.Connection, name: str, *, discard: bool) -> int:
    """Return how many rows the store has not taken. Raises Unsent unless they are discarded."""
    (rows, batches) = connection.execute(
        "SELECT coalesce(sum(row_count), 0), count(DISTINCT batch) FROM _psoup_queue "
        f"WHERE {_UNSENT} AND (row_count > 0 OR kind <> ?)",
        # Without rows: all keys of the batch were erased.
        (ARROW,),
    ).fetchone()
    if batches and not discard:
        error = Unsent(
            f"{name} has {rows:,} rows in {batches:,} batches that the store has not taken: send "
            "them, or remove them with discard_queue=True"
        )
        error.rows = rows
        raise error
    return int(rows)


def _empty_queue(connection: sqlite.Connection, name: str, *, discard: bool) -> int:
    """Delete what the store has not taken, and return how many rows that were. Raises Unsent."""
    rows = _check_unsent(connection, name, discard=discard)
    pieces = connection.execute(
        f"DELETE FROM _psoup_queue WHERE {_UNSENT} RETURNING first_row, row_count"
    ).fetchall()
    for first_row, count in pieces:
        own_rows.remove(connection, first_row, count)
    return rows


def _drop_acknowledged(connection: sqlite.Connection, *, everything: bool) -> None:
    """Delete rows that the store has taken, and that no copy shows any more."""
    if not everything:
        confirmed.sweep(connection)
        return
    pieces = connection.execute(
        "DELETE FROM _psoup_queue WHERE acknowledged_at IS NOT NULL RETURNING first_row, row_count"
    ).fetchall()
    for first_row, count in pieces:
        own_rows.remove(connection, first_row, count)
