"""The limits of the joins of one answer: pairs of rows that are compared, and memory.

The memory of running joins is part of a server's budget: cached rows that can be read again from
files are evicted for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from datastem.memory import Memory
from psoup.errors import TooMuchWork
from querystem.join import JoinRoom, TooManyBytes, TooManyPairs


@dataclass(frozen=True, slots=True)
class JoinLimits:
    """The pairs of rows that one answer may compare, and the bytes that its joins may take, which
    count in `memory` while they run."""

    pairs: int = 20_000_000
    nbytes: int = 128 << 20
    memory: Memory | None = None

    @contextmanager
    def joining(self) -> Iterator[JoinRoom]:
        """Open room for the joins of one answer. In the block, TooMuchWork is raised past the
        limits."""
        running = _RunningJoins(self.memory)
        try:
            yield JoinRoom(self.nbytes, running.count)
        except TooManyPairs as many:
            raise _too_many_pairs(many) from None
        except TooManyBytes as many:
            raise _too_many_bytes(many) from None
        finally:
            running.end()


class _RunningJoins:
    """The joins of one answer, as an owner of memory that is pinned until they end."""

    def __init__(self, memory: Memory | None) -> None:
        self._memory = memory

    def count(self, nbytes: int) -> None:
        if self._memory is not None:
            self._memory.hold((self, 0), nbytes, pinned=True)
            self._memory.shrink()

    def end(self) -> None:
        if self._memory is not None:
            self._memory.drop((self, 0))

    def evict(self, number: int) -> None:
        """Do nothing: running joins are pinned."""


_HINT = "narrow a window, or add a condition that relates the streams"


def _too_many_pairs(many: TooManyPairs) -> TooMuchWork:
    return TooMuchWork(
        f"this join looks at {many.count:,} pairs of rows, and one answer may look at "
        f"{many.limit:,}",
        expected=f"at most {many.limit} pairs",
        got=f"{many.count} pairs",
        hint=_HINT,
    )


def _too_many_bytes(many: TooManyBytes) -> TooMuchWork:
    return TooMuchWork(
        f"this join takes {many.count:,} bytes of memory, and one answer may take {many.limit:,}",
        expected=f"at most {many.limit} bytes",
        got=f"{many.count} bytes",
        hint=_HINT,
    )
