"""Room in memory for requests and answers.

The bytes that requests under way take, parsed and decoded, are part of the memory's budget: what
was read from files and can be read again leaves for them. A request that finds no room waits, and
is refused if that takes long. Parties take turns, so that one with many requests delays the others
by one request at a time. A party is a tenant, or a connection without authentication.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from datastem.memory import Memory
from psoup.errors import Overloaded
from psoup.tenant_queue import TenantQueue

# Requests of this size never wait. All calls that a server takes at once, of this size, need no
# more than half of its memory by default.
SMALL_BYTES = 64 << 10
_RETRY_AFTER = timedelta(seconds=2)


@dataclass(eq=False, slots=True)
class _Waiting:
    nbytes: int
    granted: asyncio.Future[None]


class Room:
    """Room of `limit` bytes; a request that is larger has the room alone. For one event loop."""

    def __init__(
        self, memory: Memory, limit: int, patience: float, contents: str = "requests"
    ) -> None:
        """`contents` names what is held, for the text of a refusal."""
        self._memory = memory
        self._limit = limit
        self._patience = patience
        self._contents = contents
        self._queue: TenantQueue[_Waiting] = TenantQueue()
        self.used = 0
        # Bytes of messages that were received and have no room yet.
        self.arrived = 0

    def hold(self, party: str) -> Hold:
        """Return a hold for a request of a party, which has no room yet."""
        return Hold(self, party)

    def arrive(self, nbytes: int) -> None:
        """Count a message that was received. Raise Overloaded if those that wait for room already
        take as much as there is room for."""
        # A message that is alone is always taken, however large; else it would be refused for ever.
        if self.arrived and self.arrived + nbytes > self._limit:
            raise self._refusal(nbytes)
        self.arrived += nbytes

    async def take(self, nbytes: int, party: str) -> None:
        """Take room, after a wait if need be. Raise Overloaded after the patience."""
        if not self.try_take(nbytes):
            await self._wait(nbytes, party)

    def try_take(self, nbytes: int, share: float = 1.0) -> bool:
        """Take room if that needs no wait and no more than a share of it is in use; return whether
        it was taken."""
        if not self.has(nbytes) or (nbytes > SMALL_BYTES and self.used > share * self._limit):
            return False
        self._count(nbytes)
        return True

    def has(self, nbytes: int) -> bool:
        """Return whether a request of that size need not wait."""
        return nbytes <= SMALL_BYTES or (not self._queue and self._fits(nbytes))

    @property
    def contended(self) -> bool:
        """Whether a request waits."""
        return bool(self._queue)

    def give_back(self, nbytes: int) -> None:
        self._count(-nbytes)
        self._grant()

    def evict(self, number: int) -> None:
        """Evict nothing: requests under way are pinned."""

    def _fits(self, nbytes: int) -> bool:
        return not self.used or self.used + nbytes <= self._limit

    def _count(self, nbytes: int) -> None:
        self.used += nbytes
        self._memory.hold((self, 0), self.used, pinned=True)
        # Room is part of the memory's budget: cached blocks leave for what was just taken.
        self._memory.shrink()

    async def _wait(self, nbytes: int, party: str) -> None:
        waiting = _Waiting(nbytes, asyncio.get_running_loop().create_future())
        place = self._queue.push(party, waiting)
        try:
            # Shielded, so that `_grant` can set the result even if this wait has just been
            # cancelled.
            await asyncio.wait_for(asyncio.shield(waiting.granted), self._patience)
        except (TimeoutError, asyncio.CancelledError) as error:
            # A place that does not wait was granted in the same moment, and its room must go back.
            if place.waits:
                place.leave()
                # A smaller request behind this one may fit now.
                self._grant()
            else:
                self.give_back(nbytes)
            if isinstance(error, TimeoutError):
                raise self._refusal(nbytes) from None
            raise

    def _refusal(self, nbytes: int) -> Overloaded:
        return Overloaded(
            f"the {self._contents} under way take all the room this server has for them, and this "
            f"one needs {nbytes:,} bytes",
            retry_after=_RETRY_AFTER,
            expected=f"at most {self._limit} bytes at once",
            hint=f"try again after a while; smaller {self._contents} fit sooner",
        )

    def _grant(self) -> None:
        """Give room to the requests that wait, in turns. The next one is never passed over, however
        large it is."""
        while self._queue:
            party = next(iter(self._queue))
            waiting = self._queue.head(party)
            # Smaller requests behind it wait too: passing it over could delay a large one for ever.
            if not self._fits(waiting.nbytes):
                return
            self._queue.pop(party)
            self._count(waiting.nbytes)
            waiting.granted.set_result(None)


class Hold:
    """The room that one request has, until all its holders have released it. Then `released` is
    called."""

    def __init__(self, room: Room, party: str) -> None:
        self.released: Callable[[], None] = lambda: None
        self._room = room
        self._party = party
        self._arrived = 0
        self._nbytes = 0
        self._holders = 1

    def arrive(self, nbytes: int) -> None:
        """Count what a message takes while there is no room for the request. Raise Overloaded."""
        if nbytes > SMALL_BYTES:
            self._room.arrive(nbytes)
            self._arrived += nbytes

    async def reserve(self, nbytes: int) -> None:
        """Take room for `nbytes` in all. Raise Overloaded.

        A request that has to wait gives back what it has: two that keep a part and wait for more
        would wait for each other.
        """
        missing = nbytes - self._nbytes
        if missing <= 0:
            return
        if not self._room.has(missing):
            present, missing = self._nbytes, nbytes
            self.shrink(0)
            self.arrive(present)
        await self._room.take(missing, self._party)
        self._nbytes = nbytes
        self._enter()

    def try_reserve(self, nbytes: int, share: float = 1.0) -> bool:
        """Take what is missing to `nbytes` if that needs no wait, and no more than a share of
        the room is in use; return whether the hold has them."""
        missing = nbytes - self._nbytes
        if missing > 0:
            if not self._room.try_take(missing, share):
                return False
            self._nbytes += missing
        return True

    @property
    def nbytes(self) -> int:
        """The bytes of the room."""
        return self._nbytes

    @property
    def contended(self) -> bool:
        """Whether other requests wait for room."""
        return self._room.contended

    def shrink(self, nbytes: int) -> None:
        """Give back all but `nbytes`."""
        excess = self._nbytes - nbytes
        if excess > 0:
            self._nbytes = nbytes
            self._room.give_back(excess)

    def retain(self) -> None:
        """Add a holder, which has to call `release`."""
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        if not self._holders:
            self._enter()
            self.shrink(0)
            self.released()

    def _enter(self) -> None:
        """Stop counting the message as one without room."""
        self._room.arrived -= self._arrived
        self._arrived = 0
