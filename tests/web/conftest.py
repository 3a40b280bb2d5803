"""One server with a web port for all tests of it that need no settings of their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.web import WebServer

_tenants = itertools.count()


@pytest.fixture(scope="session")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    server = WebServer(tmp_path_factory.mktemp("web") / "store")
    yield server
    server.stop()


@pytest.fixture
def tenant() -> str:
    """The name of a tenant that no other test uses."""
    return f"tenant-{next(_tenants)}"
