"""The engine: a loop over the log, one step per round.

After each step comes at most one slice of back-fill and one chore of housekeeping, so new rows
never wait for more. The last epoch says where to continue; the engine has no other durable state.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyspark.sql import SparkSession

from psoup.engine.composites.growing import Growing
from psoup.engine.errors import EngineFailed, SecondEngine
from psoup.engine.ledger import Ledger
from psoup.engine.maintain import Chore, Maintenance
from psoup.engine.matching.backfill import Backfill
from psoup.engine.metrics import EngineMetrics
from psoup.engine.ownership.lock import EngineLock
from psoup.engine.repair.mend import mend
from psoup.engine.repair.quarantine import set_aside, suspects
from psoup.engine.repair.reclosing import Reclosing
from psoup.engine.repair.recover import open_ledger
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.keep_alive import KeepAlive
from psoup.engine.steps.step import StepMemory, next_stretch, take_step, untimed
from psoup.store.delta.arrivals import Arrivals
from psoup.store.delta.reading import DataFileGone
from psoup.store.epochs import StreamMark
from psoup.store.errors import CorruptStore
from psoup.store.log.position import Position
from psoup.store.store import Store
from psoup.tracing import Tracing

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5
# How often an idle engine looks thoroughly: for commits beyond the next one, and whether another
# engine has taken over.
_LOOK_SECONDS = 1.0


class Engine:
    """The loop over the log, in a separate thread. `check`, and every wait between `start` and
    `stop`, raises the error that stopped it.

    Thread safety: the methods here may be called from any thread.
    """

    def __init__(
        self,
        store: Store,
        spark: SparkSession,
        settings: EngineSettings | None = None,
        lock: EngineLock | None = None,
        metrics: EngineMetrics | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._metrics = metrics or EngineMetrics()
        self._store = store
        self._spark = spark
        self._settings = settings or EngineSettings()
        self._lock = lock or EngineLock(store.root)
        self._memory = StepMemory()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._arrivals: Arrivals | None = None
        self._idle = False
        # Counts what the loop does, so that others see that it does not hang.
        self.moves = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)

    def start(self) -> None:
        """Start the loop, and take the lock if it isn't held yet. Raise SecondEngine if the store
        has an engine."""
        self._lock.acquire()
        try:
            self._ledger: Ledger = open_ledger(self._store)
            self._backfill = Backfill(self._spark, self._settings)
            self._growing = Growing(self._spark, self._settings)
            self._reclosing = Reclosing(self._spark, self._settings)
            self._slices: deque[Chore] = deque([self._backfill, self._growing, self._reclosing])
            self._maintenance = Maintenance(self._spark, self._settings, self._has_jobs)
            self._keep_alive = KeepAlive(self._spark, self._settings)
            self._arrivals = Arrivals.open([self._store.log.folder.log])
            self._thread.start()
        except BaseException:
            # A caller does not `stop` an engine whose `start` has failed.
            self._lock.release()
            raise

    def stop(self) -> None:
        """Let the current round end, then stop. A process may also just end: nothing is lost."""
        self._stopping.set()
        if self._arrivals is not None:
            self._arrivals.wake()
        if self._thread.ident is not None:
            self._thread.join()
        if self._arrivals is not None:
            self._arrivals.close()
            self._arrivals = None
        self._lock.release()

    def check(self) -> None:
        """Raise the error that stopped the engine, if any."""
        if self._failure is not None:
            raise self._failure

    def wait_for(self, position: Position, timeout: float = 60.0) -> None:
        """Wait until an epoch holds everything up to `position`. Raise TimeoutError."""
        self._wait(lambda: self._ledger.epoch.position >= position, timeout)

    def wait_idle(self, timeout: float = 60.0) -> None:
        """Wait until the log is consumed, back-fill is done and no housekeeping is due."""
        self._wait(lambda: self._idle and not self._has_new_commits(), timeout)

    def _wait(self, ready: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while not ready():
                self.check()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the engine was not done after {timeout} s")
                # New commits of the log notify no thread, so `ready` is checked at intervals.
                self._changed.wait(0.1)

    def _set_idle(self, idle: bool) -> None:
        self.moves += 1
        with self._changed:
            self._idle = idle
            self._changed.notify_all()

    def _loop(self) -> None:
        try:
            while not self._stopping.is_set():
                self._set_idle(idle=False)
                busy = self._round()
                wait = None if busy else self._idle_in()
                self._set_idle(idle=not busy and wait is None)
                if not busy:
                    self._pause(wait)
        except BaseException as error:
            # The failure is set before the waiting threads are woken, so that they find it.
            self._failure = error
            self._set_idle(idle=False)
        finally:
            self._growing.stop()
            self._reclosing.stop()

    def _has_jobs(self) -> bool:
        """Return True if Spark joins rows or derives closures beside the loop."""
        waits = self._growing.idle_in, self._reclosing.idle_in(self._ledger)
        return any(wait is not None for wait in waits)

    def _idle_in(self) -> float | None:
        """Return the seconds until there is work without an event of the log; None if there is
        none. Back-fill of unreached rows may wait until a stream is idle, and Spark may join rows
        or derive closures beside the loop."""
        waits = (
            self._backfill.idle_in(self._ledger),
            self._growing.idle_in,
            self._reclosing.idle_in(self._ledger),
        )
        return min((wait for wait in waits if wait is not None), default=None)

    def _pause(self, wait: float | None) -> None:
        """Wait until the log has new commits, or housekeeping or an empty job is due, or `wait`
        seconds have passed, after which there may be other work."""
        pause = self._settings.housekeeping if wait is None else wait
        pause = min(pause, self._settings.housekeeping, self._keep_alive.due_in())
        # Even if something is always due, threads in `wait_idle` need a moment to see it idle.
        pause = max(pause, self._settings.poll)
        now = time.monotonic()
        deadline, next_look = now + pause, now
        next_version = self._ledger.epoch.log_version + 1
        while now < deadline and not self._stopping.is_set():
            if now >= next_look:
                self.moves += 1
                # An idle engine makes no commits that could conflict.
                self._ledger.fence.check()
                if self._has_new_commits():
                    return
                next_look = now + _LOOK_SECONDS
            elif self._store.log.folder.has_commit(next_version):
                return
            self._wait_for_arrival(min(deadline, next_look) - now)
            now = time.monotonic()

    def _wait_for_arrival(self, seconds: float) -> None:
        """Wait until there may be a new commit, or this engine is stopping."""
        if self._arrivals is not None:
            self._arrivals.wait(seconds)
        else:
            self._stopping.wait(min(seconds, self._settings.poll))

    def _has_new_commits(self) -> bool:
        version = self._ledger.epoch.log_version
        return self._store.log.latest_version(version) > version

    def _round(self) -> bool:
        """Do one round; return False if there was nothing to do.

        After a failure, try again from the last epoch: as often as the settings say, after each
        repair of a damaged file, and after each quarantine of a predicate or composite. Raise
        EngineFailed if that does not help.
        """
        attempt = 0
        while True:
            try:
                return self._run_once()
            except Exception as error:
                # A conflict alone is no end: a slow engine that was taken over from may make some.
                if isinstance(error, SecondEngine) and not self._ledger.fence.is_open:
                    raise
                # Repairs and quarantine are not counted as attempts: each of them is progress.
                if isinstance(error, CorruptStore | DataFileGone) and error.file:
                    # `mend` needs a ledger at its epoch; the failed round may have changed it.
                    self._reopen()
                    mend(self._ledger, error.file)
                    continue
                if entries := suspects(self._spark, error, attempt):
                    reached = self._ledger.state
                    self._reopen()
                    set_aside(self._ledger, entries, reached)
                    continue
                if attempt == self._settings.retries:
                    raise EngineFailed(
                        f"a step failed {attempt + 1} times, the last time with: {error}"
                    ) from error
                log.exception("a step failed; going back to the last epoch to try again")
                self._metrics.retry()
                # The first retry is immediate. A stop of the engine ends the wait.
                self._stopping.wait(_RETRY_SECONDS * attempt)
                self._reopen()
                attempt += 1

    def _reopen(self) -> None:
        """Go back to the last epoch. Raise SecondEngine if it is another engine's: undoing
        unfinished commits would undo the other's."""
        self._ledger.fence.check()
        self._ledger = open_ledger(self._store)

    def _run_once(self) -> bool:
        """Do one step, one slice of back-fill or of a composite, and one chore; return False if
        there was neither a slice nor a chore to do."""
        ledger = self._ledger
        limits = self._memory.costs.limits(
            self._settings, self._spark.sparkContext.defaultParallelism
        )
        stretch = next_stretch(self._store.log.folder, ledger.epoch.log_version, limits)
        before = ledger.epoch.log_version
        if stretch.end > before:
            marks = ledger.epoch.streams
            with self._metrics.timed("step"), self._traced() as span:
                stage = untimed if self._tracing is None else self._tracing.stages(span)
                take_step(ledger, self._spark, stretch, self._settings, self._memory, stage)
                rows = _new_rows(marks, ledger.epoch.streams)
                if span is not None:
                    commits = stretch.end - before
                    span.set_attributes(
                        {
                            "psoup.epoch": ledger.epoch.number,
                            "psoup.rows": rows,
                            "psoup.commits": commits,
                            "psoup.streams": len(ledger.state.streams),
                        }
                    )
            self._metrics.end_step(rows)
            # Wake the threads that wait for the position of this step.
            self._set_idle(idle=False)
        self._keep_alive.advance(ledger)
        with self._metrics.timed("slice"):
            busy = self._slice(ledger)
        with self._metrics.timed("housekeeping"):
            # Whether or not there was a slice: it must also run while slices keep coming.
            had_chore = self._maintenance.advance(ledger)
        self._metrics.end_round(ledger)
        return had_chore or busy

    def _traced(self) -> AbstractContextManager[Any]:
        """Return the trace of a step; one that does nothing if none are sent."""
        return nullcontext() if self._tracing is None else self._tracing.span("psoup.step")

    def _slice(self, ledger: Ledger) -> bool:
        """Do a slice of back-fill or of a composite, or take derived closures; return False if
        there is none of these. They alternate, so that none waits while another has work without
        end."""
        for _ in range(len(self._slices)):
            self._slices.rotate()
            if self._slices[0].advance(ledger):
                return True
        return False


def _new_rows(before: Mapping[int, StreamMark], after: Mapping[int, StreamMark]) -> int:
    """Return how many rows a step has added. Streams that it dropped may have no mark any more."""
    highs = {stream_id: mark.high for stream_id, mark in before.items()}
    return sum(mark.high - highs.get(stream_id, 0) for stream_id, mark in after.items())
