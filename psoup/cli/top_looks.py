"""What psoup top looks at: a store's servers, its streams, calls and work, again and again."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from client_sdk import ConnectionFailed, StoreStatus, Stream
from psoup.cli.call_rates import Buckets, CallRate, call_rates, read_buckets
from psoup.cli.top_servers import Servers


@dataclass(frozen=True, slots=True)
class StreamRate:
    """A stream, the rows it got each second since the last look, and how far its NOW is behind the
    clock of the store."""

    name: str
    rows: int
    rows_per_second: float
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class WorkSum:
    """Work in the last minute, on all servers: of a registration, or of a tenant's together."""

    tenant: str
    owner: str
    name: str
    work: int
    pieces: int


@dataclass(frozen=True, slots=True)
class ServerLook:
    """A server, and its status; None if it did not answer."""

    target: str
    status: StoreStatus | None


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """Rows that back-fill has yet to match, and the most that these were since it began."""

    rows: int
    most_rows: int


@dataclass(frozen=True, slots=True)
class Look:
    """A store at an instant. Streams, calls, registrations and tenants are the busiest first; there
    are no calls without addresses of metrics."""

    servers: tuple[ServerLook, ...]
    backfill: BackfillProgress
    streams: tuple[StreamRate, ...]
    calls: tuple[CallRate, ...]
    registrations: tuple[WorkSum, ...]
    tenants: tuple[WorkSum, ...]


class Looks(Iterator[Look]):
    """Looks at a store, each an interval after the one before; an error does not end them."""

    def __init__(
        self,
        servers: dict[str, Servers],
        seconds: float,
        metrics: Sequence[str],
        token_file: Path | None,
    ) -> None:
        self._servers = servers
        self._seconds = seconds
        self._metrics = metrics
        self._token_file = token_file
        self._rows: dict[int, int] | None = None
        self._buckets: Buckets = {}
        self._backfill = BackfillProgress(0, 0)
        self._at = 0.0

    def __next__(self) -> Look:
        if self._rows is None:
            # The servers of a store have the same streams.
            _, streams = self._ask()
            self._note(streams, read_buckets(self._metrics, self._token_file))
        time.sleep(max(0.0, self._at + self._seconds - time.monotonic()))
        rows, buckets, began = self._rows or {}, self._buckets, self._at
        servers, streams = self._ask()
        self._note(streams, read_buckets(self._metrics, self._token_file))
        elapsed = self._at - began
        status = next(server.status for server in servers if server.status is not None)
        most = max(self._backfill.most_rows, status.backfill_rows) if status.backfill_rows else 0
        self._backfill = BackfillProgress(status.backfill_rows, most)
        rates = [_rate(stream, rows, elapsed, status.now) for stream in streams]
        rates.sort(key=lambda rate: (-rate.rows_per_second, rate.name))
        calls = call_rates(buckets, self._buckets, elapsed)
        works = _registrations(servers), _tenants(servers)
        return Look(servers, self._backfill, tuple(rates), calls, *works)

    def _note(self, streams: Sequence[Stream], buckets: Buckets) -> None:
        self._rows = _row_counts(streams)
        self._buckets = buckets
        self._at = time.monotonic()

    def _ask(self) -> tuple[tuple[ServerLook, ...], Sequence[Stream]]:
        """Return the servers, and the streams as one of them has them. Raise ConnectionFailed if
        none answers."""
        servers: list[ServerLook] = []
        streams: Sequence[Stream] | None = None
        failure: ConnectionFailed | None = None
        for target, part in self._servers.items():
            try:
                answers = part.ask()
                streams = answers[0][0].streams() if streams is None else streams
                servers += [ServerLook(target, status) for _, status in answers]
            except ConnectionFailed as error:
                servers.append(ServerLook(target, None))
                failure = error
        if streams is None:
            assert failure is not None
            raise failure
        return tuple(servers), streams


def _row_counts(streams: Sequence[Stream]) -> dict[int, int]:
    return {stream.id: stream.row_count for stream in streams}


def _rate(stream: Stream, before: dict[int, int], seconds: float, now: datetime) -> StreamRate:
    new_rows = stream.row_count - before.get(stream.id, 0)
    lag = None if stream.now is None else max(0.0, (now - stream.now).total_seconds())
    return StreamRate(stream.name, stream.row_count, new_rows / seconds, lag)


def _registrations(servers: Sequence[ServerLook]) -> tuple[WorkSum, ...]:
    """Return the work for each registration on all servers, the most first."""
    works: dict[bytes, WorkSum] = {}
    for server in servers:
        for entry in server.status.top_registrations if server.status else ():
            name = entry.key or entry.hex
            work = works.get(entry.handle, WorkSum(entry.tenant, entry.owner, name, 0, 0))
            works[entry.handle] = replace(
                work, work=work.work + entry.work, pieces=work.pieces + entry.pieces
            )
    return _busiest(works.values())


def _tenants(servers: Sequence[ServerLook]) -> tuple[WorkSum, ...]:
    """Return the work for the busiest registrations of each tenant."""
    works: dict[str, list[WorkSum]] = defaultdict(list)
    for work in _registrations(servers):
        works[work.tenant].append(work)
    return _busiest(
        WorkSum(tenant, "", "", sum(w.work for w in part), sum(w.pieces for w in part))
        for tenant, part in works.items()
    )


def _busiest(works: Iterable[WorkSum]) -> tuple[WorkSum, ...]:
    return tuple(sorted(works, key=lambda work: (-work.work, work.tenant, work.name)))
