"""Two servers behind a real HAProxy, with the configuration of docs/how-to/several-servers.md."""

from __future__ import annotations

import queue
import re
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from client_sdk import Client, Credentials
from client_sdk.copies import Copies
from tests.conftest import ROOT
from tests.support.authority import Authority
from tests.support.haproxy import free_port, running
from tests.support.monitoring import Scrape, scrape_until
from tests.support.server.process import ServerProcess

pytestmark = [pytest.mark.process, pytest.mark.long]

_CALLS = 20
_SECONDS = 60.0
_LAST = 99


def documented(port: int, servers: list[tuple[str, str]], tls: Authority | None = None) -> str:
    """Return the configuration of the docs for these addresses of gRPC and of metrics."""
    page = (ROOT / "docs/how-to/several-servers.md").read_text()
    blocks: list[str] = re.findall(r"```haproxy\n(.*?)```", page, re.DOTALL)
    text, tls_lines = blocks
    if tls is not None:
        bind, server = tls_lines.splitlines()
        text = with_tls(text, bind, server, tls)
    text = text.replace("bind :7181", f"bind 127.0.0.1:{port}")
    for name, (address, metrics) in zip("ab", servers, strict=True):
        text = text.replace(f"store-{name}.example:7181", address)
        text = text.replace(
            f"addr store-{name}.example port 9181", f"port {metrics.rpartition(':')[2]}"
        )
        text = text.replace(f"verifyhost store-{name}.example", "verifyhost localhost")
    assert "example" not in text
    return text


def with_tls(text: str, bind: str, server: str, authority: Authority) -> str:
    """Return a configuration with the lines for TLS, and with the files of an authority."""
    pair, pem = authority.server("balancer"), authority.folder / "balancer-both.pem"
    pem.write_bytes(pair.cert.read_bytes() + pair.key.read_bytes())
    text = re.sub(r"(?m)^ +bind .*$", bind, text)
    for name in "ab":
        line = server.replace("server a store-a", f"server {name} store-{name}")
        line = line.replace("store-a.example", f"store-{name}.example")
        text = re.sub(rf"(?m)^ +server {name} .*$", line, text)
    text = text.replace("/etc/haproxy/store.pem", str(pem))
    return text.replace("/etc/haproxy/ca.pem", str(authority.ca))


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


class Watching(threading.Thread):
    """Keeps a copy of a stream up to date until it has the last row, and notes the numbers in it
    after each round."""

    def __init__(self, client: Client, file: Path) -> None:
        super().__init__(daemon=True)
        self._client, self._file = client, file
        self._rows: queue.SimpleQueue[set[int]] = queue.SimpleQueue()

    def run(self) -> None:
        with Copies(self._file) as copies:
            copies.keep("copy", "SELECT a FROM s")
            for _ in copies.watch(self._client):
                numbers = {row["a"] for row in copies["copy"].rows()}
                self._rows.put(numbers)
                if _LAST in numbers:
                    return

    def wait_for(self, number: int) -> None:
        while number not in self._rows.get(timeout=_SECONDS):
            pass


def test_a_server_that_is_killed_ends_nothing_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.server()
    options = ("--metrics", "127.0.0.1:0", "--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    servers = [ServerProcess(tmp_path / "store", *options) for _ in range(2)]
    metrics = [server.read_line().removeprefix("metrics ready on ") for server in servers]
    port, trusted = free_port(), Credentials(ca=authority.ca)
    addresses = [(server.address, page) for server, page in zip(servers, metrics, strict=True)]
    target = f"localhost:{port}"
    try:
        with (
            running(documented(port, addresses, authority), tmp_path, port),
            Client(target, credentials=trusted) as client,
            Client(target, credentials=trusted) as other,
        ):
            client.define("CREATE STREAM s (a BIGINT)")
            watching = Watching(other, tmp_path / "phone.db")
            watching.start()
            publisher = client.publisher("p")
            publisher.publish("s", [{"a": 1}])
            watching.wait_for(1)
            watches = [Scrape(page).value("psoup_watches") or 0 for page in metrics]
            assert sorted(watches) == [0, 1]
            servers[watches.index(1)].kill()
            publisher.publish("s", [{"a": 2}])
            watching.wait_for(2)
            for _ in range(_CALLS):
                with Client(target, credentials=trusted) as caller:
                    assert len(list(caller.ask("SELECT a FROM s"))) == 2
            publisher.publish("s", [{"a": _LAST}])
            watching.wait_for(_LAST)
            watching.join()
    finally:
        for server in servers:
            server.kill()
