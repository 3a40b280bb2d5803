"""One store for all tests that need no more than a running one; each has a tenant of its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk import Client
from tests.system.processes import RunningStore

PATIENCE = 600
HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An engine takes ten seconds to start, and minutes on a machine that is busy with others."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE))


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
