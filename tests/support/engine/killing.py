"""An engine that dies between any two commits, and the next one that takes over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from psoup.engine.settings import EngineSettings
from psoup.store import Store
from psoup.store.delta import commits as delta_commits
from psoup.store.delta import durable
from tests.support.engine.pump import Pump


class Killed(BaseException):
    pass


class Killer:
    """Lets `commits` commits pass and dies before the next, whose files are written by then."""

    def __init__(self, commits: int) -> None:
        self.left = commits

    def __call__(self, target: Path, content: bytes, **how: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed
        durable.put_if_absent(target, content, **how)


class MortalEngine:
    """Pieces of an engine's work, in any order. Each may be the last of its engine; the next one
    knows what the newest epoch says."""

    def __init__(
        self, store: Store, spark: SparkSession, settings: EngineSettings, dice: Random
    ) -> None:
        self._make = lambda: Pump(store, spark, settings)
        self._dice = dice
        self.pump = self._make()
        self.deaths = 0

    def work(self) -> str:
        """Do a random piece of work, and return its name."""
        pump, dice = self.pump, self._dice
        named: dict[str, Callable[[], object]] = {
            "step": pump.step,
            "slice": lambda: (
                pump.backfill.advance(pump.ledger) or pump.growing.advance(pump.ledger)
            ),
            "chore": lambda: pump.maintenance.advance(pump.ledger),
            "round": pump.round,
            "all": pump.run,
        }
        name = dice.choices([*named], [4, 6, 3, 3, 1])[0]
        if dice.random() < 0.7:
            named[name]()
            return name
        killer = Killer(dice.randrange(8))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(delta_commits, "put_if_absent", killer)
            try:
                named[name]()
            except Killed:
                self.deaths += 1
                name = f"killed in {name}"
        self.pump = self._make()
        return name
