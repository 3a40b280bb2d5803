"""A store with a server in this process and epochs made by hand; its row n has the price n."""

from __future__ import annotations

from pathlib import Path

from client_sdk import Client
from psoup.store import Store
from tests.support.client_sdk.inside import InsideStore
from tests.support.server.epochs import HandMadeEngine

TRADES = "CREATE STREAM trades (symbol TEXT, price BIGINT) RETAIN 1 DAY"
QUERIES = [
    "SELECT symbol, price FROM trades WHERE price % 3 = 1 RANGE 10 MINUTES",
    "SELECT symbol, count(*) AS n, sum(price) AS total FROM trades GROUP BY symbol",
    "SELECT price FROM trades ORDER BY price DESC LIMIT 5",
]


class Life:
    """The server and the engine of a store in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.inside = InsideStore(folder)
        self.engine = HandMadeEngine(self.store)
        self.prices = 0
        self._is_open = True

    @property
    def root(self) -> Path:
        return self.folder / "store"

    @property
    def store(self) -> Store:
        return self.inside.core.store

    @property
    def client(self) -> Client:
        return self.inside.client

    def begin(self) -> None:
        """Define the stream and register the queries."""
        self.client.define(TRADES)
        for number, query in enumerate(QUERIES):
            self.client.register(query, key=f"q{number}")
        self.engine.step()

    def publish(self, commits: int) -> None:
        """Publish one row per commit, each a second after the last."""
        for _ in range(commits):
            self.inside.wait(1)
            row = {"symbol": "ab"[self.prices % 2], "price": self.prices}
            self.client.publish("trades", [row])
            self.prices += 1

    def close(self) -> None:
        if self._is_open:
            self.inside.close()
        self._is_open = False


def answers(folder: Path, clock: int) -> list[list[dict[str, object]]]:
    """Return the answers of the registered queries of the store in `folder`, at an instant."""
    inside = InsideStore(folder)
    inside.clock = clock
    try:
        keys = range(len(QUERIES))
        return [inside.client.invoke(f"q{n}").to_arrow().to_pylist() for n in keys]
    finally:
        inside.close()


def all_prices(folder: Path) -> list[int]:
    """Return the prices of all rows of the store in `folder`."""
    inside = InsideStore(folder)
    try:
        handle = inside.client.register("SELECT price FROM trades").handle
        table = inside.client.invoke(handle).to_arrow()
        return sorted(table.column("price").to_pylist())
    finally:
        inside.close()
