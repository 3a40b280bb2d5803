"""A command line over the store in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from client_sdk import Client, MockTransport
from psoup.cli import cli
from psoup.cli.connection import Connection
from tests.support.client_sdk.fake_store import FakeStore

Run = Callable[..., Result]

TRADES = "CREATE STREAM trades (at TIMESTAMP, symbol TEXT, price DOUBLE, size BIGINT) ORDERED BY at"


@pytest.fixture
def transport() -> MockTransport:
    return FakeStore().transport()


@pytest.fixture
def client(transport: MockTransport) -> Client:
    return Client(transport=transport)


@pytest.fixture
def run(transport: MockTransport) -> Run:
    """Runs a command and gives its result; an unexpected exception fails the test."""

    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, list(arguments), obj=Connection(transport=transport))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke
