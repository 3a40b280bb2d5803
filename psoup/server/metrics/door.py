"""The port for monitoring of a server: metrics, and whether it lives and is ready."""

from __future__ import annotations

import asyncio
import json
import time
from http import HTTPStatus

from psoup.monitoring.exposition import BoundedNames, Exposition, new_registry
from psoup.monitoring.listener import MonitoringListener, PageReply, PageRequest, for_trusted
from psoup.monitoring.settings import MonitoringSettings
from psoup.server.admission import Admission
from psoup.server.core import Core
from psoup.server.metrics.gauges import ServerGauges
from psoup.server.metrics.recording import RecordedMetrics

_BEAT_SECONDS = 1.0


class MetricsDoor:
    """A door of a server that answers `/metrics`, `/livez` and `/readyz`."""

    def __init__(self, core: Core, admission: Admission, settings: MonitoringSettings) -> None:
        registry = new_registry()
        tenants = BoundedNames(settings.names)
        self._core = core
        self._metrics = RecordedMetrics(registry, tenants)
        core.metrics = self._metrics
        gauges = ServerGauges(core, admission, tenants, settings.names)
        registry.register(gauges)
        scrape = for_trusted(Exposition(registry, gauges.look).page)
        self._listener = MonitoringListener(
            settings, {"/metrics": scrape, "/livez": _live, "/readyz": self._ready}
        )
        self._beats: asyncio.Task[None] | None = None

    @property
    def ready_line(self) -> str:
        return self._listener.ready_line

    def listen(self) -> None:
        self._listener.listen()

    async def open(self) -> None:
        self._beats = asyncio.create_task(self._beat())
        await self._listener.open()

    async def close(self, drain: float) -> None:
        """Answer until the calls under way have ended: `/readyz` says that the server stops."""
        if self._beats is not None:
            self._beats.cancel()
        await self._listener.close()

    async def _beat(self) -> None:
        """Measure how late the event loop wakes."""
        while True:
            due = time.monotonic() + _BEAT_SECONDS
            await asyncio.sleep(_BEAT_SECONDS)
            self._metrics.loop_lag.set(max(0.0, time.monotonic() - due))

    async def _ready(self, request: PageRequest) -> PageReply:
        missing = self._core.lacks(for_writing="for=write" in request.query.split("&"))
        status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
        if not request.is_trusted:
            return PageReply(status, f"{status.phrase}\n".encode())
        body = {"ready": not missing, "missing": missing}
        return PageReply(status, json.dumps(body).encode() + b"\n", "application/json")


async def _live(request: PageRequest) -> PageReply:
    """Answer: the event loop has come here, and touched no disk."""
    return PageReply(HTTPStatus.OK, b"OK\n")
