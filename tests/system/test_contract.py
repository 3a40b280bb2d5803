"""What the SDK expects of a store, of the real one: over gRPC, waiting and not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from client_sdk import Client
from tests.support.client_sdk.contract import ClientContract, trade, trades
from tests.support.system.blocking import Blocking
from tests.support.system.processes import RunningStore

pytestmark = [pytest.mark.process, pytest.mark.spark]


class TestClient(ClientContract):
    @pytest.fixture
    def client(self, running: RunningStore) -> Iterator[Client]:
        with Client(running.targets[0]) as client:
            yield client


class TestAsyncClient(ClientContract):
    @pytest.fixture
    def client(self, running: RunningStore) -> Iterator[Any]:
        with asyncio.Runner() as runner, Blocking.client(running.targets[0], runner) as client:
            self.address = running.targets[0]
            yield client

    def test_a_stream_made_anew_is_noticed(self, client: Any) -> None:
        name = trades(client)
        client.publish(name, [trade("IBM", 1.0, 0)])
        with Client(self.address) as second_client:
            second_client.define(f"DROP STREAM {name}")
            second_client.define(f"CREATE STREAM {name} (other BIGINT)")
        assert client.publish(name, [{"other": 1}]).row_count == 1
