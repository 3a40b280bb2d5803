"""The memory of a server: room for requests, and what nobody uses given back to the system.

The bytes that requests under way take, parsed and decoded, are part of the memory's budget: what
was read from files and can be read again leaves for them. A request that finds no room waits, and
is refused where that takes long. Connections that wait have turns, so that one with many requests
delays others by one request at a time.

Arrow's allocator and the C library's keep what is freed for whoever comes next, which after a large
batch or a long scan is as much again as a server holds. They are asked to return it now and then:
at every free it would cost more than the scan itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from datastem.memory import Memory
from psoup.errors import Overloaded

# What takes so little never waits. All calls a server takes at once, of this size, are no more
# than half of its memory by default.
SMALL = 64 << 10
_RETRY_AFTER = timedelta(seconds=2)
_SECONDS = 0.25
# What may come and go without a look.
_SLACK = 32 << 20


# ---- room for requests


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
        self._waiting: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self.used = 0
        # Bytes of messages that were received and have no room yet.
        self.arrived = 0

    def hold(self, peer: str) -> Hold:
        """A hold for a request of a connection, which has no room yet."""
        return Hold(self, peer)

    def arrive(self, nbytes: int) -> None:
        """Count a message that was received. Raise Overloaded if those that wait for room already
        take as much as there is room for."""
        if self.arrived and self.arrived + nbytes > self._limit:
            raise self._refusal(nbytes)
        self.arrived += nbytes

    async def take(self, nbytes: int, peer: str) -> None:
        """Raises Overloaded where there is no room for as long as the patience lasts."""
        if not self.try_take(nbytes):
            await self._wait(nbytes, peer)

    def try_take(self, nbytes: int, share: float = 1.0) -> bool:
        """Take room if that needs no wait and no more than a share of it is in use; return whether
        it was taken."""
        if not self.has(nbytes) or (nbytes > SMALL and self.used > share * self._limit):
            return False
        self._count(nbytes)
        return True

    def has(self, nbytes: int) -> bool:
        """Tell whether nobody needs to wait for so many bytes."""
        return nbytes <= SMALL or (not self._waiting and self._fits(nbytes))

    @property
    def contended(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def give_back(self, nbytes: int) -> None:
        self._count(-nbytes)
        self._grant()

    def evict(self, number: int) -> None:
        """Requests under way are pinned."""

    def _fits(self, nbytes: int) -> bool:
        return not self.used or self.used + nbytes <= self._limit

    def _count(self, nbytes: int) -> None:
        self.used += nbytes
        self._memory.hold((self, 0), self.used, pinned=True)
        self._memory.shrink()

    async def _wait(self, nbytes: int, peer: str) -> None:
        waiting = _Waiting(nbytes, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(peer, deque()).append(waiting)
        try:
            await asyncio.wait_for(asyncio.shield(waiting.granted), self._patience)
        except TimeoutError:
            self._leave(waiting)
            raise self._refusal(nbytes) from None
        except asyncio.CancelledError:
            self._leave(waiting)
            raise

    def _refusal(self, nbytes: int) -> Overloaded:
        return Overloaded(
            f"the {self._contents} under way take all the room this server has for them, and this "
            f"one needs {nbytes:,} bytes",
            retry_after=_RETRY_AFTER,
            expected=f"at most {self._limit} bytes at once",
            hint=f"try again after a while; smaller {self._contents} fit sooner",
        )

    def _leave(self, waiting: _Waiting) -> None:
        if waiting.granted.done():
            self.give_back(waiting.nbytes)
        else:
            waiting.granted.cancel()
            self._grant()

    def _grant(self) -> None:
        """Gives room to requests in turns by connection; the next is never passed over, however
        large."""
        while self._waiting:
            peer, queue = next(iter(self._waiting.items()))
            head = queue[0]
            if not head.granted.cancelled():
                if not self._fits(head.nbytes):
                    return
                self._count(head.nbytes)
                head.granted.set_result(None)
            queue.popleft()
            self._waiting.move_to_end(peer)
            if not queue:
                del self._waiting[peer]


class Hold:
    """The room one request has, until everybody who holds it has let go of it. Then `released` is
    called."""

    def __init__(self, room: Room, peer: str) -> None:
        self.released: Callable[[], None] = lambda: None
        self._room = room
        self._peer = peer
        self._arrived = 0
        self._nbytes = 0
        self._holders = 1

    def arrive(self, nbytes: int) -> None:
        """Count what a message takes while there is no room for the request. Raise Overloaded."""
        if nbytes > SMALL:
            self._room.arrive(nbytes)
            self._arrived += nbytes

    async def reserve(self, nbytes: int) -> None:
        """Take room for so many bytes in all. Raise Overloaded.

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
        await self._room.take(missing, self._peer)
        self._nbytes = nbytes
        self._enter()

    def try_reserve(self, nbytes: int, share: float = 1.0) -> bool:
        """Take what is missing to so many bytes if that needs no wait, and no more than a share of
        the room is in use; return whether the hold has them."""
        missing = nbytes - self._nbytes
        if missing > 0:
            if not self._room.try_take(missing, share):
                return False
            self._nbytes += missing
        return True

    @property
    def nbytes(self) -> int:
        """The bytes that it has."""
        return self._nbytes

    @property
    def wanted(self) -> bool:
        """Whether others wait for room."""
        return self._room.contended

    def shrink(self, nbytes: int) -> None:
        """Keeps no more than so many bytes."""
        excess = self._nbytes - nbytes
        if excess > 0:
            self._nbytes = nbytes
            self._room.give_back(excess)

    def retain(self) -> None:
        """One more holder, who calls `release`."""
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


# ---- memory that is given back


async def tidy_up() -> None:
    """Gives memory back, until cancelled; does nothing while nothing large was allocated or
    freed."""
    trim, seen = _malloc_trim(), (0, 0)
    while True:
        await asyncio.sleep(_SECONDS)
        now = _resident(), pa.total_allocated_bytes()
        if any(abs(new - old) > _SLACK for new, old in zip(now, seen, strict=True)):
            await asyncio.to_thread(_release, trim)
            seen = _resident(), pa.total_allocated_bytes()


def _release(trim: Callable[[int], int] | None) -> None:
    pa.default_memory_pool().release_unused()
    if trim is not None:
        trim(0)


def _malloc_trim() -> Callable[[int], int] | None:
    """The C library's function, where it has one."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def _resident() -> int:
    """The bytes of this process that are in memory; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0
