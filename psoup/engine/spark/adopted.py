"""The engine on a session that exists: what it needs of the session and of its executors.

The engine takes a session of its own from the given one, over the same executors. So it can set
what may be set in a running session, and the caller's settings stay as they are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from psoup.engine.engine import Engine
from psoup.engine.errors import UnsuitableSession
from psoup.engine.ownership.lock import EngineLock
from psoup.engine.ownership.standby import stand_by
from psoup.engine.settings import EngineSettings
from psoup.service_manager import ServiceManager
from psoup.store import Store

log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.2

# Set in the engine's own session.
_RUNTIME_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "parquet.page.verify-checksum.enabled": "true",
}
# Can be set only before Spark starts: setting, value, and what happens without it.
_ADVISED_SETTINGS = (
    (
        "spark.python.daemon.module",
        "psoup.engine.daemon",
        "each new Python worker takes half a second to import the engine's modules",
    ),
    ("spark.scheduler.mode", "FAIR", "steps wait while a large join runs"),
)


def run_adopted(
    root: Path,
    spark: SparkSession,
    settings: EngineSettings | None,
    ending: threading.Event,
    standby: bool,
) -> None:
    """Run the engine until `ending` is set; see `psoup.engine.run`."""
    store = Store.open(root, create=True)
    lock = EngineLock(store.root)
    if not standby:
        lock.acquire()
    try:
        session = adopt(spark, store)
        if standby:
            free_store = stand_by(store.root, lock, ending)
            if free_store is None:
                return
            store = free_store
        serve(Engine(store, session, settings, lock), ending)
    finally:
        lock.release()


def serve(engine: Engine, ending: threading.Event, manager: ServiceManager | None = None) -> None:
    """Run an engine until `ending` is set; raise what stops it."""
    manager = manager or ServiceManager()
    engine.start()
    try:
        print("engine ready", flush=True)
        manager.ready()
        moves = 0
        while not ending.wait(_CHECK_SECONDS):
            engine.check()
            # This thread lives on if a step hangs; the loop's moves do not.
            if engine.moves != moves:
                moves = engine.moves
                manager.beat()
        manager.stopping()
    finally:
        engine.stop()
    log.info("engine stopped")


def adopt(spark: SparkSession, store: Store) -> SparkSession:
    """Return the engine's own session over the executors of a session.

    Raise UnsuitableSession if it has no RDDs, or if an executor lacks the package or the store.
    """
    try:
        context = spark.sparkContext
    except (AttributeError, PySparkException) as error:
        raise UnsuitableSession(
            "the engine runs RDD jobs, which this session does not have: it is one of Spark "
            "Connect. Use a session of the driver itself"
        ) from error
    for name, value, otherwise in _ADVISED_SETTINGS:
        if context.getConf().get(name) != value:
            log.warning("start Spark with %s=%s: without it, %s", name, value, otherwise)
    _check_executors(spark, store)
    session = spark.newSession()
    for name, value in _RUNTIME_SETTINGS.items():
        session.conf.set(name, value)
    return session


def _check_executors(spark: SparkSession, store: Store) -> None:
    """Raise UnsuitableSession if a task on one of the cores lacks what the engine's tasks need."""
    root, store_id = str(store.root), store.id

    # Sent as code, since it must also run on an executor that lacks the package. For the same
    # reason it uses no name of this module.
    def lacks(_: Iterable[int]) -> list[str]:
        import os
        import socket

        host = socket.gethostname()
        try:
            from psoup.engine.steps import worker  # noqa: F401
            from psoup.store.format import read_identity
        except ImportError as error:
            return [f"the executor on {host} can't import psoup[engine]: {error}"]
        try:
            from pathlib import Path

            identity = read_identity(Path(root))["store"]
        except Exception as error:
            return [f"the executor on {host} can't read the store at {root}: {error}"]
        if identity != store_id:
            return [f"the executor on {host} has another store at {root}"]
        if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
            return [f"the executor on {host} may not write to {root}"]
        return []

    context = spark.sparkContext
    tasks = context.defaultParallelism
    problems = context.parallelize(range(tasks), tasks).mapPartitions(lacks).collect()
    if problems:
        raise UnsuitableSession("; ".join(sorted(set(problems))))
