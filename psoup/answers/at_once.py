"""Work that is quick enough for the event loop: it reads no files, and ends if it takes long after
all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from datastem.stem_view import NotInMemory
from psoup.answers.matching.matcher import Work
from psoup.errors import TooMuchWork
from querystem.pace import paced

T = TypeVar("T")

# The rows that may be computed, and the units (`querystem.pace`) that may be spent: less than what
# a thread costs, as a rule.
MAX_ROWS, _MAX_UNITS = 4096, 1_000_000


class _TooSlow(Exception):
    pass


class AtOnce:
    """A try to do something at once. `units` are those that were spent on it."""

    def __init__(self) -> None:
        self.units = 0

    def work(self, bound: bool) -> Work:
        """Return the budget of an answer that is computed at once."""
        return Work(MAX_ROWS, bound=bound, reads_files=False)

    def run(self, work: Callable[[], T]) -> T | None:
        """Return what the work gives; None if it would read a file, or take too long."""
        try:
            with paced(self._spend):
                return work()
        except (NotInMemory, TooMuchWork, _TooSlow):
            return None

    def _spend(self, units: int) -> None:
        self.units += units
        if self.units > _MAX_UNITS:
            raise _TooSlow
