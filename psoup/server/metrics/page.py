"""The page `/metrics` of a server, whichever port it is read from."""

from __future__ import annotations

import asyncio
import time

from psoup.monitoring.exposition import BoundedNames, Exposition, new_registry
from psoup.monitoring.info import ProcessInfo
from psoup.server.admission import Admission
from psoup.server.core import Core
from psoup.server.metrics.gauges import ServerGauges
from psoup.server.metrics.recording import RecordedMetrics
from psoup.store.layout import FORMAT

_BEAT_SECONDS = 1.0


class MetricsPage(Exposition):
    """What a server has counted since this page was made, and how it is at the moment.

    `names` is how many tenants and streams have series of their own.
    """

    def __init__(self, core: Core, admission: Admission, names: int) -> None:
        registry = new_registry()
        registry.register(ProcessInfo("server", core.store.id, FORMAT))
        tenants = BoundedNames(names)
        self._metrics = RecordedMetrics(registry, tenants)
        core.metrics = self._metrics
        gauges = ServerGauges(core, admission, tenants, names)
        registry.register(gauges)
        super().__init__(registry, gauges.look)

    async def beat(self) -> None:
        """Measure how late the event loop wakes, until cancelled."""
        while True:
            due = time.monotonic() + _BEAT_SECONDS
            await asyncio.sleep(_BEAT_SECONDS)
            self._metrics.loop_lag.set(max(0.0, time.monotonic() - due))
