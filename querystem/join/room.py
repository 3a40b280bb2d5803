"""The memory of joins: it is taken before it is used, and bounded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass


class TooManyBytes(Exception):
    """A join would take more memory than it may."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"the join takes {count:,} bytes, at most {limit:,} may be taken")
        self.count = count
        self.limit = limit


def _tell_nobody(used: int) -> None:
    """Tells nobody how many bytes are taken."""


@dataclass(slots=True)
class JoinRoom:
    """The room that the joins of one answer have together: `used` of `limit` bytes.

    `report` is told how many are taken whenever that changes.
    """

    limit: int = sys.maxsize
    report: Callable[[int], None] = _tell_nobody
    used: int = 0

    @property
    def left(self) -> int:
        return self.limit - self.used

    def take(self, nbytes: int) -> None:
        """Raise TooManyBytes where there is no room for so many more bytes."""
        if nbytes > self.left:
            raise TooManyBytes(self.used + nbytes, self.limit)
        self.used += nbytes
        self.report(self.used)

    def give_back(self, nbytes: int) -> None:
        """Take so many bytes less from here on."""
        self.used -= nbytes
        self.report(self.used)
