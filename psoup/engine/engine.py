"""The engine: one streaming query over the log, whose batches are steps.

After each step comes at most one slice of back-fill and one piece of housekeeping, so fresh rows
never wait for more. Spark's checkpoint lives in a scratch folder and is thrown away: where to go
on is what the last epoch says.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from psoup.engine import source
from psoup.engine.alarm import Alarm
from psoup.engine.backfill import Backfill
from psoup.engine.errors import EngineFailed, SecondEngine
from psoup.engine.ledger import Ledger
from psoup.engine.lock import EngineLock
from psoup.engine.maintain import Maintenance
from psoup.engine.recover import open_ledger
from psoup.engine.scratch import make_scratch
from psoup.engine.settings import EngineSettings
from psoup.engine.step import take_step
from psoup.store.position import Position
from psoup.store.store import Store

log = logging.getLogger(__name__)

_RETRY_AFTER = 0.5


class Engine:
    """`start`, then `stop`; in between a failure shows in `check` and in every wait.

    Thread safety: steps run in a thread of Spark's; the methods here may be called from any other.
    """

    def __init__(
        self,
        store: Store,
        spark: SparkSession,
        settings: EngineSettings | None = None,
        lock: EngineLock | None = None,
    ) -> None:
        self._store = store
        self._spark = spark
        self._settings = settings or EngineSettings()
        self._lock = lock or EngineLock(store.root)
        self._changed = threading.Condition()
        self._started = False
        self._running = False
        self._stopping = False
        self._idle = False
        self._failure: BaseException | None = None
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        """Returns when the first batch has come; the lock is taken if it isn't held yet.

        Raises SecondEngine where the store has an engine.
        """
        self._lock.acquire()
        try:
            self._ledger: Ledger = open_ledger(self._store)
            self._backfill = Backfill(self._spark, self._settings)
            self._maintenance = Maintenance(self._spark, self._settings)
            self._scratch = make_scratch(self._store.id)
            self._alarm = Alarm(self._scratch / "alarm")
            self._alarm.set(1, 0.0)
            self._start_query()
        except BaseException:
            self._lock.release()
            raise

    def stop(self) -> None:
        """Lets the step under way end. Nothing is lost by not calling it."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._running)
        if self._query is not None:
            self._query.stop()
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._lock.release()

    def check(self) -> None:
        """Raises what stopped the engine, if something did."""
        if self._failure is not None:
            raise self._failure
        if self._query is not None and not self._query.isActive and not self._stopping:
            raise EngineFailed(f"the streaming query ended: {self._query.exception()}")

    def wait_for(self, position: Position, timeout: float = 60.0) -> None:
        """Until an epoch holds everything up to `position`. Raises TimeoutError."""
        self._wait(lambda: self._ledger.epoch.position >= position, timeout)

    def wait_idle(self, timeout: float = 60.0) -> None:
        """Until the log is consumed, back-fill is done and no housekeeping is due."""
        self._wait(lambda: self._idle and self._consumed(), timeout)

    def _consumed(self) -> bool:
        version = self._ledger.epoch.log_version
        return self._store.log.latest_version(version) == version

    def _wait(self, ready: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while not ready():
                self.check()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the engine did not get there in {timeout} s")
                self._changed.wait(0.1)

    def _start_query(self) -> None:
        """Spark gives the source's process 10 s to come up, which a busy machine may exceed."""
        self._spark.dataSource.register(source.LogSource)
        for attempt in range(self._settings.retries + 1):
            self._checkpoint = self._scratch / f"checkpoint-{attempt}"
            query = self._query = self._new_query()
            with self._changed:
                while query.isActive and not self._started:
                    self._changed.wait(0.05)
            if self._started:
                return
            log.warning("Spark could not start the streaming query; trying again")
        raise EngineFailed(f"the streaming query does not start: {query.exception()}")

    def _new_query(self) -> StreamingQuery:
        options = source.options(
            self._store.log.folder.root,
            self._scratch / "alarm",
            self._ledger.epoch.log_version,
            self._spark.sparkContext.defaultParallelism,
            self._settings,
        )
        stream = self._spark.readStream.format(source.NAME).options(**options).load()
        return (
            stream.writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime="0 seconds")
            .start()
        )

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        with self._changed:
            if self._stopping:
                return
            self._started = self._running = True
            self._idle = False
            self._changed.notify_all()
        try:
            idle = self._advance(frame, batch_id)
        except BaseException as error:
            self._failure = error
            raise
        else:
            self._idle = idle
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()

    def _advance(self, frame: DataFrame, batch_id: int) -> bool:
        """One step, slice and chore; tried again from the last epoch where something fails."""
        offset = self._offset(batch_id)
        for attempt in range(self._settings.retries + 1):
            try:
                return self._try(frame, offset["version"], offset["tick"])
            except SecondEngine:
                raise
            except Exception as error:
                if attempt == self._settings.retries:
                    raise EngineFailed(
                        f"a step failed {attempt + 1} times, the last time with: {error}"
                    ) from error
                log.exception("a step failed; going back to the last epoch to try again")
                time.sleep(_RETRY_AFTER * attempt)
                self._ledger = open_ledger(self._store)
        raise AssertionError("unreachable")

    def _try(self, frame: DataFrame, version: int, tick: int) -> bool:
        ledger = self._ledger
        if version > ledger.epoch.log_version:
            take_step(ledger, frame, version)
            with self._changed:
                self._changed.notify_all()
        busy = self._backfill.advance(ledger)
        busy |= self._maintenance.advance(ledger)
        self._alarm.set(tick + 1, 0.0 if busy else self._settings.housekeeping)
        return not busy

    def _offset(self, batch_id: int) -> dict[str, int]:
        """Where this batch ends, from Spark's own write-ahead log."""
        content = (self._checkpoint / "offsets" / str(batch_id)).read_text()
        offset: dict[str, int] = json.loads(content.splitlines()[-1])
        return offset
