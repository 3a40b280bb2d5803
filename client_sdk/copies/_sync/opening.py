"""What a sync and a watch do before their call: open the copies, register queries, learn streams,
and choose the position to ask for.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from client_sdk import _flows
from client_sdk._exceptions import ConnectionFailed, NotFound, PsoupError, Timeout
from client_sdk._grpc.effects import Flow
from client_sdk._session import FOREIGN_POSITION, Session
from client_sdk._wire.values import MOST_TYPED_BYTES, duration, from_value
from client_sdk.copies._changes.reported import EVERY_POINT
from client_sdk.copies._file import catalog
from client_sdk.copies._file.clock import DeviceClock
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.home import home_of, learn, published_streams, visit
from client_sdk.copies._overlay import confirmed
from client_sdk.copies._overlay.learning import learn_edits
from client_sdk.copies._query.base_rows import learn_computation
from client_sdk.copies._sync.items import Item
from psoup.v1 import psoup_pb2 as pb

# The most items that a server takes in one call.
MOST_ITEMS = 1000
_KEY_NAME_BYTES = 100


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """The options of a sync. With `only` None it is of all copies."""

    only: Sequence[str] | None = None
    byte_budget: int | None = None
    one_position: bool = False
    away: timedelta | None = None
    send: bool = True

    def request(
        self, session: Session, items: Sequence[Item], budget: int, least: bytes
    ) -> pb.SyncRequest:
        """Return the request, whose answers include the position `least`.

        If the ids in repairs take more than a message may have, damaged copies are requested whole.
        """
        request = self._request(session, items, budget, least)
        if request.ByteSize() > MOST_TYPED_BYTES:
            for item in items:
                if item.repair.needed:
                    item.ask_whole()
            request = self._request(session, items, budget, least)
        return request

    def _request(
        self, session: Session, items: Sequence[Item], budget: int, least: bytes
    ) -> pb.SyncRequest:
        return pb.SyncRequest(
            tenant=session.tenant,
            items=[item.to_wire() for item in items],
            encoding=pb.ENCODING_ARROW,
            byte_budget=budget,
            one_position=self.one_position,
            away=None if self.away is None else duration(self.away),
            least_position=least,
        )


def new_key(name: str) -> str:
    """Return a client key for a registration: the copy's name, made unique."""
    # The cut may fall inside a character, which is then left out.
    short = name.encode()[:_KEY_NAME_BYTES].decode(errors="ignore")
    return f"{short}@{secrets.token_hex(8)}"


def open_items(file: CopyFile, options: SyncOptions, clock: DeviceClock) -> list[Item]:
    """Return an item for each copy, those of the highest priority first. Raises UnknownCopy.

    Evicted copies are left out unless `only` names them.
    """
    # Doubt is noted before the records are read, which say whether a verification is due.
    file.take_doubt()
    with file.reading() as connection:
        if options.only is None:
            records = [
                record for record in catalog.records(connection) if record.use.evicted_at is None
            ]
        else:
            records = [catalog.find(connection, name) for name in options.only]
    if options.one_position:
        _check_points(records)
    if any(record.use.evicted_at is not None for record in records):
        with file.writing() as connection:
            for record in records:
                catalog.put_use(connection, record.copy_id, catalog.Use(clock.micros()))
    if options.one_position and len(records) > MOST_ITEMS:
        raise ValueError(f"one position is for {MOST_ITEMS:,} copies at most, not {len(records):,}")
    records.sort(key=lambda record: -record.declaration.priority)
    return [Item.open(file, record, options.one_position, clock) for record in records]


def _check_points(records: Sequence[catalog.Record]) -> None:
    """Raise ValueError if a copy gets its refresh points one by one, at positions of its own."""
    names = [rec.declaration.name for rec in records if rec.declaration.changes == EVERY_POINT]
    if names:
        raise ValueError(
            f"one position is not for copies with changes={EVERY_POINT!r}, such as {names[0]}:"
            " sync them in a call of their own"
        )


def register(file: CopyFile, session: Session, item: Item) -> Flow[None]:
    """Register the query of an item. If the store refuses it, the item gets the error.

    The client key belongs to the copy. If it has another query, that was kept under the copy's name
    before, and is replaced.
    """
    declaration = item.declaration
    if item.is_gone:
        declaration = replace(declaration, key=new_key(declaration.name))
        _amend(file, item, key=declaration.key)
    parameters = {
        name: from_value(pb.Value.FromString(bytes.fromhex(content)))
        for name, content in declaration.parameters.items()
    }
    lease = None if declaration.lease is None else timedelta(seconds=declaration.lease)
    # Set before the call, so that a query that is refused is not registered again in this round.
    item.registered = True
    try:
        registered = yield from _flows.register(
            session, declaration.sql, declaration.key, parameters, lease, replace=True
        )
    except (ConnectionFailed, Timeout):
        # These concern the whole sync, not this query alone.
        raise
    except PsoupError as error:
        item.error = error
        return
    _amend(file, item, handle=registered.handle, stream="")
    item.error = None
    item.reopen()


def meet(file: CopyFile, session: Session, items: Sequence[Item]) -> Flow[None]:
    """Find out which store answers, if the file has no store yet or a query must be registered.

    Raises OtherStore.
    """
    with file.reading() as connection:
        has_home = home_of(connection) is not None
    if (items and not has_home) or any(item.must_register for item in items):
        yield from visit(session, file)


def learn_streams(file: CopyFile, session: Session, items: Sequence[Item]) -> Flow[None]:
    """Note the descriptions of the streams of copies, so that rows can be checked as they are
    queued. A file that publishes gets those that it has again: columns may have been added.

    A failure is left to the next sync: the copies are more important.
    """
    learnt: set[str] = set()
    for item in items:
        if item.error is not None or item.declaration.stream or not item.declaration.handle:
            continue
        try:
            registration = yield from _flows.registration(session, item.declaration.handle)
            if registration.stream not in learnt:
                yield from learn(session, file, registration.stream)
        except PsoupError:
            return
        learnt.add(registration.stream)
        _amend(file, item, stream=registration.stream)
    with file.reading() as connection:
        names = published_streams(connection)
    for name in names:
        try:
            if name not in learnt:
                yield from learn(session, file, name)
        except NotFound:
            continue
        except PsoupError:
            return


def prepare_item(file: CopyFile, session: Session, item: Item) -> Flow[None]:
    """Learn how the answer is computed from base rows, if that is unknown."""
    # If the handle turns out to be gone, the query is registered and its computation learnt again.
    # `must_register` is True only once in a round, so this ends.
    while item.error is None:
        item.error = yield from learn_computation(file, session, item.declaration)
        if item.error is None:
            yield from _learn_edits(file, session, item)
        if not item.must_register:
            return
        yield from register(file, session, item)


def _learn_edits(file: CopyFile, session: Session, item: Item) -> Flow[None]:
    learnt = yield from learn_edits(file, session, item.declaration)
    item.error = learnt.error
    if learnt.refusal is not None:
        item.refusal = learnt.refusal
        item.declaration = replace(item.declaration, edits=False)


@dataclass(frozen=True, slots=True)
class Least:
    """The position that a call asks for. Its answers then have own rows up to the id `included`, if
    acknowledged; `lags` is True if some of those are not sure to be in them.
    """

    position: bytes
    included: int | None = None
    lags: bool = False


def least_of(file: CopyFile, session: Session, *, confirming: bool) -> Least:
    """Return what a call is to ask for: what the client has seen, and what its queue has published.

    The session may not know what another process, or one before, has published, and positions can't
    be compared. Then it is the one, or if `confirming` the other.
    """
    with file.reading() as connection:
        newest = confirmed.newest(connection)
    if newest is None:
        return Least(session.position or b"")
    if newest.position is None or session.includes(newest.position):
        return Least(session.position or b"", newest.first_row)
    if confirming:
        return Least(newest.position, newest.first_row)
    return Least(session.position or b"", lags=True)


def forget_position(file: CopyFile, session: Session, error: PsoupError, asked: bytes) -> bool:
    """Forget a position that the store never had, as after a restore. Return whether the call is to
    be repeated without it.
    """
    is_forgotten = session.forget(error, asked)
    if error.reason != FOREIGN_POSITION or not asked:
        return is_forgotten
    with file.writing() as connection:
        return confirmed.void(connection, asked) or is_forgotten


def _amend(file: CopyFile, item: Item, **fields: Any) -> None:
    with file.writing(durable=True) as connection:
        catalog.amend(connection, item.declaration.copy_id, **fields)
