"""The memory of joins: it is reserved before it is used, and bounded."""

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


def _ignore(used: int) -> None:
    """Do not report how many bytes are taken."""


@dataclass(slots=True)
class JoinRoom:
    """The room that the joins of one answer have together: `used` of `limit` bytes.

    `report` is called with the bytes in use whenever they change.
    """

    limit: int = sys.maxsize
    report: Callable[[int], None] = _ignore
    used: int = 0

    @property
    def remaining(self) -> int:
        return self.limit - self.used

    def take(self, nbytes: int) -> None:
        """Reserve more bytes; raise TooManyBytes if there is no room for them."""
        if nbytes > self.remaining:
            raise TooManyBytes(self.used + nbytes, self.limit)
        self.used += nbytes
        self.report(self.used)

    def give_back(self, nbytes: int) -> None:
        """Release bytes."""
        self.used -= nbytes
        self.report(self.used)
