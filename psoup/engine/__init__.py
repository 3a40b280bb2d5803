"""The engine: queries and data joined symmetrically in Spark, step by step."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from psoup.engine.settings import EngineSettings

__all__ = ["run"]


def run(
    store: Path | str,
    *,
    spark: SparkSession,
    settings: EngineSettings | None = None,
    ending: threading.Event | None = None,
    standby: bool = False,
) -> None:
    """Run the engine of a store on a Spark session that exists, as in a notebook or on a platform.

    Return after `ending` is set, with the current round done; an interrupt (KeyboardInterrupt) ends
    the engine in order, too. The session stays open, and its settings stay as they are. With
    `standby`, wait first while the store has an engine.

    Executors need this package, and the store's folder at the same path
    (docs/how-to/spark-cluster.md). Raise UnsuitableSession if they lack something, SecondEngine if
    the store has an engine, EngineFailed if a step fails on every retry, and StoreError.
    """
    # Imported here: a worker, a server or a command that imports a module of this package does not
    # need all of it.
    from psoup.engine.spark.adopted import run_adopted

    run_adopted(Path(store), spark, settings, ending or threading.Event(), standby)
