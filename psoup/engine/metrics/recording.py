"""The metrics of an engine that Prometheus reads, and the port that they are read from."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from psoup.engine.ledger import Ledger
from psoup.engine.metrics import EngineMetrics
from psoup.monitoring.exposition import Exposition, new_registry
from psoup.monitoring.info import ProcessInfo
from psoup.monitoring.listener import MonitoringListener, PageReply, PageRequest, for_trusted
from psoup.monitoring.settings import MonitoringSettings
from psoup.store.layout import FORMAT

_SECONDS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_ROWS_BUCKETS = tuple(10**power for power in range(9))
# A loop that has not come round for so long, with Spark's jobs in it, is worth a look.
_ROUND_SECONDS = 600.0


class RecordedEngineMetrics(EngineMetrics):
    def __init__(self, registry: CollectorRegistry) -> None:
        self._stages = Histogram(
            "psoup_step_duration_seconds",
            "How long the stages of the engine's loop took: steps, slices of back-fill, chores.",
            ["stage"],
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )
        self._rows = Histogram(
            "psoup_step_rows", "Rows of a step.", buckets=_ROWS_BUCKETS, registry=registry
        )
        self._retries = Counter(
            "psoup_retries", "Steps that failed and were tried again.", registry=registry
        )
        self._tables = TableGauges()
        registry.register(self._tables)
        self.round_at = time.monotonic()

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._stages.labels(stage).observe(time.monotonic() - began)

    def end_step(self, rows: int) -> None:
        self._rows.observe(rows)

    def retry(self) -> None:
        self._retries.inc()

    def end_round(self, ledger: Ledger) -> None:
        self._tables.look(ledger)
        self.round_at = time.monotonic()


class TableGauges(Collector):
    """The tables of the store, by kind: all stems count together."""

    def __init__(self) -> None:
        self._epoch = 0
        self._files: Tally[str] = Tally()
        self._bytes: Tally[str] = Tally()
        self._composites: Tally[str] = Tally()

    def look(self, ledger: Ledger) -> None:
        if ledger.epoch.number == self._epoch:
            return
        files: Tally[str] = Tally()
        nbytes: Tally[str] = Tally()
        for name, snapshot in ledger.tables.items():
            kind = name.partition("/")[0]
            files[kind] += len(snapshot.files)
            nbytes[kind] += sum(file.size for file in snapshot.files.values())
        marks = ledger.composites.values()
        states = Tally("suspended" if mark.suspended else "kept" for mark in marks)
        # Replaced as a whole: a scrape reads them in another thread.
        self._files, self._bytes, self._composites = files, nbytes, states
        self._epoch = ledger.epoch.number

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("psoup_engine_epoch_number", "The newest epoch.", self._epoch)
        yield _tally("psoup_files", "Files of tables.", "table", self._files)
        yield _tally("psoup_table_bytes", "Bytes of tables.", "table", self._bytes)
        yield _tally("psoup_composites", "Joins found ahead.", "state", self._composites)


def _tally(name: str, text: str, label: str, counts: Tally[str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def open_metrics(
    settings: MonitoringSettings, store_id: str
) -> tuple[RecordedEngineMetrics, MonitoringListener]:
    """Return the metrics of an engine, and a listener for them that has its port. Raise OSError."""
    registry = new_registry()
    registry.register(ProcessInfo("engine", store_id, FORMAT))
    metrics = RecordedEngineMetrics(registry)

    async def live(request: PageRequest) -> PageReply:
        is_live = time.monotonic() - metrics.round_at < _ROUND_SECONDS
        return PageReply(HTTPStatus.OK if is_live else HTTPStatus.SERVICE_UNAVAILABLE)

    scrape = for_trusted(Exposition(registry).page)
    listener = MonitoringListener(settings, {"/metrics": scrape, "/livez": live, "/readyz": live})
    listener.listen()
    return metrics, listener
