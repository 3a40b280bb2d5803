"""Sources as processes of their own, against a real server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client_sdk import Client
from tests.support.server.process import ServerProcess
from tests.support.system.processes import Process

WAIT_SECONDS = 120.0


class Sources:
    """The processes of one test, and its sources.toml. All of them are killed at its end."""

    def __init__(self, folder: Path, target: str, tenant: str) -> None:
        self.folder, self.target, self.tenant = folder, target, tenant
        self.file = folder / "sources.toml"
        self.client = Client(target, tenant=tenant)
        self._processes: list[Process] = []

    def write(self, tables: str) -> None:
        self.file.write_text(
            f'[defaults]\ntarget = "{self.target}"\ntenant = "{self.tenant}"\n{tables}'
        )

    def psoup(self, *arguments: str) -> Process:
        output = self.folder / f"psoup-{len(self._processes)}.log"
        options = ["-m", "psoup.cli", "--target", self.target, "--tenant", self.tenant]
        process = Process([*options, *arguments], output)
        self._processes.append(process)
        return process

    def start(self, *options: str) -> Process:
        return self.psoup("source", "run", str(self.file), *options)

    def wait_for(self, ready: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            texts = "\n".join(process.text() for process in self._processes)
            assert time.monotonic() < deadline, texts
            time.sleep(0.05)

    def close(self) -> None:
        self.client.close()
        for process in self._processes:
            if process.alive:
                process.kill()


@pytest.fixture
def sources(shared_server: ServerProcess, tenant: str, tmp_path: Path) -> Iterator[Sources]:
    sources = Sources(tmp_path, shared_server.address, tenant)
    yield sources
    sources.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    """A list whose last server the test may kill and replace."""
    servers = [ServerProcess(tmp_path / "store")]
    yield servers
    servers[-1].stop()
