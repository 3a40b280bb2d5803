"""Spark jobs beside the loop: a thread runs the job, and the loop goes on with fresh rows.

The thread gets values, never the ledger. The loop commits what the job returns, if what it was
computed from still holds.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Generic, TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession

# With `spark.scheduler.mode=FAIR`, jobs of this pool and those of the loop share the executors
# evenly, whichever has more tasks.
POOL = "bulk"

T = TypeVar("T")


class BulkJob(Generic[T]):
    """One job in a thread. `work` gets a session with settings of its own.

    Thread safety: the methods are for the loop's thread.
    """

    def __init__(self, spark: SparkSession, work: Callable[[SparkSession], T], name: str) -> None:
        self.started = time.monotonic()
        # The seconds that the work took, once it is done.
        self.duration = 0.0
        self._spark = spark
        self._work = work
        self._name = name
        self._group = f"psoup-{uuid.uuid4().hex}"
        self._ended = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        # The thread is a daemon: a process that ends does not wait for it.
        InheritableThread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        context = self._spark.sparkContext
        try:
            context.setLocalProperty("spark.scheduler.pool", POOL)
            context.setJobGroup(self._group, self._name)
            self._result = self._work(self._spark.newSession())
        except BaseException as error:
            self._error = error
        finally:
            self.duration = self.seconds
            self._ended.set()

    @property
    def is_done(self) -> bool:
        return self._ended.is_set()

    @property
    def seconds(self) -> float:
        """The time since the job was started."""
        return time.monotonic() - self.started

    def result(self) -> T:
        """Return what the work returned, or raise its error. The job must be done."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """End the job's tasks; its result is never asked for."""
        if not self.is_done:
            self._spark.sparkContext.cancelJobGroup(self._group)
