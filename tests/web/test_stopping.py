"""A server that is stopped ends its streams of changes, all of them in order."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.system.processes import RunningStore
from tests.support.web import SQL, fetch

pytestmark = pytest.mark.process


def _stop_with(folder: Path, count: int) -> None:
    with RunningStore(folder) as store:
        store.start_server("--web", "127.0.0.1:0", "--watches", str(count), module="psoup.web")
        (server,) = store.servers
        port = int(server.wait_for(r"web ready on http://127\.0\.0\.1:(\d+)")[1])
        fetch(port, "POST", "/v1/define", "CREATE STREAM things (id BIGINT)", SQL)
        fetch(port, "PUT", "/v1/registrations/all", "SELECT id FROM things ROWS 5", SQL)
        streams = [_opened(port) for _ in range(count)]
        refused = fetch(port, "GET", "/v1/answers/all/changes")
        assert refused.status == 429 and refused.reason == "OVERLOADED"
        assert server.stop() == 0, server.text()
        for stream in streams:
            content = b""
            while piece := stream.recv(1 << 16):
                content += piece
            # The end of a body in chunks: nothing was cut.
            assert content.endswith(b"0\r\n\r\n")
            stream.close()
        assert "Traceback" not in server.text()


def _opened(port: int) -> socket.socket:
    """Return a stream of changes after its first `end`."""
    stream = socket.create_connection(("127.0.0.1", port), timeout=60)
    request = f"GET /v1/answers/all/changes HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
    stream.sendall(request.encode())
    content = b""
    while b"event: end" not in content:
        content += stream.recv(1 << 16)
    return stream


def test_streams_end_with_the_server(tmp_path: Path) -> None:
    _stop_with(tmp_path, 20)


@pytest.mark.long
def test_a_thousand_streams_end_with_the_server(tmp_path: Path) -> None:
    _stop_with(tmp_path, 1000)
