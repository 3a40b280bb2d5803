"""One store for all tests that need no more than a running one; each has a tenant of its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from client_sdk import Client
from tests.system.processes import RunningStore


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """A server and an engine. Whoever asks for it may not stop either."""
    with RunningStore(tmp_path_factory.mktemp("running")) as store:
        store.start_server()
        store.start_engine()
        yield store


@pytest.fixture
def tenant() -> str:
    """One that nobody else has, so that names are free."""
    return f"t{secrets.token_hex(4)}"


@pytest.fixture
def client(running: RunningStore, tenant: str) -> Iterator[Client]:
    with Client(running.targets[0], tenant=tenant) as client:
        yield client
