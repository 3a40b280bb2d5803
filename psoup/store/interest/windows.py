"""The windows of a stream as intervals of ts, in a tree: which of them can reach rows of some ts?

There is one interval for each different window, however many predicates have it. It begins where
the window does, relative to the NOW of the window's clock. It has no end, because later rows enter
a window that ends before NOW. Windows are widened by up to a sixteenth, so that few are different.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from intervaltree import IntervalTree

from datastem.instants import FOR_EVER, HOUR, SINCE_EVER

# The number of significant bits of widened windows.
_SIGNIFICANT_BITS = 5
# The clock of windows that begin at an instant: its NOW is 0.
FIXED = -1
# The reach of a window without a begin.
EVERYTHING = FOR_EVER

NowOf = Callable[[int], int | None]


def widened(behind: int) -> int:
    """Return a number of microseconds that is at least `behind`, and at most a sixteenth more."""
    # Rounded up to a multiple of 2^low, which leaves the significant bits.
    low = max(0, behind.bit_length() - _SIGNIFICANT_BITS)
    return -(-behind >> low) << low


def widened_since(since: int) -> int:
    """Return an instant that is at most `since`, and at most an hour less."""
    return max(since // HOUR * HOUR, SINCE_EVER + 1)


class WindowTree:
    """The windows of one stream by clock, each counted as often as predicates have it."""

    def __init__(self) -> None:
        self._trees: dict[int, IntervalTree] = {}
        self._counts: Counter[tuple[int, int]] = Counter()

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, clock: int, behind: int, count: int) -> None:
        """Add `count` windows that reach `behind` microseconds behind the NOW of a clock."""
        if (clock, behind) not in self._counts:
            self._trees.setdefault(clock, IntervalTree()).addi(*_interval(behind))
        self._counts[clock, behind] += count

    def remove(self, clock: int, behind: int, count: int) -> None:
        """Remove windows that `add` counted."""
        self._counts[clock, behind] -= count
        if not self._counts[clock, behind]:
            del self._counts[clock, behind]
            self._trees[clock].removei(*_interval(behind))

    def can_reach(self, low: int, high: int, now_of: NowOf) -> bool:
        """Return True if a window can hold rows with a ts in `[low, high]`, at the NOW of its clock
        or later. A clock that has no NOW yet may reach anything."""
        return any(
            bool(tree) and ((now := now_of(clock)) is None or _stabbed(tree, low - now, high - now))
            for clock, tree in self._trees.items()
        )

    def _check(self) -> None:
        assert all(count > 0 for count in self._counts.values())
        assert sum(len(tree) for tree in self._trees.values()) == len(self._counts)


def _interval(behind: int) -> tuple[int, int]:
    return (SINCE_EVER if behind == EVERYTHING else -behind), FOR_EVER


def _stabbed(tree: IntervalTree, low: int, high: int) -> bool:
    return bool(tree.overlaps(max(low, SINCE_EVER), min(high + 1, FOR_EVER)))
