"""What a store has acknowledged, in its order: the rows every answer is held against."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from psoup.store import Position
from tests.oracle.strategies import Row


@dataclass(frozen=True)
class Batch:
    """Rows with `ts`, in microseconds, and `row_id`, or none and the instant of a heartbeat."""

    position: Position
    rows: tuple[Row, ...]
    reached: datetime | None


@dataclass
class Accepted:
    """The batches of one stream, by position."""

    batches: list[Batch] = field(default_factory=list)

    @property
    def high(self) -> int:
        """The next row id."""
        return sum(len(batch.rows) for batch in self.batches)

    @property
    def every(self) -> list[Row]:
        """All that is known."""
        return [row for batch in self.batches for row in batch.rows]

    def add(self, batch: Batch) -> None:
        """Positions ascend."""
        assert not self.batches or self.batches[-1].position < batch.position
        self.batches.append(batch)

    def rows(self, position: Position) -> list[Row]:
        """Return all that was accepted up to and including a position."""
        return [row for batch in self._until(position) for row in batch.rows]

    def reached(self, position: Position) -> datetime | None:
        """NOW of an event-time stream at a position."""
        instants = [batch.reached for batch in self._until(position) if batch.reached]
        return max(instants, default=None)

    def _until(self, position: Position) -> list[Batch]:
        return [batch for batch in self.batches if batch.position <= position]
