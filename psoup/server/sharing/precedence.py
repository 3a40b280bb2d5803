"""Which messages are taken up first if several tenants call: the few of one before a flood.

What a call does before it waits for something, and a small answer as a whole, happens on the event
loop in one go. Longer work shares the interpreter with it. So the order in which messages are taken
up is decided here, and so is when tenants with much work step back.

- A few messages are taken up at a time, in turns by tenant, before the loop looks at everything
  else that is ready.
- A tenant *crowds* the server while it keeps more than one message here all the time; large ones,
  and those that work for long, count for several. Otherwise it is *quiet*. If a quiet tenant has
  called recently, one message of a crowding tenant is under way at a time. None is taken up while
  gRPC still hands over calls: it does so one by one, and behind those of a flood may be one of
  another tenant.
- While a message of a quiet tenant is under way, crowding tenants rest: three times as long as they
  worked in the meantime. So they have at least a quarter of the time.

A tenant that is alone is never held up, and neither are callers without authentication.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from psoup.tenant_queue import TenantQueue

# Messages that are taken up, and parties that are looked at, before the loop looks at everything
# else that is ready.
_ROUND_MESSAGES = 4
_ROUND_PARTIES = 64
# A tenant crowds if it has more messages than this here, averaged over about this time.
_CROWDING_THRESHOLD = 1.2
_AVERAGING_SECONDS = 0.25
# A message counts as one more for each of these.
_LARGE_MESSAGE_BYTES = 32 << 10

# A tenant that called within this time may call again soon.
_RECENT_CALL_SECONDS = 5.0
# A message that is under way for longer is not young: it works in chunks, or sends its answer.
_YOUNG_SECONDS = 0.05
# A caller that makes one call after the other does so within this time.
_NEXT_CALL_SECONDS = 0.002
# gRPC hands over the next of several calls within this time. After that many in a row a message
# waits for no more of them.
_HAND_OVER_SECONDS = 0.0003
_MAX_HANDED_OVER = 256
# How long crowding tenants rest, as a multiple of the time they worked, and how much of it counts.
_REST_FACTOR = 3
_MAX_WORK_SECONDS = 0.01
# What handing over a call and sending its answer take beside its work.
_CALL_OVERHEAD_SECONDS = 0.0005
# Idle tenants are forgotten beyond this number.
_MAX_IDLE_PARTIES = 1024
# How often resting tenants are looked at.
_TICK_SECONDS = 0.001


class Party:
    """A tenant, or a connection without authentication, and what it has here.

    `weight` is what its messages count for, those that wait and those under way. `young` counts the
    messages that were taken up recently, and `quiet` the same unless the party crowds.
    """

    __slots__ = (
        "_average",
        "_averaged_at",
        "is_authenticated",
        "name",
        "quiet",
        "taken_at",
        "weight",
        "young",
    )

    def __init__(self, name: str, is_authenticated: bool, now: float) -> None:
        self.name = name
        self.is_authenticated = is_authenticated
        self.weight = self.young = self.quiet = 0
        self._average = self.taken_at = 0.0
        self._averaged_at = now

    def crowds(self, now: float) -> bool:
        return self.is_authenticated and self._average_at(now) > _CROWDING_THRESHOLD

    def change(self, weight: int, now: float) -> None:
        """Add to the weight from now on."""
        self._average, self._averaged_at = self._average_at(now), now
        self.weight += weight

    def _average_at(self, now: float) -> float:
        """Return the weight, averaged with exponentially decreasing importance of the past."""
        # The weight was constant since `_averaged_at`, so the average decays towards it in closed
        # form.
        past = math.exp((self._averaged_at - now) / _AVERAGING_SECONDS)
        return self._average * past + self.weight * (1 - past)


class MessageTurn:
    """A message that was taken up at `began_at`. `end` is called when it is done; later calls do
    nothing."""

    __slots__ = ("_precedence", "began_at", "is_young", "party", "weight")

    def __init__(self, precedence: Precedence, party: Party, weight: int, began_at: float) -> None:
        self._precedence = precedence
        self.party = party
        self.weight = weight
        self.began_at = began_at
        self.is_young = True

    def end(self) -> None:
        self._precedence.end(self)


# What a message waits for, and its weight.
_Waiting: TypeAlias = tuple["asyncio.Future[MessageTurn]", int]


class Precedence:
    """The messages that wait to be taken up, and which tenants step back. For one event loop.

    `resume` is called while a tenant may have rested for long enough.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.resume: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parties: dict[str, Party] = {}
        self._party_limit = _MAX_IDLE_PARTIES
        self._queue: TenantQueue[_Waiting] = TenantQueue()
        # The turns that may be young, by age.
        self._young: deque[MessageTurn] = deque()
        # The messages that were taken up in this round, and whether the next one is scheduled.
        self._round_size = 0
        self._is_scheduled = False
        self._tick: asyncio.TimerHandle | None = None
        # Calls that gRPC handed over one right after the other, and when the last of them came.
        self._handed_over, self._handed_over_at = 0, 0.0
        # When a message of a crowding tenant was done.
        self._worked_at = 0.0
        # The quiet tenant that called last and when, and when another one did.
        self._caller = ""
        self._called_at = self._other_called_at = -_RECENT_CALL_SECONDS
        # Messages of quiet tenants under way, since when there are any, and the last that ended.
        self._quiet = 0
        self._busy_since = 0.0
        self._ended_of, self._ended_at = "", 0.0
        self._rest_until = 0.0

    @property
    def weight(self) -> int:
        """What the messages that are here count for, large and long ones for several."""
        return sum(party.weight for party in self._parties.values())

    def arrived(self) -> None:
        """Note that gRPC has handed over a call."""
        now = self.clock()
        follows = now - self._handed_over_at < _HAND_OVER_SECONDS
        self._handed_over = self._handed_over + 1 if follows else 0
        self._handed_over_at = now

    async def turn(self, tenant: str, peer: str, nbytes: int = 0) -> MessageTurn:
        """Return when the next message of a tenant may be taken up, or of a connection if `tenant`
        is empty."""
        self._loop = asyncio.get_running_loop()
        now = self.clock()
        party, weight = self._party(tenant, peer, now), 1 + nbytes // _LARGE_MESSAGE_BYTES
        party.change(weight, now)
        has_room = party.name not in self._queue and self._round_size < _ROUND_MESSAGES
        # Taken up without a wait, but counted in the round, so that a burst can't pass the queue
        # by.
        if has_room and self._may_skip_queue(party, now):
            self._round_size += 1
            self._schedule()
            return self._take(party, weight, now)
        future: asyncio.Future[MessageTurn] = self._loop.create_future()
        place = self._queue.push(party.name, (future, weight))
        self._count_quiet(party, now)
        self._schedule()
        try:
            return await future
        except asyncio.CancelledError:
            # A cancelled future was still queued. A future with a result was granted in the same
            # moment, and its turn must end.
            if future.cancelled():
                place.leave()
                self._drop(party, weight)
            else:
                future.result().end()
            raise

    def end(self, turn: MessageTurn) -> None:
        """Note that a message is done; its tenant worked for it."""
        # A weight of 0 marks the turn as ended, so that later calls do nothing.
        weight, turn.weight = turn.weight, 0
        if weight:
            party, now = turn.party, self.clock()
            self.worked(party.name, turn.began_at)
            if party.quiet:
                self._ended_of, self._ended_at = party.name, now
            elif party.is_authenticated:
                self._worked_at = now
            party.young -= turn.is_young
            turn.is_young = False
            self._drop(party, weight)

    # ---- in any thread

    def crowds(self, tenant: str) -> bool:
        """Return whether a tenant has many messages here while the few of another are under way."""
        party, now = self._parties.get(tenant), self.clock()
        return party is not None and self._is_other_busy(party, now) and party.crowds(now)

    def rests(self, tenant: str) -> bool:
        """Return whether a crowding tenant has to wait before it goes on."""
        return self.clock() < self._rest_until and self.crowds(tenant)

    def worked(self, tenant: str, since: float) -> None:
        """Note that a tenant worked from `since` until now; if it crowds, it rests for that."""
        if self._loop is None or not self.crowds(tenant):
            return
        now = self.clock()
        # Only the time in which a quiet tenant was kept waiting counts.
        seconds = min(_MAX_WORK_SECONDS, now - max(since, self._busy_since))
        seconds += _CALL_OVERHEAD_SECONDS
        self._rest_until = max(self._rest_until, now + _REST_FACTOR * seconds)
        # A loop that has ended takes nothing, and no message waits there.
        with contextlib.suppress(RuntimeError):
            # A round sets the tick that ends the rest.
            self._loop.call_soon_threadsafe(self._run_round)

    # ---- which messages may go

    def _may_skip_queue(self, party: Party, now: float) -> bool:
        """Return whether a message that has just come need not wait."""
        if not self._is_shared(party, now):
            # With no quiet tenant to protect, a message only keeps the order of those that wait.
            return not self._queue
        return now - party.taken_at >= _NEXT_CALL_SECONDS and not party.crowds(now)

    def _may_start(self, party: Party, now: float) -> bool:
        if not self._is_shared(party, now):
            return True
        if party.crowds(now) and (party.young or self.rests(party.name)):
            return False
        return not self._is_handing_over(now)

    def _is_handing_over(self, now: float) -> bool:
        """Return whether gRPC may be about to hand over a call: it needs some rounds of the
        loop."""
        if self._handed_over >= _MAX_HANDED_OVER:
            return False
        return now - max(self._handed_over_at, self._worked_at) < _HAND_OVER_SECONDS

    def _is_shared(self, party: Party, now: float) -> bool:
        """Return whether a quiet tenant beside this one has called recently."""
        # Two stamps are enough: a party must not take its own call for that of another.
        called_at = self._other_called_at if self._caller == party.name else self._called_at
        return party.is_authenticated and now - called_at < _RECENT_CALL_SECONDS

    def _is_other_busy(self, party: Party, now: float) -> bool:
        """Return whether a message of a quiet tenant beside this one is under way, or has just
        ended, so that the same caller may call again."""
        if self._quiet > party.quiet:
            return True
        return self._ended_of != party.name and now - self._ended_at < _NEXT_CALL_SECONDS

    # ---- counting

    def _party(self, tenant: str, peer: str, now: float) -> Party:
        name = tenant or peer
        party = self._parties.get(name)
        if party is None:
            if len(self._parties) >= self._party_limit:
                # The next sweep comes after as many new parties as remain, so its cost is constant
                # for each.
                self._parties = {n: party for n, party in self._parties.items() if party.weight}
                self._party_limit = max(_MAX_IDLE_PARTIES, 2 * len(self._parties))
            party = self._parties[name] = Party(name, bool(tenant), now)
        return party

    def _take(self, party: Party, weight: int, now: float) -> MessageTurn:
        party.taken_at = now
        party.young += 1
        turn = MessageTurn(self, party, weight, now)
        self._young.append(turn)
        self._count_quiet(party, now)
        if party.is_authenticated and not party.crowds(now):
            # Shift the stamps, so that `_other_called_at` is of another tenant than `_caller`.
            if self._caller != party.name:
                self._caller, self._other_called_at = party.name, self._called_at
            self._called_at = now
        return turn

    def _count_quiet(self, party: Party, now: float) -> None:
        """Update the messages of quiet tenants under way, after a party has changed."""
        quiet = party.young if party.is_authenticated and not party.crowds(now) else 0
        change, party.quiet = quiet - party.quiet, quiet
        # Calls that follow each other closely are one busy time; else each would reset what is
        # charged.
        if change > 0 and not self._quiet and now - self._ended_at >= _NEXT_CALL_SECONDS:
            self._busy_since = now
        self._quiet += change

    def _age(self, now: float) -> None:
        """Let turns that are under way for long count as old, and for twice as much."""
        while self._young:
            # The deque is ordered by `began_at`, so the first young turn ends the search.
            turn = self._young[0]
            if turn.is_young and now - turn.began_at < _YOUNG_SECONDS:
                return
            self._young.popleft()
            if turn.is_young:
                turn.is_young = False
                turn.party.young -= 1
                # Both weights rise by the same amount, so that `end` takes off just what was added.
                turn.party.change(turn.weight, now)
                turn.weight *= 2
                self._count_quiet(turn.party, now)

    def _drop(self, party: Party, weight: int) -> None:
        """Note that a message is not here any more."""
        now = self.clock()
        party.change(-weight, now)
        self._count_quiet(party, now)
        # An unauthenticated party is a connection, which does not come back under its name.
        if not party.weight and not party.is_authenticated:
            self._parties.pop(party.name, None)
        if self._queue:
            self._schedule()

    # ---- rounds, on the event loop

    def _schedule(self) -> None:
        if not self._is_scheduled and self._loop is not None:
            self._is_scheduled = True
            self._loop.call_soon(self._run_round)

    def _run_round(self) -> None:
        """Take up the next few messages, in turns; schedule a round while any may go soon."""
        self._is_scheduled, self._round_size = False, 0
        now = self.clock()
        self._age(now)
        # Each party is looked at once at most: `pop` and `pass_over` both move it to the end.
        for _ in range(min(len(self._queue), _ROUND_PARTIES)):
            name = next(iter(self._queue))
            party = self._parties[name]
            if self._may_start(party, now):
                self._start(party, now)
            else:
                self._queue.pass_over(name)
            if self._round_size >= _ROUND_MESSAGES:
                break
        goes_on = self._round_size or self._is_handing_over(now)
        if self._queue and goes_on:
            self._schedule()
        # If every waiting tenant has to rest, nothing else would start the next round.
        if self._tick is None and (now < self._rest_until or (self._queue and not goes_on)):
            assert self._loop is not None
            self._tick = self._loop.call_later(_TICK_SECONDS, self._run_tick)

    def _start(self, party: Party, now: float) -> None:
        future, weight = self._queue.pop(party.name)
        if not future.done():
            future.set_result(self._take(party, weight, now))
            self._round_size += 1

    def _run_tick(self) -> None:
        self._tick = None
        self.resume()
        self._run_round()
