"""How a server and its store are at the moment of a scrape."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from datastem.instants import SECOND
from psoup.answers.replicas.pending import pending_of
from psoup.monitoring.exposition import OTHER, BoundedNames
from psoup.server.admission import Admission
from psoup.server.core import Core
from psoup.server.identity.certificates import certificate_end
from psoup.store.presence import ENGINE_TIMEOUT_SECONDS

# The name of a gauge, its help, and its value; None leaves it out.
_Value = tuple[str, str, float | None]


class ServerGauges(Collector):
    """The gauges of a server. `look` notes them on the event loop, where the state does not move;
    `collect` then runs in any thread."""

    def __init__(self, core: Core, admission: Admission, tenants: BoundedNames, streams: int):
        self._core = core
        self._admission = admission
        self._tenants = tenants
        self._stream_limit = streams
        self._values: list[_Value] = []
        self._streams: list[tuple[str, str, int, int | None]] = []
        self._clocks: list[tuple[str, float]] = []
        self._certificate_end: float | None = None

    def look(self) -> None:
        self._values = [*self._of_calls(), *self._of_engine(), *self._of_store()]
        self._streams = self._stream_rows()
        others = self._core.guard.others().items()
        self._clocks = [(server, ahead / SECOND) for server, ahead in others]

    def collect(self) -> Iterable[Metric]:
        for name, text, value in [*self._values, *self._of_disk(), *self._of_certificate()]:
            if value is not None:
                yield GaugeMetricFamily(name, text, value)
        yield from self._stream_gauges()
        clocks = GaugeMetricFamily(
            "psoup_clock_ahead_seconds", "How far another clock is ahead.", labels=["server"]
        )
        for server, seconds in self._clocks:
            clocks.add_metric([server], seconds)
        yield clocks

    def _of_calls(self) -> Iterator[_Value]:
        calls, watches = self._admission.under_way
        yield "psoup_calls_in_flight", "Calls under way, without watches.", calls
        yield "psoup_watches", "Watches that are open.", watches
        yield "psoup_memory_used_bytes", "Memory for rows and matches.", self._core.cache_bytes
        yield "psoup_memory_limit_bytes", "Its limit: --memory.", self._core.settings.memory

    def _of_engine(self) -> Iterator[_Value]:
        follower = self._core.follower
        view = follower.view
        epoch = view.epoch.epoch
        rows, age = follower.behind()
        engine = follower.pulse.engine
        is_up = engine is not None and engine[1] < ENGINE_TIMEOUT_SECONDS
        epoch_age = (view.now - epoch.made_at) / SECOND if epoch.number else None
        pending = pending_of(view, self._core.interest.interests)
        yield "psoup_engine_up", "1 if an engine runs.", is_up
        yield "psoup_epoch_number", "The newest epoch.", epoch.number
        yield "psoup_epoch_age_seconds", "The age of the newest epoch.", epoch_age
        yield "psoup_behind_rows", "Rows that the engine has not consumed.", rows
        yield "psoup_behind_seconds", "The age of the oldest of them.", age / SECOND
        yield "psoup_backlog_bytes", "The log that it has not consumed.", follower.backlog_bytes
        yield "psoup_backlog_limit_bytes", "Its limit: --backlog.", self._core.settings.log_bytes
        yield "psoup_backfill_rows", "Rows × predicates to be matched.", pending.reachable

    def _of_store(self) -> Iterator[_Value]:
        state, losses = self._core.follower.state, self._core.follower.losses
        holes = sum(not losses.is_accepted(hole) for hole in losses.holes)
        unconfirmed = state.jumps.unconfirmed / SECOND
        yield "psoup_streams", "Streams of the store.", len(state.stream_names)
        yield "psoup_registrations", "Registrations of the store.", len(state.registrations)
        yield "psoup_holes", "Ranges of rows that are lost, and not accepted as lost.", holes
        yield "psoup_clock_unconfirmed_seconds", "Jumps nobody has confirmed.", unconfirmed
        yield (
            "psoup_clock_wrong",
            "1 if this clock can't be used.",
            bool(self._core.guard.problem()),
        )

    def _of_disk(self) -> Iterator[_Value]:
        try:
            disk = os.statvfs(self._core.store.root)
        except OSError:
            return
        free = disk.f_bavail * disk.f_frsize
        yield "psoup_store_free_bytes", "Free space where the store is.", free

    def _of_certificate(self) -> Iterator[_Value]:
        tls = self._core.settings.identity.tls
        if tls is None:
            return
        # Files that can't be used leave the certificate that the server has as it was.
        with suppress(OSError, ValueError):
            self._certificate_end = certificate_end(tls).timestamp()
        name = "psoup_certificate_expiry_timestamp_seconds"
        yield name, "When the server's certificate ends.", self._certificate_end

    def _stream_rows(self) -> list[tuple[str, str, int, int | None]]:
        """Return tenant, stream, rows and NOW of the first streams; of the others the rows only."""
        view = self._core.follower.view
        named: list[tuple[str, str, int, int | None]] = []
        others = 0
        for id_ in view.state.stream_names.values():
            stream = view.state.streams[id_]
            if len(named) < self._stream_limit:
                tenant = self._tenants.label(stream.tenant)
                now = view.now_of(stream)
                named.append((tenant, stream.schema.name, stream.high, now))
            else:
                others += stream.high
        return [*named, (OTHER, OTHER, others, None)] if others else named

    def _stream_gauges(self) -> Iterator[Metric]:
        labels = ["tenant", "stream"]
        rows = GaugeMetricFamily("psoup_stream_rows", "Rows a stream has ever had.", labels=labels)
        times = GaugeMetricFamily(
            "psoup_stream_now_timestamp_seconds", "NOW of a stream.", labels=labels
        )
        # Two tenants that count together may have streams of one name.
        seen: set[tuple[str, str]] = set()
        for tenant, name, count, now in self._streams:
            if (tenant, name) in seen:
                continue
            seen.add((tenant, name))
            rows.add_metric([tenant, name], count)
            if now is not None:
                times.add_metric([tenant, name], now / SECOND)
        yield rows
        yield times
