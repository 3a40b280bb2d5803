"""Closures that are derived again after damage, beside the loop.

The epoch names the streams whose closures are incomplete (`unclosed`). Of each, one after the
other, a job derives all closures from the rows below `high`. Steps go on while it runs, and add the
closures that later rows cause in files of their own: `by` is at least `high` there. So the loop
replaces all other files of the stream by those of the job. If the engine ends before, the next one
starts over: nothing but the epoch says what is to be done.

Answers need no closures. Steps of composites use them to leave out combinations that no answer has
(`composites.combining`); without them they store more.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from pyspark.sql import SparkSession

from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.bulk import BulkJob
from psoup.engine.steps.closing import ClosingJob
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import DataFileGone
from psoup.store.errors import CorruptStore

log = logging.getLogger(__name__)

# How soon an idle engine looks whether the job is done, and how soon a failed one is tried again;
# the time doubles with each failure in a row.
_POLL_SECONDS = 0.25
_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 3600.0


@dataclass(frozen=True, slots=True)
class _Derivation:
    """The closures of the rows of a stream below `high`, marked as missing since an epoch."""

    stream_id: int
    since: int
    high: int
    job: BulkJob[list[DataFile]]


class Reclosing:
    """The chore that derives missing closures again, of one stream at a time."""

    def __init__(self, spark: SparkSession, settings: EngineSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._current: _Derivation | None = None
        self._failures = 0
        self._next = 0.0

    def advance(self, ledger: Ledger) -> bool:
        """Start a job, or take what it derived and publish it; return False if there is nothing to
        take."""
        derivation = self._current
        if derivation is None:
            self._start(ledger)
            return False
        if ledger.unclosed.get(derivation.stream_id) != derivation.since:
            # The stream was dropped, or more was damaged or restored since the job was started.
            self.stop()
            return False
        if derivation.job.seconds > self._settings.grace / 2:
            # The files that it reads, and those that it wrote, could be deleted.
            log.warning("gave up closures of stream %d", derivation.stream_id)
            self.stop()
            self._retry_later()
            return False
        if not derivation.job.is_done:
            return False
        self._current = None
        return self._take(ledger, derivation)

    def idle_in(self, ledger: Ledger) -> float | None:
        """Return the seconds until there may be work; None if no closures are missing."""
        if not ledger.unclosed:
            return None
        return max(self._next - time.monotonic(), _POLL_SECONDS)

    def stop(self) -> None:
        """Give up the job, if there is one."""
        if self._current is not None:
            self._current.job.cancel()
            self._current = None

    def _start(self, ledger: Ledger) -> None:
        if not ledger.unclosed or time.monotonic() < self._next:
            return
        stream_id, since = min(ledger.unclosed.items())
        store, files = ledger.store, tuple(ledger.files(stem_name(stream_id)))
        closing = ClosingJob(str(store.root), files, stream_id, ledger.epoch.number, store.sync)
        job = BulkJob(self._spark, closing.run, f"closures of stream {stream_id}")
        self._current = _Derivation(stream_id, since, ledger.high(stream_id), job)

    def _take(self, ledger: Ledger, derivation: _Derivation) -> bool:
        """Replace the closures of the rows below `high`."""
        try:
            added = derivation.job.result()
        except (CorruptStore, DataFileGone) as error:
            name, _, path = error.file.rpartition("/")
            if name in ledger.tables and path in ledger.tables[name].files:
                raise
            # It was merged or mended meanwhile. The next job reads what replaced it.
            self._retry_later()
            return False
        except Exception:
            log.exception("could not derive the closures of stream %d", derivation.stream_id)
            self._retry_later()
            return False
        self._failures = 0
        removed = [
            file
            for file in ledger.files("closures")
            if file.partition["stream_id"] == str(derivation.stream_id)
            and file.low["by"] < derivation.high
        ]
        ledger.commit("closures", added, removed, operation="MEND")
        del ledger.unclosed[derivation.stream_id]
        ledger.publish("mend")
        return True

    def _retry_later(self) -> None:
        pause = min(_RETRY_SECONDS * 2.0**self._failures, _MAX_RETRY_SECONDS)
        self._failures += 1
        self._next = time.monotonic() + pause
