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
    commits: int = 1

    def joined(self, later: _Mark) -> _Mark:
        nbytes, commits = self.nbytes + later.nbytes, self.commits + later.commits
        return _Mark(later.version, self.stamp, nbytes, commits)


class Backlog:
    """A few thousand marks at most, so that an engine may be away for long.

    Where there would be more, a mark is of several commits, of as many in each but the last, and
    counts until the engine has consumed them all.
    """

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()
        self._commits_per_mark = 1
        self.nbytes = 0

    @property
    def oldest(self) -> int | None:
        """The stamp of the first commit that is not consumed."""
        return self._marks[0].stamp if self._marks else None

    def append(self, version: int, stamp: int, nbytes: int) -> None:
        """Takes the next commit, whose file has so many bytes."""
        mark = _Mark(version, stamp, nbytes)
        self.nbytes += nbytes
        if self._marks and self._marks[-1].commits < self._commits_per_mark:
            mark = self._marks.pop().joined(mark)
        self._marks.append(mark)
        if len(self._marks) > _MOST_MARKS:
            self._halve()

    def consume(self, version: int) -> None:
        """Forgets the commits up to a version."""
        while self._marks and self._marks[0].version <= version:
            self.nbytes -= self._marks.popleft().nbytes
        if not self._marks:
            self._commits_per_mark = 1

    def _halve(self) -> None:
        marks = list(self._marks)
        pairs = zip(marks[::2], marks[1::2], strict=False)
        self._marks = deque(first.joined(second) for first, second in pairs)
        self._marks.extend(marks[len(marks) & ~1 :])
        self._commits_per_mark *= 2
