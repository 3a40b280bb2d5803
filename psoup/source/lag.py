"""How far a source is behind: by how much at a moment, and for how long."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

# More ends than these are thinned out; the time is less exact then.
_MOST_ENDS = 1000


@dataclass(frozen=True, slots=True)
class Lag:
    """The newest place outside and the one of the mark, counted in `unit`, such as `messages`.

    `is_rows` says that a unit is a row. Outside a record is kept for `kept_seconds`, None if nobody
    knows. `retained_bytes` of log are kept there for the source, None if there is none.
    """

    unit: str
    mark: int
    end: int
    is_rows: bool = False
    kept_seconds: float | None = None
    retained_bytes: int | None = None

    @property
    def amount(self) -> int:
        return max(0, self.end - self.mark)

    def amounts(self) -> dict[str, int]:
        """Return the amounts by unit."""
        amounts = {self.unit: self.amount}
        if self.retained_bytes is not None:
            amounts["bytes of WAL kept"] = self.retained_bytes
        return amounts


class LagHistory:
    """When the ends that the mark has not reached yet were seen first.

    `ends` are instants and ends, both ascending, as `ends` of an earlier history returned them.
    """

    def __init__(self, ends: Iterable[tuple[float, int]] = ()) -> None:
        self._ends = deque(ends)
        # Since when the oldest unread record has been seen; None if all is read.
        self.since: float | None = None

    def ends(self, most: int) -> list[tuple[float, int]]:
        """Return at most about `most` instants and ends, of which the first one is exact."""
        return list(self._ends)[:: 1 + len(self._ends) // most]

    def look(self, lag: Lag, now: float) -> None:
        """Note a lag as it is at an instant."""
        if self._ends and lag.end < self._ends[-1][1]:
            # It is counted from another beginning, as files are after a restart.
            self._ends = deque((instant, min(end, lag.end)) for instant, end in self._ends)
        if not self._ends or lag.end > self._ends[-1][1]:
            self._ends.append((now, lag.end))
        while self._ends and self._ends[0][1] <= lag.mark:
            self._ends.popleft()
        if len(self._ends) > _MOST_ENDS:
            self._ends = deque(list(self._ends)[::2])
        self.since = self._ends[0][0] if self._ends else None

    def seconds(self, now: float) -> float:
        """Return for how long the oldest unread record has been seen at an instant."""
        return 0.0 if self.since is None else now - self.since
