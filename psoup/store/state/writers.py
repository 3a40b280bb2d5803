"""Writer marks: which process wrote which stretch of the log.

Each process that appends puts a random mark into its first commit. A store and its restored back-up
go on with different marks, so a position together with the newest mark at or before it names one
history. There is an entry for each start of a process, kept for ever.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator

# The mark of versions before the first writer.
NO_MARK = 0


class WriterMarks:
    """The marks by the versions of the log that brought them, ascending. Immutable: `add` returns a
    new object."""

    __slots__ = ("_marks", "_versions")

    def __init__(self, versions: Iterable[int] = (), marks: Iterable[int] = ()) -> None:
        self._versions = array("q", versions)
        self._marks = array("q", marks)

    def add(self, version: int, mark: int) -> WriterMarks:
        """Return these marks and the mark of a later version."""
        return WriterMarks([*self._versions, version], [*self._marks, mark])

    def at(self, version: int) -> int:
        """Return the newest mark at or before a version."""
        place = bisect_right(self._versions, version)
        return self._marks[place - 1] if place else NO_MARK

    def __len__(self) -> int:
        return len(self._versions)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over (version, mark)."""
        return zip(self._versions, self._marks, strict=True)

    def __eq__(self, value: object) -> bool:
        return isinstance(value, WriterMarks) and list(self) == list(value)


NO_WRITERS = WriterMarks()
