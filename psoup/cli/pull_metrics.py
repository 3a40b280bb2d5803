"""The metrics of a process that makes pulls, by their names."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from client_sdk.pulls import Pull, PullReport


class PullMetrics(Collector):
    """Counts the failures of pulls, and how long ago each succeeded.

    A pull that `stays_connected` is current from a success until the next failure.
    """

    def __init__(self, pulls: Iterable[Pull], stays_connected: bool = False) -> None:
        now = time.monotonic()
        self._stays_connected = stays_connected
        self._current_at = {pull.name: now for pull in pulls}
        self._failures = dict.fromkeys(self._current_at, 0)
        self._connected = set[str]()

    def note(self, report: PullReport) -> None:
        """Note the result of a pull."""
        name = report.name
        if report.ok or name in self._connected:
            self._current_at[name] = time.monotonic()
        self._failures[name] += not report.ok
        if report.ok and self._stays_connected:
            self._connected.add(name)
        else:
            self._connected.discard(name)

    def collect(self) -> Iterable[Metric]:
        now = time.monotonic()
        ages = GaugeMetricFamily(
            "psoup_pull_age_seconds",
            "The time since a pull last succeeded, or since the process began.",
            labels=["pull"],
        )
        failures = CounterMetricFamily("psoup_pull_failures", "Failed pulls.", labels=["pull"])
        for name, current_at in self._current_at.items():
            ages.add_metric([name], 0.0 if name in self._connected else now - current_at)
            failures.add_metric([name], self._failures[name])
        yield ages
        yield failures
