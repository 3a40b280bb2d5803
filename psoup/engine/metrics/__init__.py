"""What an engine measures about itself, for monitoring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psoup.engine.ledger import Ledger

__all__ = ["EngineMetrics"]


class EngineMetrics:
    """Takes what happens in an engine. This one keeps nothing: there is no port for metrics."""

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Measure a stage of the loop."""
        yield

    def end_step(self, rows: int) -> None:
        """Note the rows of a step."""

    def retry(self) -> None:
        """Note that a step has failed and is tried again."""

    def end_round(self, ledger: Ledger) -> None:
        """Note the tables as they are after a round of the loop."""
