"""What of the log the engine has not consumed: how much, and since when."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_MOST_MARKS = 4096


@dataclass(frozen=True, slots=True)
class _Mark:
    """Some commits next to each other: the last one's version, the first one's stamp, all bytes."""

    version: int
    stamp: int
    nbytes: int


class Backlog:
    """A few thousand marks at most, so that an engine may be away for long.

    Then a mark is of several commits, and counts until the engine has consumed them all.
    """

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()
        self.nbytes = 0

    @property
    def oldest(self) -> int | None:
        """The stamp of the first commit that is not consumed."""
        return self._marks[0].stamp if self._marks else None

    def append(self, version: int, stamp: int, nbytes: int) -> None:
        """Takes the next commit, whose file has so many bytes."""
        self._marks.append(_Mark(version, stamp, nbytes))
        self.nbytes += nbytes
        if len(self._marks) > _MOST_MARKS:
            marks = list(self._marks)
            pairs = zip(marks[::2], marks[1::2], strict=False)
            self._marks = deque(_Mark(b.version, a.stamp, a.nbytes + b.nbytes) for a, b in pairs)
            self._marks.extend(marks[len(marks) & ~1 :])

    def consume(self, version: int) -> None:
        """Forgets the commits up to a version."""
        while self._marks and self._marks[0].version <= version:
            self.nbytes -= self._marks.popleft().nbytes
