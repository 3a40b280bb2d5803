"""Housekeeping: chores that keep the number of files and the disk space bounded. At most one
follows a step.

Each chore has one method, `advance(ledger) -> bool`: it does a bounded amount of work, publishes an
epoch if one is needed, and returns whether there was any work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from pyspark.sql import SparkSession

from psoup.engine.ledger import Ledger
from psoup.engine.maintain.cut import CutMatches
from psoup.engine.maintain.discard import Checkpoint, Trim, Vacuum
from psoup.engine.maintain.erase import EraseFromFiles
from psoup.engine.maintain.heartbeats import ThinHeartbeats
from psoup.engine.maintain.merge import Compact, Merge
from psoup.engine.maintain.retain import Retain, Thin
from psoup.engine.maintain.scrub import Scrub
from psoup.engine.maintain.wipe import Wipe
from psoup.engine.settings import EngineSettings

__all__ = ["Chore", "Maintenance"]


class Chore(Protocol):
    """Work that is done in bounded pieces."""

    def advance(self, ledger: Ledger) -> bool:
        """Do the next piece; return False if there was nothing to do."""


class Maintenance:
    """All chores of housekeeping, in turns."""

    def __init__(
        self,
        spark: SparkSession,
        settings: EngineSettings,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_busy` must return True while a job beside the loop may bring files."""
        self._chores: deque[Chore] = deque(
            [
                Trim(settings),
                Retain(settings),
                Thin(spark, settings),
                EraseFromFiles(spark, settings, is_busy),
                CutMatches(spark, settings),
                Merge(spark, settings),
                Compact(settings),
                ThinHeartbeats(settings),
                Checkpoint(settings),
                Scrub(settings),
                Vacuum(settings),
                Wipe(settings),
            ]
        )

    def advance(self, ledger: Ledger) -> bool:
        """Advance the next chore that has work; return False if none has.

        Chores take turns: one that always has work does not block the others.
        """
        for _ in range(len(self._chores)):
            self._chores.rotate(-1)
            if self._chores[-1].advance(ledger):
                return True
        return False
