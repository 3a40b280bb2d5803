"""The port for monitoring of a server: metrics, and whether it lives and is ready."""

from __future__ import annotations

from psoup.monitoring.listener import MonitoringListener, PageReply, PageRequest, for_trusted
from psoup.monitoring.settings import MonitoringSettings
from psoup.server.core import Core
from psoup.server.metrics.health import LIVE, readiness
from psoup.server.metrics.page import MetricsPage


class MetricsDoor:
    """A door of a server that answers `/metrics`, `/livez` and `/readyz`."""

    def __init__(self, core: Core, page: MetricsPage, settings: MonitoringSettings) -> None:
        self._core = core
        self._listener = MonitoringListener(
            settings,
            {"/metrics": for_trusted(page.page), "/livez": _live, "/readyz": self._ready},
        )

    @property
    def ready_line(self) -> str:
        return self._listener.ready_line

    def listen(self) -> None:
        self._listener.listen()

    async def open(self) -> None:
        await self._listener.open()

    async def close(self, drain: float) -> None:
        """Answer until the calls under way have ended: `/readyz` says that the server stops."""
        await self._listener.close()

    async def _ready(self, request: PageRequest) -> PageReply:
        return readiness(self._core, request.query, request.is_trusted)


async def _live(request: PageRequest) -> PageReply:
    return LIVE
