"""The windows of a stream: can any of them reach rows of some ts?

A window begins where it does relative to the NOW of its clock. It has no end here, because later
rows enter a window that ends before NOW. So the widest window of each clock decides, and the others
are counted only to find the next one when it ends. Windows are widened by up to a sixteenth, so
that few are different.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

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


class Windows:
    """The windows of one stream by clock, each counted as often as predicates have it."""

    def __init__(self) -> None:
        # By clock: how many windows reach how far behind its NOW.
        self._counts: defaultdict[int, Counter[int]] = defaultdict(Counter)

    def add(self, clock: int, behind: int, count: int) -> None:
        """Add `count` windows that reach `behind` microseconds behind the NOW of a clock."""
        self._counts[clock][behind] += count

    def remove(self, clock: int, behind: int, count: int) -> None:
        """Remove windows that `add` counted."""
        counts = self._counts[clock]
        counts[behind] -= count
        if not counts[behind]:
            del counts[behind]
            if not counts:
                del self._counts[clock]

    def can_reach(self, high: int, now_of: NowOf) -> bool:
        """Return True if a window can hold rows with a ts up to `high`, at the NOW of its clock or
        later. A clock that has no NOW yet may reach anything."""
        return any(
            (now := now_of(clock)) is None or _reaches(max(counts), high - now)
            for clock, counts in self._counts.items()
        )

    def _check(self) -> None:
        assert all(counts and min(counts.values()) > 0 for counts in self._counts.values())


def _reaches(behind: int, high: int) -> bool:
    return behind == EVERYTHING or high >= -behind
