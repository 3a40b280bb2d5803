"""Two servers behind a real HAProxy, with the configuration of docs/how-to/several-servers.md."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from client_sdk import Client
from tests.conftest import ROOT
from tests.support.haproxy import free_port, running
from tests.support.monitoring import scrape_until
from tests.support.server.process import ServerProcess

pytestmark = [pytest.mark.process, pytest.mark.long]

_CALLS = 20


def documented(port: int, servers: list[tuple[str, str]]) -> str:
    """Return the configuration of the docs for these addresses of gRPC and of metrics."""
    page = (ROOT / "docs/how-to/several-servers.md").read_text()
    match = re.search(r"```haproxy\n(.*?)```", page, re.DOTALL)
    assert match is not None
    text = match[1].replace("bind :7181", f"bind 127.0.0.1:{port}")
    for name, (address, metrics) in zip("ab", servers, strict=True):
        text = text.replace(f"store-{name}.example:7181", address)
        text = text.replace(
            f"addr store-{name}.example port 9181", f"port {metrics.rpartition(':')[2]}"
        )
    assert "example" not in text
    return text


def ask(port: int) -> int:
    """Ask over a connection of its own."""
    with Client(f"127.0.0.1:{port}") as client:
        return len(list(client.ask("SELECT a FROM s")))


def test_calls_go_on_while_a_server_stops(tmp_path: Path) -> None:
    servers = [
        ServerProcess(tmp_path / "store", "--metrics", "127.0.0.1:0", "--drain-delay", "3")
        for _ in range(2)
    ]
    metrics = [server.read_line().removeprefix("metrics ready on ") for server in servers]
    port = free_port()
    addresses = [(server.address, page) for server, page in zip(servers, metrics, strict=True)]
    try:
        with running(documented(port, addresses), tmp_path, port):
            with Client(f"127.0.0.1:{port}") as client:
                client.define("CREATE STREAM s (a BIGINT)")
                client.publish("s", pa.table({"a": pa.array(range(9), pa.int64())}))
            assert [ask(port) for _ in range(_CALLS)] == _CALLS * [9]
            for page in metrics:
                scrape_until(page, "psoup_calls_total", _CALLS / 2, method="Ask")
            servers[0].send_signal()
            assert [ask(port) for _ in range(_CALLS)] == _CALLS * [9]
            assert servers[0].wait() == 0
            assert [ask(port) for _ in range(_CALLS)] == _CALLS * [9]
    finally:
        for server in servers[1:]:
            server.stop()
        servers[0].send_signal()
