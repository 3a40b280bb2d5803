"""One server without an engine, a stream in a tenant of each test's own, and clocks."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Client, Pull, PullReport, Store
from datastem.instants import SECOND
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store as StoreFolder
from tests.support.server.process import ServerProcess

NINE = datetime(2025, 3, 3, 9, tzinfo=UTC)
TRADES = "CREATE STREAM trades (symbol TEXT, price DOUBLE, at TIMESTAMP) ORDERED BY at RETAIN 1 DAY"
DEAR = "SELECT symbol, price FROM trades WHERE price > 100 RANGE 10 MINUTES"


@dataclass
class Place:
    """A stream `trades` and a folder for outputs."""

    client: Client
    store: Store
    folder: Path
    store_folder: Path

    def trade(self, price: float, minute: float = 0) -> None:
        at = NINE + timedelta(minutes=minute)
        self.client.publish("trades", [{"symbol": "IBM", "price": price, "at": at}])

    def pull(self, output: str = "dear.csv", **fields: Any) -> Pull:
        """Of DEAR by its text, unless the fields say otherwise."""
        if not fields.keys() & {"key", "handle", "sql"}:
            fields["sql"] = DEAR
        to = self.folder / output
        return Pull(**{"name": to.stem, "to": to, "store": self.store, **fields})

    def expire(self) -> int:
        """Ends every lease of a few seconds, as a second server would a little later."""
        return asyncio.run(_expire(self.store_folder))


# The log's clock never runs backwards, so every time is later than the one before.
_LATER = itertools.count(10, 10)


async def _expire(folder: Path) -> int:
    ahead = next(_LATER)
    opened = StoreFolder.open(folder, create=False, sync=False)
    core = Core(opened, Settings(folder), lambda: int((time.time() + ahead) * SECOND))
    await core.start()
    try:
        return await core.leases.expire()
    finally:
        await core.stop()


def came(report: PullReport) -> tuple[int, int, bool, bool]:
    """Rows in the answer, rows received, whether it changed, whether it was written."""
    return report.rows, report.received, report.changed, report.written


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@dataclass
class FakeClock:
    """Time passes while the puller waits, and only then. `naps` are sleeps of the machine."""

    now: float = 1_700_000_000.0
    awake: float = 0.0
    waits: list[float] = field(default_factory=list)
    stop_after: int = 1000

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.awake

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        self.awake += seconds
        return len(self.waits) >= self.stop_after


class Server:
    """A process that can be taken away, and comes back at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = ServerProcess(folder, "--durability", "none")
        self.address = self._process.address

    def kill(self) -> None:
        self._process.kill()

    def start(self) -> None:
        port = self.address.rpartition(":")[2]
        self._process = ServerProcess(self.folder, "--durability", "none", "--port", port)

    def stop(self) -> None:
        self._process.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("pulls") / "store")
    yield started
    started.stop()


@pytest.fixture
def place(server: Server, tenant: str, tmp_path: Path) -> Iterator[Place]:
    store = Store(server.address, tenant=tenant)
    with store.client() as client:
        client.define(TRADES)
        yield Place(client, store, tmp_path, server.folder)
