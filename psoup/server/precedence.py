"""Who goes first where several tenants call: those that ask for little, before one that floods.

What a call does before it waits for something, and a small answer as a whole, happens on the event
loop in one go; what takes longer shares the interpreter with it. So it is decided here which of the
messages that have come is taken up, and when those who have much to do step back.

- A few messages are taken up at a time, in turns by tenant, before the loop looks at everything
  else that is ready.
- A tenant *crowds* the server while it keeps more than one message here all the time; large ones,
  and those that work for long, count for several. It is quiet otherwise. Where a quiet tenant has
  called lately, one message of a tenant that crowds is under way at a time, and none is taken up
  while gRPC still hands over calls that have come: it does so one by one, and behind those of a
  flood may be somebody else's.
- While something is under way for a quiet tenant, those that crowd rest: three times as long as
  they worked in the meantime. So they have a quarter of the time at least.

A tenant that is alone, or whose callers have shown nothing, is never held up.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable

# Messages that are taken up before the loop looks at everything else that is ready.
_AT_ONCE = 4
# A tenant crowds if it has more messages than this here, on the average of about so many seconds.
_MANY = 1.2
_AVERAGED = 0.25
# The bytes of a message that count as one more.
_LARGE = 32 << 10

# Seconds. Who has called so recently has called lately.
_LATELY = 5.0
# A message under way for longer is not young any more: it works in chunks, or sends its answer.
_YOUNG = 0.05
# A caller who calls again and again does so within this.
_PAUSE = 0.002
# gRPC hands over the next of the calls that have come within this; of so many in a row one waits
# for no more.
_HAND_OVER = 0.0003
_MOST_HANDED_OVER = 256
# How long those that crowd rest, times what they worked, of which this much counts.
_REST = 3
_MOST_WORK = 0.01
# What handing over a call and sending its answer take beside that.
_BESIDE = 0.0005
# The lines of messages that are looked at before everything else that is ready is.
_MOST_LOOKED_AT = 64
# Tenants without a message are forgotten beyond so many.
_MOST_IDLE = 1024
# How often it is looked whether somebody may go on.
_TICK = 0.001


class Party:
    """A tenant, or a connection of somebody unknown, and its messages: those that wait, and the
    `young` ones, which were taken up lately.

    `present` is what all of them count for that are here, `quiet` the young ones of a tenant that
    does not crowd.
    """

    __slots__ = (
        "_at",
        "_average",
        "known",
        "name",
        "present",
        "quiet",
        "taken_at",
        "waiting",
        "young",
    )

    def __init__(self, name: str, known: bool, now: float) -> None:
        self.name = name
        self.known = known
        self.waiting: deque[tuple[asyncio.Future[Taken], int]] = deque()
        self.present = self.young = self.quiet = 0
        self._average = self.taken_at = 0.0
        self._at = now

    def crowds(self, now: float) -> bool:
        return self.known and self._averaged(now) > _MANY

    def change(self, weight: int, now: float) -> None:
        """So much more is present from now on."""
        self._average, self._at = self._averaged(now), now
        self.present += weight

    def _averaged(self, now: float) -> float:
        past = math.exp((self._at - now) / _AVERAGED)
        return self._average * past + self.present * (1 - past)


class Taken:
    """A message that was taken up. `end` is called when it is done; later calls do nothing."""

    __slots__ = ("_precedence", "at", "party", "weight", "young")

    def __init__(self, precedence: Precedence, party: Party, weight: int, at: float) -> None:
        self._precedence = precedence
        self.party = party
        self.weight = weight
        self.at = at
        self.young = True

    def end(self) -> None:
        self._precedence.end(self)


class Precedence:
    """Messages that wait to be taken up, and who steps back. For one event loop.

    `resume` is called while somebody may have rested for long enough.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.resume: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parties: dict[str, Party] = {}
        self._most_parties = _MOST_IDLE
        self._lines: OrderedDict[str, Party] = OrderedDict()
        self._young: deque[Taken] = deque()
        self._started = 0
        self._looking = False
        self._tick: asyncio.TimerHandle | None = None
        # Calls that gRPC handed over one right after the other, and when the last of them came.
        self._handed_over, self._handed_over_at = 0, 0.0
        # When a message of a tenant that crowds was done.
        self._worked_at = 0.0
        # The quiet tenant that called last and when, and when another one did.
        self._caller = ""
        self._called_at = self._other_called_at = -_LATELY
        # Messages of quiet tenants under way, since when there are any, whose ended last and when.
        self._quiet = 0
        self._busy_since = 0.0
        self._ended_of, self._ended_at = "", 0.0
        self._rest_until = 0.0

    @property
    def present(self) -> int:
        """Counts the messages that are here, large and long ones as several."""
        return sum(party.present for party in self._parties.values())

    def arrived(self) -> None:
        """Notes that gRPC has handed over a call."""
        now = self.clock()
        follows = now - self._handed_over_at < _HAND_OVER
        self._handed_over = self._handed_over + 1 if follows else 0
        self._handed_over_at = now

    async def turn(self, tenant: str, peer: str, nbytes: int = 0) -> Taken:
        """Returns when the next message of a tenant may be taken up, or of a connection where the
        caller has shown nothing."""
        self._loop = asyncio.get_running_loop()
        now = self.clock()
        party, weight = self._party(tenant, peer, now), 1 + nbytes // _LARGE
        party.change(weight, now)
        if not party.waiting and self._started < _AT_ONCE and self._at_once(party, now):
            self._started += 1
            self._look_soon()
            return self._take(party, weight, now)
        future: asyncio.Future[Taken] = self._loop.create_future()
        party.waiting.append((future, weight))
        self._lines.setdefault(party.name, party)
        self._count(party, now)
        self._look_soon()
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._leave(party, future, weight)
            else:
                future.result().end()
            raise

    def end(self, taken: Taken) -> None:
        """A message is done. Its tenant worked, where it crowds."""
        weight, taken.weight = taken.weight, 0
        if weight:
            party, now = taken.party, self.clock()
            self.worked(party.name, taken.at)
            if party.quiet:
                self._ended_of, self._ended_at = party.name, now
            elif party.known:
                self._worked_at = now
            party.young -= taken.young
            taken.young = False
            self._drop(party, weight)

    # ---- in any thread

    def crowds(self, tenant: str) -> bool:
        """Tells whether a tenant has many messages here while the few of another are under way."""
        party, now = self._parties.get(tenant), self.clock()
        return party is not None and self._others_busy(party, now) and party.crowds(now)

    def rests(self, tenant: str) -> bool:
        """Tells whether it is not yet the time again of a tenant that crowds."""
        return self.clock() < self._rest_until and self.crowds(tenant)

    def worked(self, tenant: str, since: float) -> None:
        """Notes that something was done for a tenant, from `since` until now; one that crowds rests
        for it."""
        if self._loop is None or not self.crowds(tenant):
            return
        now = self.clock()
        spent = min(_MOST_WORK, now - max(since, self._busy_since)) + _BESIDE
        self._rest_until = max(self._rest_until, now + _REST * spent)
        # After its end a loop takes nothing, and nobody waits there.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._look)

    # ---- who may

    def _at_once(self, party: Party, now: float) -> bool:
        """Tells whether a message that has just come need not wait in line."""
        if not self._shared(party, now):
            return not self._lines
        return now - party.taken_at >= _PAUSE and not party.crowds(now)

    def _may_start(self, party: Party, now: float) -> bool:
        if not self._shared(party, now):
            return True
        if party.crowds(now) and (party.young or self.rests(party.name)):
            return False
        return not self._handing_over(now)

    def _handing_over(self, now: float) -> bool:
        """Tells whether gRPC may be about to hand over a call: it needs some rounds of the loop."""
        if self._handed_over >= _MOST_HANDED_OVER:
            return False
        return now - max(self._handed_over_at, self._worked_at) < _HAND_OVER

    def _shared(self, party: Party, now: float) -> bool:
        """Tells whether another tenant, a quiet one, has called lately."""
        at = self._other_called_at if self._caller == party.name else self._called_at
        return party.known and now - at < _LATELY

    def _others_busy(self, party: Party, now: float) -> bool:
        """Tells whether something is under way for quiet tenants beside this one, or was just now,
        so that the same caller may come again."""
        if self._quiet > party.quiet:
            return True
        return self._ended_of != party.name and now - self._ended_at < _PAUSE

    # ---- counting

    def _party(self, tenant: str, peer: str, now: float) -> Party:
        name = tenant or peer
        party = self._parties.get(name)
        if party is None:
            if len(self._parties) >= self._most_parties:
                self._parties = {n: one for n, one in self._parties.items() if one.present}
                self._most_parties = max(_MOST_IDLE, 2 * len(self._parties))
            party = self._parties[name] = Party(name, bool(tenant), now)
        return party

    def _take(self, party: Party, weight: int, now: float) -> Taken:
        party.taken_at = now
        party.young += 1
        taken = Taken(self, party, weight, now)
        self._young.append(taken)
        self._count(party, now)
        if party.known and not party.crowds(now):
            if self._caller != party.name:
                self._caller, self._other_called_at = party.name, self._called_at
            self._called_at = now
        return taken

    def _count(self, party: Party, now: float) -> None:
        """Counts what is under way for quiet tenants anew, after one of them has changed."""
        quiet = party.young if party.known and not party.crowds(now) else 0
        change, party.quiet = quiet - party.quiet, quiet
        if change > 0 and not self._quiet and now - self._ended_at >= _PAUSE:
            self._busy_since = now
        self._quiet += change

    def _grow_old(self, now: float) -> None:
        while self._young and (not self._young[0].young or now - self._young[0].at >= _YOUNG):
            taken = self._young.popleft()
            if taken.young:
                taken.young = False
                taken.party.young -= 1
                taken.party.change(taken.weight, now)
                taken.weight *= 2
                self._count(taken.party, now)

    def _leave(self, party: Party, future: asyncio.Future[Taken], weight: int) -> None:
        with contextlib.suppress(ValueError):
            party.waiting.remove((future, weight))
        if not party.waiting:
            self._lines.pop(party.name, None)
        self._drop(party, weight)

    def _drop(self, party: Party, weight: int) -> None:
        """A message is not present any more."""
        now = self.clock()
        party.change(-weight, now)
        self._count(party, now)
        if not party.present and not party.known:
            self._parties.pop(party.name, None)
        if self._lines:
            self._look_soon()

    # ---- looking, on the event loop

    def _look_soon(self) -> None:
        if not self._looking and self._loop is not None:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Takes up the next few, in turns, and comes back while there is anything to decide."""
        self._looking, self._started = False, 0
        now = self.clock()
        self._grow_old(now)
        for _ in range(min(len(self._lines), _MOST_LOOKED_AT)):
            name, party = next(iter(self._lines.items()))
            self._lines.move_to_end(name)
            if self._may_start(party, now):
                self._start(party, now)
            if self._started >= _AT_ONCE:
                break
        soon = self._started or self._handing_over(now)
        if self._lines and soon:
            self._look_soon()
        if self._tick is None and (now < self._rest_until or (self._lines and not soon)):
            assert self._loop is not None
            self._tick = self._loop.call_later(_TICK, self._look_again)

    def _start(self, party: Party, now: float) -> None:
        future, weight = party.waiting.popleft()
        if not party.waiting:
            del self._lines[party.name]
        if not future.done():
            future.set_result(self._take(party, weight, now))
            self._started += 1

    def _look_again(self) -> None:
        self._tick = None
        self.resume()
        self._look()
