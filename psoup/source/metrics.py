"""The metrics of a process that runs sources, by their names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from client_sdk import AsyncClient
from psoup.source.connectors.partition import Connector, Context
from psoup.source.connectors.registry import make_connector
from psoup.source.lag import Lag, LagHistory
from psoup.source.runner import source_records
from psoup.source.settings import SourceSettings
from psoup.source.status import StatusFile

# How often the ends of sources are looked at.
LOOK_SECONDS = 15.0
# How many instants of a publisher's lag are kept for the next process.
_NOTED_ENDS = 20


class LagWatch:
    """Looks at how far one source is behind, through connections of its own.

    If the other side does not answer, the times go on from what was seen last.
    """

    def __init__(
        self, settings: SourceSettings, ends: Mapping[str, list[tuple[float, int]]] | None = None
    ) -> None:
        """`ends` is what `ends` of an earlier process returned."""
        self._settings = settings
        self._client: AsyncClient | None = None
        self._connector: Connector | None = None
        # Instants are of the clock, so that they are those of a later process, too.
        self._histories = {name: LagHistory(pairs) for name, pairs in (ends or {}).items()}
        # Replaced as a whole: a scrape reads it in another thread.
        self._lags: Sequence[tuple[Lag, LagHistory]] = ()

    async def look(self) -> None:
        """Note the lags of all partitions. Raises SourceAway, SourceError or PsoupError."""
        if self._client is None or self._connector is None:
            await self.close()
            self._client = self._settings.store.client()
            # Not created here, if it is missing: the runner does so at the same time.
            stream = await self._client.stream(self._settings.stream)
            context = Context(self._settings, stream, self._client)
            self._connector = await asyncio.to_thread(make_connector, context)
        records = await source_records(self._client, self._settings.name)
        lags = await asyncio.to_thread(self._connector.lag, records)
        self._histories = {name: self._histories.get(name) or LagHistory() for name in lags}
        for name, lag in lags.items():
            self._histories[name].look(lag, time.time())
        self._lags = [(lag, self._histories[name]) for name, lag in lags.items()]

    def ends(self) -> dict[str, list[tuple[float, int]]]:
        """Return since when records of each publisher are unread."""
        return {name: history.ends(_NOTED_ENDS) for name, history in self._histories.items()}

    async def close(self) -> None:
        """Close the connection to the store; the next look opens another one."""
        client, self._client, self._connector = self._client, None, None
        if client is not None:
            await client.close()

    def seconds(self) -> float | None:
        """Return the greatest lag of a partition; None before the first look."""
        now = time.time()
        return max((history.seconds(now) for _, history in self._lags), default=None)

    def rows(self) -> int | None:
        """Return how many rows are unread; None if they can't be counted."""
        counts = [lag.amount for lag, _ in self._lags if lag.is_rows]
        return sum(counts) if counts else None

    def retained_bytes(self) -> int | None:
        """Return how much the other side keeps for the source; None if nothing."""
        # One slot may serve several publishers.
        sizes = (lag.retained_bytes for lag, _ in self._lags)
        return max((size for size in sizes if size is not None), default=None)

    def retention_left(self) -> float | None:
        """Return for how long the oldest unread record is kept where it is; None if unknown."""
        now = time.time()
        times = [
            lag.kept_seconds - history.seconds(now)
            for lag, history in self._lags
            if lag.kept_seconds is not None
        ]
        return min(times, default=None)


class SourceMetrics(Collector):
    """What a process knows about its sources."""

    def __init__(self, sources: Iterable[SourceSettings], status: StatusFile) -> None:
        self._watches = {
            settings.name: LagWatch(settings, status.lags(settings.name)) for settings in sources
        }
        self._status = status

    async def watch(self) -> None:
        """Look at all sources regularly, until cancelled."""
        try:
            while True:
                await asyncio.gather(*(_look(watch) for watch in self._watches.values()))
                for name, watch in self._watches.items():
                    self._status.note_lags(name, watch.ends())
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for watch in self._watches.values():
                with suppress(Exception):
                    await watch.close()

    def collect(self) -> Iterable[Metric]:
        watches, status = self._watches, self._status
        yield _gauge(
            "psoup_source_up",
            "Whether a source runs: 0 if it has stopped, or waits for the other side.",
            {name: float(status.is_running(name)) for name in watches},
        )
        yield _gauge(
            "psoup_source_lag_seconds",
            "For how long the oldest unread record has been there.",
            {name: watch.seconds() for name, watch in watches.items()},
        )
        yield _gauge(
            "psoup_source_lag_rows",
            "Rows that are there and unread.",
            {name: watch.rows() for name, watch in watches.items()},
        )
        yield _gauge(
            "psoup_source_retention_left_seconds",
            "For how long the oldest unread record is still kept where it is.",
            {name: watch.retention_left() for name, watch in watches.items()},
        )
        yield _gauge(
            "psoup_source_retained_bytes",
            "What the other side keeps because the source has not confirmed it.",
            {name: watch.retained_bytes() for name, watch in watches.items()},
        )
        bad_rows = CounterMetricFamily(
            "psoup_source_bad_rows", "Bad rows that were put aside.", labels=["source"]
        )
        for name in watches:
            bad_rows.add_metric([name], status.bad_rows(name))
        yield bad_rows


async def _look(watch: LagWatch) -> None:
    try:
        await watch.look()
    except Exception:
        # The runner of the source reports what is wrong, and the other sources are looked at.
        await watch.close()


def _gauge(name: str, text: str, values: Mapping[str, float | None]) -> Metric:
    """Return a gauge with the sources that have a value."""
    family = GaugeMetricFamily(name, text, labels=["source"])
    for source, value in values.items():
        if value is not None:
            family.add_metric([source], value)
    return family
