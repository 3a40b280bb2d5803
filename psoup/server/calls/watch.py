"""Watch: a Sync again whenever there may be something new for one of its tokens.

Between two rounds an item is a sleeper among the watches of the server, and costs nothing until
something happens that can change its answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial

from psoup.answers.difference.good_until import changes_always
from psoup.answers.planning.concern import NO_CONCERN, concern_of
from psoup.errors import BadRequest
from psoup.server.call import Call
from psoup.server.calls.sync import SyncCall
from psoup.server.calls.transfer import Transfer
from psoup.server.calls.waiting import Deadline
from psoup.server.calls.withdrawn import WithdrawnTransfer
from psoup.server.core import Core
from psoup.server.watches import Sleeper
from psoup.server.wire.values import BadValue, from_instant, to_micros
from psoup.v1 import psoup_pb2 as pb

_SECOND = 1_000_000
_MIN_ROUND_SECONDS = 0.1
_MIN_BEAT_SECONDS, _BEAT_SECONDS = 1.0, 30.0
_MIN_CONTACT_SECONDS, _MAX_CONTACT_SECONDS = 1.0, 60.0
MAX_SLEPT_ROWS = 1 << 20


async def watch(
    core: Core, call: Call, request: pb.WatchRequest
) -> AsyncGenerator[pb.SyncPart, None]:
    """Watch until `rounds` are done, no item is left, or the server stops. Raise what Sync does,
    and QuotaExceeded."""
    acting = call.acting(request)
    every = _seconds(request, "every", _MIN_ROUND_SECONDS, _MIN_ROUND_SECONDS)
    beat = _seconds(request, "beat", _MIN_BEAT_SECONDS, _BEAT_SECONDS)
    watching = core.quotas.watching(acting.tenant, acting.owner)
    with watching, Watcher(core, call, request.sync) as watcher:
        rounds, spoke, met = 0, time.monotonic(), time.monotonic()
        while watcher.items and not core.closing:
            began, has_sent = time.monotonic(), False
            async with aclosing(watcher.round()) as parts:
                async for part in parts:
                    has_sent = True
                    yield part
            rounds += has_sent
            if not watcher.items or (request.rounds and rounds >= request.rounds):
                return
            if has_sent and len(request.sync.items) > 1:
                # Items without news have no parts, so only this says that the round is over.
                yield _beat(core)
            spoke = time.monotonic() if has_sent else spoke
            meet = met + watcher.contact_seconds
            await watcher.pause(began + every if has_sent else began, min(spoke + beat, meet))
            if time.monotonic() >= meet:
                watcher.contact()
                met = time.monotonic()
            if time.monotonic() >= spoke + beat:
                spoke = time.monotonic()
                yield _beat(core)


def _beat(core: Core) -> pb.SyncPart:
    return pb.SyncPart(beat=pb.SyncBeat(now=from_instant(core.follower.now)))


@dataclass(frozen=True, slots=True)
class _Watched:
    """An item as its next round requests it, and its sleeper until then. `rows` is how many its
    streams had at its last round."""

    item: pb.SyncItem
    sleeper: Sleeper
    rows: int = 0


class Watcher:
    """The items of one Watch, by their number in the request."""

    def __init__(self, core: Core, call: Call, request: pb.SyncRequest) -> None:
        """Raise BadRequest."""
        # Made for its checks only: a bad request is refused before anything sleeps.
        SyncCall(core, call, request)
        tenant = call.acting(request).tenant
        self._core = core
        self._call = call
        self._request = request
        self._first = True
        self._news = asyncio.Event()
        self._due = set(range(len(request.items)))
        self.items = {
            index: _Watched(item, Sleeper(tenant, item.handle, partial(self._wake, index)))
            for index, item in enumerate(request.items)
        }

    def __enter__(self) -> Watcher:
        self._core.watches.open(self._news)
        for watched in self.items.values():
            self._core.watches.insert(watched.sleeper)
        return self

    def __exit__(self, *_: object) -> None:
        for index in [*self.items]:
            self._end(index)
        self._core.watches.close(self._news)

    async def round(self) -> AsyncGenerator[pb.SyncPart, None]:
        """Yield the parts of the items that have something new."""
        # Items that share a position move together, or not at all.
        due = sorted(self.items if self._due and self._request.one_position else self._due)
        if not due:
            return
        self._call.renew_ticket()
        await self._core.quotas.wait_for_work(self._call.tenant, self._call.owner)
        # Before anything is planned: what happens from here on wakes them again.
        self._due.difference_update(due)
        for index in due:
            self._core.watches.ask(self.items[index].sleeper)
        round_ = SyncCall(self._core, self._call, self._asking(due))
        deadline = Deadline.within(self._core.settings.wait)
        async with aclosing(round_.parts(deadline)) as parts:
            async for part in parts:
                transfer = round_.transfers.get(part.item)
                # An item without news sends nothing, not even that it was looked at.
                if transfer is None or not transfer.quiet:
                    # From the place in this round's request to that in the client's.
                    part.item = due[part.item]
                    yield part
        self._go_on(due, round_)

    def contact(self) -> None:
        """Renew the leases of all items, also if there is nothing to send.

        Also wake items that slept through more than MAX_SLEPT_ROWS rows, so that the next sync
        never scans them all at once.
        """
        for index, watched in self.items.items():
            self._core.leases.contact(watched.item.handle, self._call.actor)
            if self._rows(watched.item.handle) - watched.rows > MAX_SLEPT_ROWS:
                self._wake(index)

    def _rows(self, handle: bytes) -> int:
        """Return the rows that the streams of a registration ever had."""
        state = self._core.follower.state
        registration = state.registrations.get(handle)
        ids = registration.streams if registration is not None else ()
        return sum(state.streams[stream_id].high for stream_id in ids)

    @property
    def contact_seconds(self) -> float:
        """How often to renew leases: several times in the shortest of them."""
        registrations = self._core.follower.state.registrations
        watched = (
            registrations.get(registration.item.handle) for registration in self.items.values()
        )
        shortest = min((registration.lease for registration in watched if registration), default=0)
        return max(_MIN_CONTACT_SECONDS, min(_MAX_CONTACT_SECONDS, shortest / _SECOND / 3))

    async def pause(self, least: float, most: float) -> None:
        """Wait until something is due, not before the instant `least` nor after `most`."""
        while not self._core.closing:
            clock = time.monotonic()
            if clock >= most or (self._due and clock >= least):
                return
            # Nothing is awaited between the look at `_due` and this, so no wake is lost.
            self._news.clear()
            until = min(least, most) if self._due else most
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), until - clock)

    def _wake(self, index: int) -> None:
        if index not in self._due:
            self._due.add(index)
            self._news.set()

    def _asking(self, due: list[int]) -> pb.SyncRequest:
        # Items may name many ids, so only those that are due are copied.
        fields = {
            field.name: value
            for field, value in self._request.ListFields()
            if field.name != "items"
        }
        request = pb.SyncRequest(items=[self.items[index].item for index in due], **fields)
        if not self._first:
            # Later rounds can only be further than the first, which has reached it.
            request.least_position = b""
        self._first = False
        return request

    def _go_on(self, due: list[int], round_: SyncCall) -> None:
        """Make the next round continue from the tokens of this one. An item that was refused
        ends."""
        for place, index in enumerate(due):
            transfer = round_.transfers.get(place)
            if transfer is None:
                self._end(index)
                continue
            watched = self.items[index]
            item = watched.item
            # Without `have`, `resend` and `whole`: the first round has done what they ask for.
            if transfer.token:
                item = pb.SyncItem(
                    handle=item.handle,
                    token=transfer.token,
                    window=item.window,
                    priority=item.priority,
                    base_rows=item.base_rows,
                    changes=item.changes,
                    every_point=item.every_point,
                )
            self.items[index] = _Watched(item, watched.sleeper, self._rows(item.handle))
            # A transfer that was interrupted or resumed is behind by now, so it goes on at once; so
            # does one that refresh points follow.
            if transfer.done and not transfer.resumed and not transfer.more:
                self._settle(watched.sleeper, transfer)
            else:
                self._due.add(index)

    def _settle(self, sleeper: Sleeper, transfer: Transfer | WithdrawnTransfer) -> None:
        """Give the watches the concern of an item whose round is done. If it may not be read, no
        row concerns it until something is granted."""
        if isinstance(transfer, WithdrawnTransfer):
            self._core.watches.settle(sleeper, NO_CONCERN, None)
            return
        state, question = self._core.follower.state, transfer.job.question
        registration = state.registrations.get(sleeper.handle)
        if registration is None or registration.position != transfer.text:
            # The event that changed it has woken the sleeper.
            return
        triggers = () if question.unrefreshed else question.query.triggers
        named = zip(registration.triggers, triggers, strict=bool(triggers))
        assert transfer.plan is not None and transfer.difference is not None
        concern = concern_of(transfer.plan, state, named, registration.views)
        # An answer that is another one at every instant would never sleep: rows and refresh points
        # wake it.
        always = changes_always(transfer.plan)
        until = None if always else transfer.difference.changes_at
        self._core.watches.settle(sleeper, concern, until)

    def _end(self, index: int) -> None:
        self._core.watches.remove(self.items.pop(index).sleeper)
        self._due.discard(index)


def _seconds(request: pb.WatchRequest, field: str, least: float, default: float) -> float:
    if not request.HasField(field):
        return default
    try:
        return max(least, to_micros(getattr(request, field)) / _SECOND)
    except BadValue as bad:
        raise BadRequest(f"{field} {bad}", reason=bad.reason, field=field) from None
