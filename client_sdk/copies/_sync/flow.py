"""Sync and watch as flows.

A sync is one call for all copies, and further ones for those that were cut, refused or wrong. A
watch has rounds of Sync on one call. If it is cut, another call continues from the tokens.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from client_sdk import _flows
from client_sdk._exceptions import (
    ConnectionFailed,
    NotFound,
    PsoupError,
    ServerError,
    Timeout,
    UnknownCopy,
)
from client_sdk._grpc.effects import Attempts, Flow, Give, Hear, Listen, Pause, Repeat
from client_sdk._session import FOREIGN_POSITION, Session
from client_sdk._wire.values import MOST_TYPED_BYTES, duration, from_value
from client_sdk.copies._file import catalog
from client_sdk.copies._file.clock import DeviceClock
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.home import home_of, learn, published_streams, visit
from client_sdk.copies._overlay import confirmed
from client_sdk.copies._overlay.learning import learn_edits
from client_sdk.copies._query.base_rows import learn_computation
from client_sdk.copies._queue.batches import Sent
from client_sdk.copies._sync.items import Change, Item, Step
from client_sdk.copies._sync.transfer import Overtaken, promote
from psoup.v1 import psoup_pb2 as pb

# The most items that a server takes in one call.
MOST_ITEMS = 1000
# The bytes of gRPC's framing of a message.
_FRAME_BYTES = 5
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
    """Return an item for each copy, those of the highest priority first. Raises UnknownCopy."""
    # Doubt is noted before the records are read, which say whether a verification is due.
    file.take_doubt()
    with file.reading() as connection:
        if options.only is None:
            records = catalog.records(connection)
        else:
            records = [catalog.find(connection, name) for name in options.only]
    if options.one_position and len(records) > MOST_ITEMS:
        raise ValueError(f"one position is for {MOST_ITEMS:,} copies at most, not {len(records):,}")
    records.sort(key=lambda record: -record.declaration.priority)
    return [Item.open(file, record, options.one_position, clock) for record in records]


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


class SyncRun:
    """One sync. The caller holds the lock of the file."""

    def __init__(
        self, file: CopyFile, session: Session, options: SyncOptions, clock: DeviceClock
    ) -> None:
        self._file = file
        self._clock = clock
        self._session = session
        self._options = options
        self._remaining_bytes = options.byte_budget
        self._attempts = Attempts(session.retry, Repeat.READ, session.timeout)
        self._progress = False
        self._received = 0
        self._asked = b""
        self._lags = self._confirming = False

    def flow(self) -> Flow[Synced]:
        self._items = open_items(self._file, self._options, self._clock)
        for item in self._items:
            # Noted before any call: only a transfer of an earlier sync ends at an older position.
            item.resumed = item.staged
        yield from self._register()
        yield from self._rounds()
        if self._lags and self._has_budget:
            # Another round trip for own edits whose acknowledgement this session has not seen.
            self._confirming = True
            for item in self._live():
                item.ended = item.ended and not item.declaration.edits
            yield from self._rounds()
        # The byte budget is for the copies; descriptions of streams can wait for another sync.
        if self._has_budget:
            yield from learn_streams(self._file, self._session, self._items)
        return self._synced()

    @property
    def _has_budget(self) -> bool:
        return self._remaining_bytes is None or self._remaining_bytes > 0

    def _rounds(self) -> Flow[None]:
        """Make calls until nothing is due, or the byte budget is used up."""
        while due := self._due():
            try:
                yield from self._call(due)
            except PsoupError as error:
                yield from self._after(error)
                for item in due:
                    item.reopen()
            else:
                yield from self._register()
                if self._options.one_position and all(item.ended for item in self._live()):
                    self._promote()
                    # With one position, `_due` returns all live items for ever, so the end is found
                    # here.
                    if not any(item.due for item in self._live()):
                        break
            if not self._has_budget:
                break

    def _live(self) -> list[Item]:
        return [item for item in self._items if item.error is None]

    def _promote(self) -> None:
        """Make the answers of one position visible."""
        live = self._live()
        promote(self._file, [item.declaration.copy_id for item in live], self._clock)
        if any(item.replaces_everything for item in live):
            self._file.scrub()

    def _due(self) -> list[Item]:
        """Return the items to request. With one position all of them, until all have ended in one
        call.
        """
        if self._options.one_position:
            return self._live()
        return [item for item in self._items if item.due][:MOST_ITEMS]

    def _synced(self) -> Synced:
        changes = {item.name: item.change for item in self._items}
        if self._options.one_position and any(item.due for item in self._live()):
            for item in self._live():
                changes[item.name] = replace(changes[item.name], status="incomplete")
        return Synced(changes, received_bytes=self._received)

    def _register(self) -> Flow[None]:
        yield from meet(self._file, self._session, self._items)
        for item in self._items:
            if item.must_register:
                yield from register(self._file, self._session, item)
            yield from prepare_item(self._file, self._session, item)

    # ---- one call

    def _call(self, due: list[Item]) -> Flow[None]:
        self._progress = False
        least = least_of(self._file, self._session, confirming=self._confirming)
        self._lags = least.lags and any(item.declaration.edits for item in self._live())
        for item in due:
            item.ask(least.included)
        budget = self._remaining_bytes or 0
        request = self._options.request(self._session, due, budget, least.position)
        self._asked = request.least_position
        yield Listen("Sync", request, self._attempts.remaining())
        # Items whose further parts in this call are ignored: they were refused, or are to be
        # requested in another way.
        skipped: set[int] = set()
        moved = False
        while (part := (yield Hear())) is not None:
            moved = True
            size = part.ByteSize() + _FRAME_BYTES
            self._received += size
            if self._remaining_bytes is not None:
                self._remaining_bytes -= size
            if part.item in skipped:
                continue
            step = due[part.item].take(part)
            if step in (Step.STAGED, Step.ENDED):
                self._progress = True
                self._attempts.reset()
            if step in (Step.WRONG, Step.REFUSED):
                skipped.add(part.item)
        for number in skipped:
            if due[number].due:
                due[number].reopen()
        # Without this error, a server that sends nothing would be asked again without a pause.
        if self._remaining_bytes is None and not moved:
            raise ServerError("the server ended a sync with nothing in it", code="ABORTED")

    def _after(self, error: PsoupError) -> Flow[None]:
        """Wait after an error. Raises it if the call is not to be repeated."""
        if forget_position(self._file, self._session, error, self._asked):
            return
        # The timeout limits the time without progress, not a transfer: staged parts are not sent
        # again.
        if isinstance(error, Timeout) and self._progress:
            self._attempts.reset()
            return
        yield Pause(self._attempts.pause_after(error))


@dataclass(frozen=True, slots=True)
class Synced(Mapping[str, Change]):
    """The result of a sync, or of one round of a watch: a `Change` for each copy, by name.

    A copy that stayed the same is there too, with the status "unchanged". A name that was not part
    of the sync raises UnknownCopy, which is a KeyError. `sent` is what the sync sent of the queue
    before. `received_bytes` is the size of the messages of the sync as they were received; a watch
    does not count them.
    """

    changes: dict[str, Change]
    sent: Sent = Sent()
    received_bytes: int = 0

    @property
    def complete(self) -> bool:
        """True if every copy is up to date: none is incomplete or refused."""
        return all(change.status in ("changed", "unchanged") for change in self.changes.values())

    @property
    def changed(self) -> list[str]:
        """The names of the copies that changed."""
        return [name for name, change in self.changes.items() if change.status == "changed"]

    def __getitem__(self, name: str) -> Change:
        try:
            return self.changes[name]
        except KeyError:
            names = ", ".join(self.changes) or "no copies"
            raise UnknownCopy(
                f"{name!r} was not part of this sync, which had {names}; "
                "name it in `only`, or leave `only` out"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


# The deadline of one call. A new call follows, so that a dead connection does not go unnoticed.
_CALL_SECONDS = 1800.0


class WatchRun:
    """One watch, as a flow that gives a Synced for each round in which a copy changed or was
    refused.

    It ends when every copy was refused. It holds no lock: if another sync has changed a copy, the
    watch continues from there.
    """

    def __init__(
        self,
        file: CopyFile,
        session: Session,
        options: SyncOptions,
        clock: DeviceClock,
        every: timedelta | None,
    ) -> None:
        self._file = file
        self._clock = clock
        self._session = session
        self._options = options
        self._every = every
        self._attempts = Attempts(session.retry, Repeat.READ, None)
        self._received_any = False
        self._asked = b""
        self._included: int | None = None
        # The changes of this round, by name; and the errors of all rounds.
        self._round: dict[str, Change] = {}
        self._refused: dict[str, Change] = {}

    def flow(self) -> Flow[None]:
        self._items = open_items(self._file, self._options, self._clock)
        if len(self._items) > MOST_ITEMS:
            raise ValueError(f"a watch is of {MOST_ITEMS:,} copies at most")
        while True:
            yield from self._register()
            live = [item for item in self._items if item.error is None]
            if not live:
                yield from self._end_round()
                return
            yield from learn_streams(self._file, self._session, live)
            try:
                yield from self._call(live)
                # A server that ends each call at once must not cause a busy loop.
                if not self._has_news:
                    yield Pause(self._session.retry.pause(1))
            except Overtaken:
                # Another sync was faster: the watch continues at once from what the file has.
                yield from self._end_round()
            except PsoupError as error:
                yield from self._end_round()
                # A call on which parts were received has only come to its planned end.
                timed_out = isinstance(error, Timeout) and self._received_any
                if not timed_out and not self._forget(error):
                    yield Pause(self._attempts.pause_after(error))
            for item in live:
                if item.error is None:
                    item.reopen()

    def _register(self) -> Flow[None]:
        yield from meet(self._file, self._session, self._items)
        for item in self._items:
            if item.must_register:
                yield from register(self._file, self._session, item)
            if item.error is None:
                yield from prepare_item(self._file, self._session, item)
            self._note_refusal(item)

    def _call(self, live: list[Item]) -> Flow[None]:
        """Take parts until the call ends, or another one has to be made.

        That is so after an acknowledgement, because only the first round of a call waits for a
        position.
        """
        least = self._least(live)
        if any(self._lacks(item) for item in live):
            # A Watch sends nothing for an item without news, and a Sync always an end.
            if not (yield from self._confirm(live, least)):
                return
            least = self._least(live)
        request = pb.WatchRequest(
            sync=self._options.request(self._session, live, 0, least.position),
            every=None if self._every is None else duration(self._every),
        )
        self._received_any = False
        self._asked = request.sync.least_position
        yield Listen("Watch", request, _CALL_SECONDS)
        while (part := (yield Hear())) is not None:
            self._received_any = True
            self._attempts.reset()
            if part.HasField("beat"):
                yield from self._end_round()
                if self._has_news:
                    break
                continue
            item = live[part.item]
            step = item.take(part)
            if step is Step.WRONG or item.must_register:
                break
            if step is Step.ENDED:
                self._round[item.name] = item.change
                item.next_round()
            elif step is Step.REFUSED:
                self._note_refusal(item)
            if len(live) == 1 and step in (Step.ENDED, Step.REFUSED):
                # The server sends a beat after a round of several items only.
                yield from self._end_round()
                if self._has_news:
                    break
        yield from self._end_round()

    def _least(self, live: Sequence[Item]) -> Least:
        least = least_of(self._file, self._session, confirming=True)
        self._included = least.included
        for item in live:
            item.include(least.included)
        return least

    def _lacks(self, item: Item) -> bool:
        """Return whether a copy shows own edits that the call includes."""
        with self._file.reading() as connection:
            record = catalog.by_id(connection, item.declaration.copy_id)
        if record is None or record.version is None or not item.declaration.edits:
            return False
        return self._included is not None and not confirmed.is_covered(record, self._included)

    def _confirm(self, live: Sequence[Item], least: Least) -> Flow[bool]:
        """Sync once, so that copies have from the store what was acknowledged.

        Return whether the watch can go on with the same items.
        """
        request = self._options.request(self._session, live, 0, least.position)
        self._asked = request.least_position
        yield Listen("Sync", request, self._session.timeout)
        while (part := (yield Hear())) is not None:
            item = live[part.item]
            step = item.take(part)
            if step is Step.WRONG or step is Step.REFUSED:
                self._note_refusal(item)
                yield from self._end_round()
                return False
            if step is Step.ENDED:
                if item.change.status == "changed":
                    self._round[item.name] = item.change
                item.next_round()
        yield from self._end_round()
        return True

    @property
    def _has_news(self) -> bool:
        """True if batches of the queue were acknowledged since the call began."""
        with self._file.reading() as connection:
            newest = confirmed.newest(connection)
        return newest is not None and (self._included is None or newest.first_row > self._included)

    def _forget(self, error: PsoupError) -> bool:
        return forget_position(self._file, self._session, error, self._asked)

    def _note_refusal(self, item: Item) -> None:
        if item.error is not None and item.name not in self._refused:
            self._round[item.name] = self._refused[item.name] = item.change

    def _end_round(self) -> Flow[None]:
        """Return what changed since the last time, if anything did, beside all other copies."""
        if self._round:
            unchanged = {item.name: Change("unchanged") for item in self._items}
            changes, self._round = {**unchanged, **self._refused, **self._round}, {}
            yield Give(Synced(changes))
