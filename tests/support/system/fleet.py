"""The servers and the engine of one store, ended and started again while others use them."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import TracebackType
from typing import Self

from client_sdk import Client
from psoup.store import Store
from psoup.store.log.position import PositionCodec
from tests.support.system.processes import Process, RunningStore

PATIENCE = 300.0
# How long a request may wait for an engine that has to start first.
_OPTIONS = ("--wait", str(PATIENCE))


class Fleet:
    """Leaving the context closes the clients; the processes are the store's."""

    def __init__(self, running: RunningStore, servers: int = 2) -> None:
        self.running = running
        self.targets = [running.start_server(*_OPTIONS) for _ in range(servers)]
        self.positions = PositionCodec(Store.open(running.store).identity)
        self.tally: Counter[str] = Counter()
        self._clients: dict[tuple[str, str], Client] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients.values():
            client.close()

    def client(self, tenant: str, place: int) -> Client:
        """One of the servers', the same client each time."""
        key = self.targets[place], tenant
        if key not in self._clients:
            self._clients[key] = Client(self.targets[place], tenant=tenant)
        return self._clients[key]

    def restart_server(self, place: int, dice: Random) -> None:
        number = self.running.targets.index(self.targets[place])
        _end(self.running.servers[number], dice)
        self.targets[place] = self.running.start_server(*_OPTIONS)
        self.tally["servers restarted"] += 1

    def end_engine(self, dice: Random) -> None:
        assert self.running.engine is not None
        self.running.engine.wait_for("engine ready")
        _end(self.running.engine, dice)

    def settle(self) -> None:
        """Wait until the engine has matched everything."""
        assert self.running.engine is not None
        self.running.engine.wait_for("engine ready")
        self.running.wait_until_matched(self.client("main", 0))


def _end(process: Process, dice: Random) -> None:
    if dice.random() < 0.5:
        process.kill()
    else:
        process.stop()
