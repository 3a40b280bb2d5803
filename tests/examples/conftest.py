"""The TypeScript client and the Python one, over one store."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Client
from tests.examples.typescript import CopyAnswer, Driver, assert_same, build
from tests.support.server.process import ServerProcess


@pytest.fixture(scope="package")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="package")
def driver(target: Path) -> Iterator[Driver]:
    driver = Driver(target)
    yield driver
    driver.close()


@pytest.fixture(scope="package")
def server(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("typescript") / "store")
    yield server
    server.stop()


_tenants = itertools.count()


@dataclass
class Pair:
    """Both clients of one store, as a tenant of their own."""

    driver: Driver
    address: str
    client: Client
    path: Path
    handle: bytes = b""

    def register(self, sql: str) -> None:
        """The TypeScript client registers; the Python one learns the handle from the store."""
        self.driver.run(
            "register", self.path, sql, "--address", self.address, "--tenant", self.tenant
        )
        *_, last = self.client.registrations()
        self.handle = last.handle

    @property
    def tenant(self) -> str:
        return self.path.parent.name

    def sync(self, *options: object) -> CopyAnswer:
        """Afterwards its rows are those of a fresh answer."""
        answer = self.driver.rows_after("sync", self.path, *options)
        assert_same(answer, self.client, self.handle)
        return answer

    def publish_numbers(self, select: str, count: int = 1500) -> None:
        """Registers the query over a stream `m` with `count` rows."""
        self.client.define("CREATE STREAM m (a BIGINT, t TEXT)")
        self.register(select)
        self.client.publish("m", [{"a": n, "t": f"text number {n}"} for n in range(count)])

    def lines(self) -> list[list[Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def write(self, lines: list[list[Any]]) -> None:
        self.path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def pair(driver: Driver, server: ServerProcess, tmp_path: Path) -> Iterator[Pair]:
    tenant = f"tenant-{next(_tenants)}"
    (tmp_path / tenant).mkdir()
    with Client(server.address, tenant=tenant) as client:
        yield Pair(driver, server.address, client, tmp_path / tenant / "copy.jsonl")
