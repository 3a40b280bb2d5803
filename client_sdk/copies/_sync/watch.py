"""A watch as a flow: rounds of Sync on one call. If it is cut, another call continues from the
tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from client_sdk._exceptions import PsoupError, Timeout
from client_sdk._grpc.effects import Attempts, Flow, Give, Hear, Listen, Pause, Repeat
from client_sdk._session import Session
from client_sdk._wire.values import duration
from client_sdk.copies._file import catalog
from client_sdk.copies._file.clock import DeviceClock
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._overlay import confirmed
from client_sdk.copies._sync.items import Change, Item, Step
from client_sdk.copies._sync.opening import (
    MOST_ITEMS,
    Least,
    SyncOptions,
    forget_position,
    learn_streams,
    least_of,
    meet,
    open_items,
    prepare_item,
    register,
)
from client_sdk.copies._sync.result import Synced
from client_sdk.copies._sync.transfer import Overtaken
from psoup.v1 import psoup_pb2 as pb

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
