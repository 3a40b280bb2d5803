"""Housekeeping: what keeps the steady state steady. At most one piece of it follows a step.

Each chore is an object with one verb, `advance(ledger) -> bool`: it does a bounded piece of work,
publishes an epoch of it where one is needed, and says whether there was any.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from pyspark.sql import SparkSession

from psoup.engine.ledger import Ledger
from psoup.engine.maintain.cut import CutMatches
from psoup.engine.maintain.discard import Checkpoint, Trim, Vacuum
from psoup.engine.maintain.heartbeats import ThinHeartbeats
from psoup.engine.maintain.merge import Compact, Merge
from psoup.engine.maintain.retain import Retain, Thin
from psoup.engine.maintain.scrub import Scrub
from psoup.engine.settings import EngineSettings

__all__ = ["Chore", "Maintenance"]


class Chore(Protocol):
    def advance(self, ledger: Ledger) -> bool: ...


class Maintenance:
    def __init__(self, spark: SparkSession, settings: EngineSettings) -> None:
        self._chores: deque[Chore] = deque(
            [
                Trim(settings),
                Retain(settings),
                Thin(spark, settings),
                CutMatches(spark, settings),
                Merge(spark, settings),
                Compact(settings),
                ThinHeartbeats(settings),
                Checkpoint(settings),
                Scrub(settings),
                Vacuum(settings),
            ]
        )

    def advance(self, ledger: Ledger) -> bool:
        """Lets the next chore that has something to do advance; False where none has.

        Chores take turns: one that always has something to do holds up none of the others.
        """
        for _ in range(len(self._chores)):
            self._chores.rotate(-1)
            if self._chores[-1].advance(ledger):
                return True
        return False
