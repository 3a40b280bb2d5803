"""The contract suite over the store in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from client_sdk import Client, Retry
from tests.support.client_sdk.contract import ClientContract
from tests.support.client_sdk.fake_store import FakeStore


class TestFakeStore(ClientContract):
    @pytest.fixture
    def client(self) -> Iterator[Client]:
        with Client(transport=FakeStore().transport(), retry=Retry(first=0.0)) as client:
            yield client
