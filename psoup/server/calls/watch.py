"""Watch: a Sync again whenever there may be something new for one of its tokens.

An idle watcher costs a wait on the follower's next change, and a look at two numbers when it comes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from psoup.errors import BadRequest
from psoup.server.calls.invoke import Deadline
from psoup.server.calls.sync import SyncCall
from psoup.server.calls.transfer import Transfer
from psoup.server.calls.withdrawn import WithdrawnTransfer
from psoup.server.core import Core
from psoup.server.fair_queue import CALLER, next_ticket
from psoup.server.wire.values import BadValue, from_instant, to_micros
from psoup.v1 import psoup_pb2 as pb

_SECOND = 1_000_000
_LEAST_EVERY = 0.1
_LEAST_BEAT, _DEFAULT_BEAT = 1.0, 30.0
_LEAST_CONTACT, _MOST_CONTACT = 1.0, 60.0


async def watch(core: Core, request: pb.WatchRequest) -> AsyncIterator[pb.SyncPart]:
    """Watches until `rounds` are done, no item is left, or the server stops. Raises as Sync
    does."""
    every = _seconds(request, "every", _LEAST_EVERY, _LEAST_EVERY)
    beat = _seconds(request, "beat", _LEAST_BEAT, _DEFAULT_BEAT)
    watcher = Watcher(core, request.sync)
    rounds, spoke, met = 0, time.monotonic(), time.monotonic()
    while watcher.items and not core.closing:
        began, said = time.monotonic(), False
        async for part in watcher.round():
            said = True
            yield part
        rounds += said
        if not watcher.items or (request.rounds and rounds >= request.rounds):
            return
        spoke = time.monotonic() if said else spoke
        meet = met + watcher.contact_seconds
        await watcher.pause(began + every if said else began, min(spoke + beat, meet))
        if time.monotonic() >= meet:
            watcher.contact()
            met = time.monotonic()
        if time.monotonic() >= spoke + beat:
            spoke = time.monotonic()
            now = from_instant(core.follower.now)
            yield pb.SyncPart(beat=pb.SyncBeat(now=now))


@dataclass
class _Watched:
    """An item as its next round asks for it, and the last round of it."""

    item: pb.SyncItem
    last: Transfer | WithdrawnTransfer | None = None


class Watcher:
    """The items of one Watch, by their number in the request."""

    def __init__(self, core: Core, request: pb.SyncRequest) -> None:
        """Raises BadRequest."""
        SyncCall(core, request)
        self._core = core
        self._request = request
        self._first = True
        self.items = {index: _Watched(item) for index, item in enumerate(request.items)}

    async def round(self) -> AsyncIterator[pb.SyncPart]:
        """The parts of the items that have something new."""
        due = [index for index, one in self.items.items() if self._is_due(one)]
        if due and self._request.one_position:
            due = list(self.items)
        if not due:
            return
        caller = replace(CALLER.get(), ticket=next_ticket())
        CALLER.set(caller)
        await self._core.quotas.rest(caller.tenant, caller.owner)
        call = SyncCall(self._core, self._asking(due))
        async for part in call.parts(Deadline.after(None, self._core.settings.wait)):
            transfer = call.transfers.get(part.item)
            if transfer is None or not transfer.quiet:
                part.item = due[part.item]
                yield part
        self._go_on(due, call)

    def contact(self) -> None:
        """Who watches is there, also where there is nothing to say."""
        for one in self.items.values():
            self._core.leases.contact(one.item.handle)

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
            due = any(self._is_due(one) for one in self.items.values())
            if clock >= most or (due and clock >= least):
                return
            until = least if due else min(most, clock + self._next_change())
            await self._core.follower.moved(max(0.001, until - clock))

    def _next_change(self) -> float:
        """Seconds until time alone may change an answer."""
        instants = [
            one.last.found.good_until
            for one in self.items.values()
            if one.last and one.last.found and one.last.found.good_until is not None
        ]
        now = self._core.follower.now
        return max(0, min(instants) - now) / _SECOND if instants else 1e9

    def _is_due(self, one: _Watched) -> bool:
        if one.last is None or not one.last.done:
            return True
        return one.last.is_behind()

    def _asking(self, due: list[int]) -> pb.SyncRequest:
        request = pb.SyncRequest()
        request.CopyFrom(self._request)
        del request.items[:]
        request.items.extend(self.items[index].item for index in due)
        if not self._first:
            request.least_position = b""
        self._first = False
        return request

    def _go_on(self, due: list[int], call: SyncCall) -> None:
        """Makes the next round go on from the tokens of this one. An item that was refused is done
        with."""
        for place, index in enumerate(due):
            transfer = call.transfers.get(place)
            if transfer is None:
                del self.items[index]
                continue
            item = self.items[index].item
            if transfer.token:
                item = pb.SyncItem(
                    handle=item.handle,
                    token=transfer.token,
                    window=item.window,
                    priority=item.priority,
                    base_rows=item.base_rows,
                    changes=item.changes,
                )
            self.items[index] = _Watched(item, transfer)


def _seconds(request: pb.WatchRequest, field: str, least: float, default: float) -> float:
    if not request.HasField(field):
        return default
    try:
        return max(least, to_micros(getattr(request, field)) / _SECOND)
    except BadValue as bad:
        raise BadRequest(f"{field} {bad}", reason=bad.reason, field=field) from None
