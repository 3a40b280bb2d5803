"""What a process says about itself in its metrics: its software, and its store."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from psoup.process_log import process_name
from psoup.version import software_version


class ProcessInfo(Collector):
    """The gauges `psoup_build_info` and `psoup_store_info`, which are 1. Queries and alerts take
    the label `store` of all other series of the process from the second."""

    def __init__(self, role: str, store: str, format_: int) -> None:
        self._build = {
            "version": software_version(),
            "format": str(format_),
            "role": role,
            "server": process_name(),
        }
        self._store = {"store": store}

    def collect(self) -> Iterable[Metric]:
        yield _labelled("psoup_build_info", "The software of a process.", self._build)
        yield _labelled("psoup_store_info", "The store of a process.", self._store)


def _labelled(name: str, text: str, labels: dict[str, str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), 1)
    return family
