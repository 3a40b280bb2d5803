"""The port for metrics of a process that answers nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from prometheus_client.registry import Collector

from psoup.monitoring.exposition import Exposition, new_registry
from psoup.monitoring.listener import MonitoringListener, PageReply, PageRequest, for_trusted
from psoup.monitoring.settings import MonitoringSettings
from psoup.monitoring.thread import ListenerThread


@contextmanager
def open_port(settings: MonitoringSettings, collector: Collector) -> Iterator[str]:
    """Answer scrapes in a thread for as long as the context lasts; yield the line that says where.

    Raise OSError if the port is not free. `collect` is called in other threads.
    """
    registry = new_registry()
    registry.register(collector)
    scrape = for_trusted(Exposition(registry).page)
    listener = MonitoringListener(settings, {"/metrics": scrape, "/livez": _live, "/readyz": _live})
    listener.listen()
    thread = ListenerThread(listener)
    thread.start()
    try:
        yield listener.ready_line
    finally:
        thread.stop()


async def _live(request: PageRequest) -> PageReply:
    return PageReply(HTTPStatus.OK)
