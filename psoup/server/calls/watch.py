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
_LEAST_EVERY = 0.1
_LEAST_BEAT, _DEFAULT_BEAT = 1.0, 30.0
_LEAST_CONTACT, _MOST_CONTACT = 1.0, 60.0
MANY_ROWS = 1 << 20


async def watch(
    core: Core, call: Call, request: pb.WatchRequest
) -> AsyncGenerator[pb.SyncPart, None]:
    """Watch until `rounds` are done, no item is left, or the server stops. Raise what Sync does,
    and QuotaExceeded."""
    acting = call.acting(request)
    with core.quotas.watching(acting.tenant, acting.owner):
        async with aclosing(_watch(core, call, request)) as parts:
            async for part in parts:
                yield part


async def _watch(
    core: Core, call: Call, request: pb.WatchRequest
) -> AsyncGenerator[pb.SyncPart, None]:
    every = _seconds(request, "every", _LEAST_EVERY, _LEAST_EVERY)
    beat = _seconds(request, "beat", _LEAST_BEAT, _DEFAULT_BEAT)
    with Watcher(core, call, request.sync) as watcher:
        rounds, spoke, met = 0, time.monotonic(), time.monotonic()
        while watcher.items and not core.closing:
            began, said = time.monotonic(), False
            async with aclosing(watcher.round()) as parts:
                async for part in parts:
                    said = True
                    yield part
            rounds += said
            if not watcher.items or (request.rounds and rounds >= request.rounds):
                return
            if said and len(request.sync.items) > 1:
                # Items without news have no parts, so only this says that the round is over.
                yield _beat(core)
            spoke = time.monotonic() if said else spoke
            meet = met + watcher.contact_seconds
            await watcher.pause(began + every if said else began, min(spoke + beat, meet))
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
    """An item as its next round asks for it, and who sleeps for it meanwhile. Its streams had so
    many `rows` at its last round."""

    item: pb.SyncItem
    sleeper: Sleeper
    rows: int = 0


class Watcher:
    """The items of one Watch, by their number in the request."""

    def __init__(self, core: Core, call: Call, request: pb.SyncRequest) -> None:
        """Raises BadRequest."""
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
        for one in self.items.values():
            self._core.watches.insert(one.sleeper)
        return self

    def __exit__(self, *_: object) -> None:
        for index in [*self.items]:
            self._end(index)
        self._core.watches.close(self._news)

    async def round(self) -> AsyncGenerator[pb.SyncPart, None]:
        """The parts of the items that have something new."""
        due = sorted(self.items if self._due and self._request.one_position else self._due)
        if not due:
            return
        self._call.renew_ticket()
        await self._core.quotas.rest(self._call.tenant, self._call.owner)
        # Before anything is planned: what happens from here on wakes them again.
        self._due.difference_update(due)
        for index in due:
            self._core.watches.ask(self.items[index].sleeper)
        round_ = SyncCall(self._core, self._call, self._asking(due))
        deadline = Deadline.within(self._core.settings.wait)
        async with aclosing(round_.parts(deadline)) as parts:
            async for part in parts:
                transfer = round_.transfers.get(part.item)
                if transfer is None or not transfer.quiet:
                    part.item = due[part.item]
                    yield part
        self._go_on(due, round_)

    def contact(self) -> None:
        """Who watches is there, also where there is nothing to say.

        Whom no row has woken for many rows is asked nevertheless: a token must not get so old that
        all those rows have to be looked at in one round.
        """
        for index, one in self.items.items():
            self._core.leases.contact(one.item.handle, self._call.actor)
            if self._rows(one.item.handle) - one.rows > MANY_ROWS:
                self._wake(index)

    def _rows(self, handle: bytes) -> int:
        """The rows that the streams of a registration ever had."""
        state = self._core.follower.state
        registration = state.registrations.get(handle)
        ids = registration.streams if registration is not None else ()
        return sum(state.streams[stream_id].high for stream_id in ids)

    @property
    def contact_seconds(self) -> float:
        """How often to do so: some times in the shortest lease."""
        registrations = self._core.follower.state.registrations
        found = (registrations.get(one.item.handle) for one in self.items.values())
        shortest = min((one.lease for one in found if one), default=0)
        return max(_LEAST_CONTACT, min(_MOST_CONTACT, shortest / _SECOND / 3))

    async def pause(self, least: float, most: float) -> None:
        """Waits until something is due, not before the instant `least` nor after `most`."""
        while not self._core.closing:
            clock = time.monotonic()
            if clock >= most or (self._due and clock >= least):
                return
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
            request.least_position = b""
        self._first = False
        return request

    def _go_on(self, due: list[int], round_: SyncCall) -> None:
        """Makes the next round go on from the tokens of this one. An item that was refused is done
        with."""
        for place, index in enumerate(due):
            transfer = round_.transfers.get(place)
            if transfer is None:
                self._end(index)
                continue
            one = self.items[index]
            item = one.item
            if transfer.token:
                item = pb.SyncItem(
                    handle=item.handle,
                    token=transfer.token,
                    window=item.window,
                    priority=item.priority,
                    base_rows=item.base_rows,
                    changes=item.changes,
                )
            self.items[index] = _Watched(item, one.sleeper, self._rows(item.handle))
            if transfer.done and not transfer.resumed:
                self._settle(one.sleeper, transfer)
            else:
                self._due.add(index)

    def _settle(self, sleeper: Sleeper, transfer: Transfer | WithdrawnTransfer) -> None:
        """Tells the watches what concerns an item whose round is done. Where it may not be read, no
        row does, until something is granted."""
        if isinstance(transfer, WithdrawnTransfer):
            self._core.watches.settle(sleeper, NO_CONCERN, None)
            return
        state, question = self._core.follower.state, transfer.job.question
        registration = state.registrations.get(sleeper.handle)
        if registration is None or registration.position != transfer.text:
            # That woke it.
            return
        triggers = () if question.unrefreshed else question.query.triggers
        named = zip(registration.triggers, triggers, strict=bool(triggers))
        assert transfer.plan is not None and transfer.found is not None
        concern = concern_of(transfer.plan, state, named, registration.views)
        self._core.watches.settle(sleeper, concern, transfer.found.good_until)

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
