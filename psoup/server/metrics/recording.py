"""The metrics of a server that Prometheus reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from psoup.monitoring.exposition import BoundedNames
from psoup.server.metrics import ServerMetrics
from psoup.store import Data, Entry

_MILLISECONDS = (0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
SECONDS_BUCKETS = (*(ms / 1000 for ms in _MILLISECONDS), 1, 2.5, 5, 10, 30)
_EVENT_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 4096)
# Reasons that mean "not now" or "not you"; others are mistakes of requests.
REFUSALS = (
    "OVERLOADED",
    "LOG_FULL",
    "DISK_FULL",
    "QUOTA_EXCEEDED",
    "TOO_MUCH_WORK",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
)


class RecordedMetrics(ServerMetrics):
    """Metrics in a registry. Labels are looked up once: that costs more than the observation."""

    def __init__(self, registry: CollectorRegistry, tenants: BoundedNames) -> None:
        self._tenants = tenants
        durations = Histogram(
            "psoup_call_duration_seconds",
            "How long calls took, from their first message to the last of the answer.",
            ["method", "code"],
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        queues = Histogram(
            "psoup_call_queue_seconds",
            "How long calls waited for their turn and for memory.",
            ["method"],
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        calls = Counter(
            "psoup_calls", "Calls by the door they came by.", ["door", "method"], registry=registry
        )
        refused = Counter(
            "psoup_refused",
            "Calls that were refused, by reason and tenant.",
            ["reason", "tenant"],
            registry=registry,
        )
        self._refused = cache(lambda reason, tenant: refused.labels(reason, tenant).inc)
        # A rate needs a beginning.
        for reason in REFUSALS:
            self._refused(reason, "")(0)
        self._duration = cache(lambda method, code: durations.labels(method, code).observe)
        self._queue = cache(lambda method: queues.labels(method).observe)
        self._call = cache(lambda door, method: calls.labels(door, method).inc)
        rows = _by_tenant(registry, "psoup_published_rows", "Rows that were accepted.")
        nbytes = _by_tenant(registry, "psoup_published_bytes", "Bytes of rows that were accepted.")
        computed = _by_tenant(
            registry, "psoup_computed_rows", "Rows that answers evaluated on the spot."
        )
        pairs = _by_tenant(
            registry, "psoup_joined_pairs", "Pairs of rows that joins of answers looked at."
        )
        self._published_rows = cache(lambda tenant: rows.labels(tenant).inc)
        self._published_bytes = cache(lambda tenant: nbytes.labels(tenant).inc)
        self._computed_rows = cache(lambda tenant: computed.labels(tenant).inc)
        self._joined_pairs = cache(lambda tenant: pairs.labels(tenant).inc)
        self._appends = Histogram(
            "psoup_append_duration_seconds",
            "How long a commit of the log took until it was durable.",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self._append_events = Histogram(
            "psoup_append_events",
            "How many events a commit of the log had.",
            buckets=_EVENT_BUCKETS,
            registry=registry,
        )
        self._conflicts = Counter(
            "psoup_append_conflicts",
            "Commits that another server was faster with.",
            registry=registry,
        )
        items = Counter(
            "psoup_sync_items",
            "Items of syncs, by how they were answered and why.",
            ["mode", "reason"],
            registry=registry,
        )
        sync_bytes = Counter(
            "psoup_sync_bytes", "Bytes of rows in syncs.", ["mode", "reason"], registry=registry
        )
        self._sync_items = cache(lambda mode, reason: items.labels(mode, reason).inc)
        self._sync_bytes = cache(lambda mode, reason: sync_bytes.labels(mode, reason).inc)
        self.loop_lag = Gauge(
            "psoup_event_loop_lag_seconds",
            "How late the event loop was at its last beat.",
            registry=registry,
        )

    def end_call(
        self,
        method: str,
        door: str,
        code: str,
        reason: str,
        seconds: float,
        queued: float,
        tenant: str,
    ) -> None:
        self._duration(method, code)(seconds)
        self._queue(method)(queued)
        self._call(door, method)()
        if reason in REFUSALS:
            self._refused(reason, tenant and self._tenants.label(tenant))()

    def append(self, seconds: float, entries: Sequence[Entry]) -> None:
        self._appends.observe(seconds)
        self._append_events.observe(len(entries))
        for entry in entries:
            if isinstance(entry.event, Data):
                label = self._tenants.label(entry.tenant)
                self._published_rows(label)(entry.event.rows)
                self._published_bytes(label)(len(entry.event.payload or b""))

    def lose_race(self) -> None:
        self._conflicts.inc()

    def compute(self, tenant: str, rows: int, pairs: int) -> None:
        label = self._tenants.label(tenant)
        if rows:
            self._computed_rows(label)(rows)
        if pairs:
            self._joined_pairs(label)(pairs)

    def begin_sync(self, mode: str, reason: str) -> None:
        self._sync_items(mode, reason)()

    def send_copy(self, mode: str, reason: str, nbytes: int) -> None:
        self._sync_bytes(mode, reason)(nbytes)


def _by_tenant(registry: CollectorRegistry, name: str, text: str) -> Counter:
    return Counter(name, text, ["tenant"], registry=registry)
