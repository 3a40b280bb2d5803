"""Requests made of garbage: no crash, nothing unexpected in the log, memory that stays bounded."""

from __future__ import annotations

import json
import logging
import random
import socket
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import pytest

from psoup.server.settings import Settings
from psoup.web import exchange, listener
from psoup.web.routes import PARAMETERS, ROUTES
from tests.support.web import WebServer

_TYPES = [
    "application/json",
    "application/sql",
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.arrow.stream",
    "text/plain",
    "",
]
_TEXTS = [
    "things",
    "dear",
    "nothing",
    "0" * 32,
    "SELECT id FROM things ROWS 5",
    "SELECT id FROM things WHERE id = :x RANGE 1 HOUR",
    "CREATE STREAM more (a BIGINT)",
    "DROP STREAM things",
    "true",
    "-1",
    "1e999",
    "2026-11-16T09:00:00Z",
    "0001-01-01",
    "5s",
    "999999999d",
    "text",
    "arrow",
    "*",
    "\x00",
    "\u202e\ud7ff<img src=x onerror=alert(1)>",
    "'; --",
    "../../etc/passwd",
    "%",
    "x" * 3000,
]
_BODIES = [
    b'{"id": 1, "name": "x"}',
    b'[{"id": 1, "name": "x"}, {"_op": "delete", "id": 2}]',
    b'{"id": 1, "name": "x"}\n{"id": null, "name": null}\n',
    b"id,name\n1,x\n",
    b"SELECT id FROM things ROWS 5",
    b"[[[[[[[[",
    b"\xff\xfe\x00",
    b"",
]
_HEADERS = [
    "origin",
    "sec-fetch-site",
    "authorization",
    "accept",
    "if-match",
    "if-none-match",
    "last-event-id",
    "content-encoding",
    "psoup-publisher",
    "psoup-sequence",
    "psoup-checksum",
    "cookie",
    "expect",
    "connection",
    "upgrade",
    "x-forwarded-for",
]
# Of an unexpected error.
_FAILED = 500
# How much more a server may hold after all of it, beside what its caches hold.
_GROWTH_BYTES = 300 << 20


class Garbage:
    """Requests that are valid, nearly valid, or not at all."""

    def __init__(self, seed: int, port: int) -> None:
        self.chance = random.Random(seed)
        self.port = port

    def request(self) -> bytes:
        chance = self.chance
        content = self._request()
        match chance.randrange(10):
            case 0:
                content = self._flipped(content)
            case 1:
                content = content[: chance.randrange(1, len(content) + 1)]
            case 2:
                content = chance.randbytes(chance.randrange(1, 300))
        return content

    def _request(self) -> bytes:
        chance = self.chance
        # A stream of changes would not end by itself.
        route = chance.choice([route for route in ROUTES if route.rpc != "Watch"])
        method = route.method if chance.random() < 0.9 else chance.choice(["HEAD", "OPTIONS", "x"])
        path = route.path
        for name in ("{name}", "{key}"):
            path = path.replace(name, quote(chance.choice(_TEXTS), safe=""))
        names = chance.sample([*PARAMETERS, "nonsense"], chance.randrange(4))
        if chance.random() < 0.8:
            names = [name for name in names if name in (*route.parameters, "timeout")]
        query = "&".join(
            f"{name}{'x' if name == 'p.' else ''}={quote(chance.choice(_TEXTS))}" for name in names
        )
        lines = [f"{method} {path}?{query} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        for name in chance.sample(_HEADERS, chance.choice([0, 0, 0, 1, 2])):
            value = chance.choice(_TEXTS).encode("ascii", "replace").decode().replace("\0", "")
            lines.append(f"{name}: {value}")
        body = b""
        if route.bodies:
            content_type = chance.choice([*route.bodies, chance.choice(_TYPES)])
            lines.append(f"Content-Type: {content_type}")
            body = self._body()
        if body and chance.random() < 0.2:
            lines.append("Transfer-Encoding: chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        elif body or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def _body(self) -> bytes:
        body = self.chance.choice(_BODIES)
        return self._flipped(body) if body and self.chance.random() < 0.3 else body

    def _flipped(self, content: bytes) -> bytes:
        flipped = bytearray(content)
        for _ in range(self.chance.randrange(1, 4)):
            flipped[self.chance.randrange(len(flipped))] = self.chance.randrange(256)
        return bytes(flipped)


def _exchange(port: int, requests: list[bytes]) -> list[int]:
    """Send requests over one connection, and return the statuses that came back."""
    content = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            # The last one ends the connection, unless something before it does.
            last = f"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
            connection.sendall(b"".join(requests) + last.encode())
            while piece := connection.recv(1 << 16):
                content += piece
        except ConnectionError:
            pass
    lines = [line for line in content.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    return [int(line.split()[1]) for line in lines]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _fuzz(server: WebServer, count: int, seed: int) -> Counter[int]:
    statuses: Counter[int] = Counter()
    garbage = Garbage(seed, server.port)
    sent = 0
    while sent < count:
        # Several in a row come over one connection, as long as it stays open.
        requests = [garbage.request() for _ in range(garbage.chance.choice([1, 1, 3]))]
        statuses.update(_exchange(server.port, requests))
        sent += len(requests)
    return statuses


@pytest.fixture
def fuzzed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WebServer:
    # What is cut off is not waited for.
    monkeypatch.setattr(listener, "_HEADER_SECONDS", 0.2)
    monkeypatch.setattr(exchange, "_BODY_SECONDS", 0.1)
    monkeypatch.setattr(exchange, "_DISCARDING_SECONDS", 0.1)
    server = WebServer(Settings(tmp_path / "store", port=0, durability="none", memory=256 << 20))
    server.define("CREATE STREAM things (id BIGINT, name TEXT) KEY (id)")
    server.register("dear", "SELECT id FROM things ROWS 100")
    return server


def _check(server: WebServer, statuses: Counter[int], caplog: pytest.LogCaptureFixture) -> None:
    assert _FAILED not in statuses, statuses
    assert {200, 400, 404, 405, 415} <= statuses.keys(), statuses
    wrong = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not wrong, wrong[0].getMessage()
    assert server.get("/livez").status == 200
    body = json.dumps({"id": 1, "name": "after"})
    if server.get("/v1/streams/things").status == 404:
        server.define("CREATE STREAM things (id BIGINT, name TEXT) KEY (id)")
    reply = server.send("POST", "/v1/streams/things/rows", body, "application/json")
    assert reply.status == 200
    core = server.server.core
    assert core.room.arrived == core.room.used == 0


def test_garbage_does_no_harm(fuzzed: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    try:
        _check(fuzzed, _fuzz(fuzzed, 2000, seed=1), caplog)
    finally:
        fuzzed.stop()


@pytest.mark.long
def test_much_garbage_does_no_harm(fuzzed: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    try:
        _fuzz(fuzzed, 5000, seed=2)
        before = _resident()
        _check(fuzzed, _fuzz(fuzzed, 100_000, seed=3), caplog)
        assert _resident() - before < _GROWTH_BYTES
    finally:
        fuzzed.stop()
