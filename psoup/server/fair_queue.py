"""Who is next of all that wait to compute: the tenant that was served least, within it the caller.

What a tenant was served is counted in units of work, and what it is being served in whole chunks,
so that many calls at once get it no more than one call does. The callers of a tenant go in steps:
of those that were served about as much the one that came first is finished first, because all of
them in a circle would be done all at the end. Who was away begins at what the others have by now.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, Protocol, TypeAlias, TypeVar

# The units of work (`querystem.pace`) between two looks at who is next: some ten milliseconds.
CHUNK = 10_000_000
# The callers of a tenant that are less apart than this go by the order they came in.
_STEP = 64 * CHUNK
_MOST_IDLE = 1024

Rank: TypeAlias = tuple[int, int]


@dataclass(eq=False, slots=True)
class Share:
    """Units that were served to one of several, and to those it consists of.

    `present` counts its turns that wait or run, `running` those that run, `begun` those that have
    done a chunk and go on. `floor` is the most that one of `inner` had when it was chosen; with
    `most` of these the idle ones are forgotten.
    """

    name: str = ""
    served: int = 0
    present: int = 0
    running: int = 0
    begun: int = 0
    floor: int = 0
    most: int = _MOST_IDLE
    inner: dict[str, Share] = field(default_factory=dict)

    @property
    def taken(self) -> int:
        return self.served + CHUNK * self.running

    def enter(self, name: str) -> Share:
        """One more turn of that name. Who was away is not owed what others had meanwhile."""
        share = self.inner.get(name)
        if share is None:
            self._forget_idle()
            share = self.inner[name] = Share(name)
        if not share.present:
            share.served = max(share.served, self.floor)
        share.present += 1
        return share

    def choose(self, share: Share) -> None:
        """That one of `inner` runs."""
        self.floor = max(self.floor, share.served)
        share.running += 1

    def _forget_idle(self) -> None:
        if len(self.inner) >= self.most:
            self.inner = {name: share for name, share in self.inner.items() if share.present}
            self.most = max(_MOST_IDLE, 2 * len(self.inner))


class Waiting(Protocol):
    """A turn in a queue. Its rank only rises; once it has `left` it is passed over."""

    tenant: Share
    left: bool

    @property
    def rank(self) -> Rank: ...


W = TypeVar("W", bound=Waiting)


def rank_of(caller: Share, ticket: int) -> Rank:
    """The rank of a turn among those of its tenant."""
    return caller.served // _STEP, ticket


class Queue(Generic[W]):
    """Turns that wait."""

    def __init__(self) -> None:
        self._order = count()
        self._waiting: dict[Share, list[tuple[Rank, int, W]]] = {}

    def push(self, turn: W) -> None:
        waiting = self._waiting.setdefault(turn.tenant, [])
        heapq.heappush(waiting, (turn.rank, next(self._order), turn))

    def head(self, rests: Callable[[Share], bool]) -> W | None:
        """The next one of tenants that do not rest, which stays; None where nobody waits."""
        while waiting := [share for share in self._waiting if not rests(share)]:
            tenant = min(waiting, key=lambda share: share.taken)
            found = self._first(self._waiting[tenant])
            if found is not None:
                return found
            del self._waiting[tenant]
        return None

    def pop(self, head: W) -> None:
        """Takes out what `head` has just given."""
        heapq.heappop(self._waiting[head.tenant])

    def _first(self, waiting: list[tuple[Rank, int, W]]) -> W | None:
        """One whose rank rose since it was put here is put to where it belongs now."""
        while waiting:
            rank, order, turn = waiting[0]
            if turn.left:
                heapq.heappop(waiting)
            elif turn.rank != rank:
                heapq.heapreplace(waiting, (turn.rank, order, turn))
            else:
                return turn
        return None


def pop_first(queues: Iterable[Queue[W]], rests: Callable[[Share], bool]) -> W | None:
    """Takes the next one of several queues out of its own."""
    heads = [(queue, head) for queue in queues if (head := queue.head(rests)) is not None]
    if not heads:
        return None
    queue, head = min(heads, key=lambda one: (one[1].tenant.taken, one[1].rank))
    queue.pop(head)
    return head
