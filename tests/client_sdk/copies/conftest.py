"""Stores in this process for most tests; a server as a process for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client_sdk import Client, Copies
from tests.client_sdk.copies.rooms import HOT, ROOMS
from tests.client_sdk.copies.trades import COUNTS, DEAR, TRADES
from tests.support.client_sdk.inside import InsideStore
from tests.support.server.process import ServerProcess

OpenCopies = Callable[[], Copies]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InsideStore]:
    store = InsideStore(tmp_path)
    yield store
    store.close()


@pytest.fixture(params=["file", "memory"])
def copies(request: pytest.FixtureRequest, tmp_path: Path, store: InsideStore) -> Iterator[Copies]:
    """Both kinds, by the store's clock."""
    path = tmp_path / "copies.db"
    in_file = request.param == "file"
    opened = Copies(path, clock=store.now) if in_file else Copies.in_memory(clock=store.now)
    with opened:
        yield opened


@pytest.fixture
def trade_copies(store: InsideStore, copies: Copies) -> Copies:
    """Two copies that have not been synced."""
    store.client.define(TRADES)
    copies.keep("dear", DEAR)
    copies.keep("counts", COUNTS)
    return copies


@pytest.fixture
def filed(tmp_path: Path, store: InsideStore) -> Iterator[Copies]:
    """In a file, for what a file alone can do."""
    with Copies(tmp_path / "copies.db", clock=store.now) as copies:
        yield copies


@pytest.fixture
def client(shared_server: ServerProcess, tenant: str) -> Iterator[Client]:
    """A client of the server process, with a tenant of its own."""
    with Client(shared_server.address, tenant=tenant) as client:
        yield client


@pytest.fixture
def rooms(store: InsideStore, copies: Copies) -> Copies:
    """A copy of a keyed stream that has been synced, of no rows yet."""
    store.client.define(ROOMS)
    copies.keep("hot", HOT, changes=True)
    copies.sync(store.client)
    return copies
