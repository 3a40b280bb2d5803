"""Servers as processes, over temporary folders, without any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.server.process import ServerProcess

Start = Callable[..., ServerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a server over the test's store; all of them end with the test."""
    servers: list[ServerProcess] = []

    def one(*options: str, clock: Path | None = None) -> ServerProcess:
        server = ServerProcess(tmp_path / "store", *options, clock=clock)
        servers.append(server)
        return server

    yield one
    for server in servers:
        server.stop()


@pytest.fixture
def server(shared_server: ServerProcess, tenant: str) -> ServerProcess:
    """A server that others use too, as a tenant that no one else is."""
    return shared_server.of(tenant)
