"""Slow and large requests end; an answer that fails on the way never looks complete."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from psoup.errors import Overloaded, RowsGone
from psoup.server.calls import sending
from psoup.web import exchange, listener
from tests.support.web import SQL, WebServer


@contextmanager
def raw(web: WebServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", web.port), timeout=30) as connection:
        yield connection


def to_end(connection: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection."""
    content = b""
    try:
        while piece := connection.recv(1 << 16):
            content += piece
    except ConnectionResetError:
        pass
    return content


def head(web: WebServer, line: str = "GET /v1/status HTTP/1.1", *headers: str) -> bytes:
    lines = [line, f"Host: 127.0.0.1:{web.port}", *headers]
    return "".join(f"{text}\r\n" for text in lines).encode()


# ---- time


def test_headers_that_do_not_end_are_cut(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_HEADER_SECONDS", 0.3)
    for beginning in (b"", b"GET", head(web)):
        with raw(web) as connection:
            connection.sendall(beginning)
            assert to_end(connection) == b""
    # After a response, the next headers have as long again.
    with raw(web) as connection:
        connection.sendall(head(web) + b"\r\n" + b"GET /v1")
        assert to_end(connection).count(b"HTTP/1.1 200") == 1


def test_a_body_that_stays_away_is_refused(
    web: WebServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_BODY_SECONDS", 0.3)
    monkeypatch.setattr(exchange, "_DISCARDING_SECONDS", 0.1)
    line = f"POST /v1/define?tenant={tenant} HTTP/1.1"
    with raw(web) as connection:
        connection.sendall(head(web, line, f"Content-Type: {SQL}", "Content-Length: 9") + b"\r\nx")
        assert to_end(connection).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_goes_while_it_sends_leaves_nothing(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM things (id BIGINT)", tenant=tenant)
    line = f"POST /v1/streams/things/rows?tenant={tenant} HTTP/1.1"
    headers = ("Content-Type: application/json", f"Content-Length: {8 << 20}")
    for _ in range(5):
        with raw(web) as connection:
            connection.sendall(head(web, line, *headers) + b"\r\n" + b" " * (1 << 20))
    room = web.server.core.room

    async def emptied() -> tuple[int, int]:
        while room.arrived or room.used:
            await asyncio.sleep(0.01)
        return room.arrived, room.used

    assert web.run(emptied()) == (0, 0)


# ---- size


def test_headers_have_16_kib(web: WebServer) -> None:
    reply = web.send("GET", "/v1/status", headers={"x-large": "x" * 15_000})
    assert reply.status == 200
    reply = web.send("GET", "/v1/status", headers={"x-large": "x" * (16 << 10)})
    assert reply.status == 431
    with raw(web) as connection:
        connection.sendall(head(web) + b"x: " + b"x" * (1 << 20))
        assert to_end(connection).startswith(b"HTTP/1.1 431 ")
    # Many small ones count together.
    with raw(web) as connection:
        connection.sendall(head(web) + b"x: y\r\n" * 4000 + b"connection: close\r\n\r\n")
        assert to_end(connection).startswith(b"HTTP/1.1 431 ")


def test_bodies_that_arrive_count(web: WebServer, tenant: str) -> None:
    """Bodies that are announced take room before they are there; too many are refused."""
    web.define("CREATE STREAM things (id BIGINT)", tenant=tenant)
    room = web.server.core.room
    limit, room._limit = room._limit, 20 << 20
    line = f"POST /v1/streams/things/rows?tenant={tenant} HTTP/1.1"
    headers = ("Content-Type: application/json", f"Content-Length: {15 << 20}")
    try:
        with raw(web) as first, raw(web) as second:
            first.sendall(head(web, line, *headers) + b"\r\n[")

            async def arrived() -> None:
                while not room.arrived:
                    await asyncio.sleep(0.01)

            web.run(arrived())
            second.sendall(head(web, line, *headers) + b"\r\n[")
            content = second.recv(1 << 16)
            assert content.startswith(b"HTTP/1.1 429 ") and b"retry-after: " in content
    finally:
        room._limit = limit


def test_old_and_garbled_http_is_refused(web: WebServer, tenant: str) -> None:
    _long_stream(web, tenant)
    with raw(web) as connection:
        path = f"/v1/ask?tenant={tenant}&sql=SELECT%20id%20FROM%20things%20ROWS%20200000"
        connection.sendall(head(web, f"GET {path} HTTP/1.0") + b"\r\n")
        # Without chunks nobody could tell a long answer that was cut.
        assert to_end(connection).startswith(b"HTTP/1.1 505 ")
    twice = ("Content-Length: 5", "Transfer-Encoding: chunked", f"Content-Type: {SQL}")
    for request in (
        head(web, "POST /v1/define HTTP/1.1", *twice) + b"\r\n0\r\n\r\n",
        head(web, "POST /v1/define HTTP/1.1", "Content-Length: -5") + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ):
        with raw(web) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            assert b"200 OK" not in to_end(connection)


# ---- failures on the way


def _long_stream(web: WebServer, tenant: str, rows: int = 200_000) -> None:
    web.define("CREATE STREAM things (id BIGINT, name TEXT)", tenant=tenant)
    table = pa.table({"id": range(rows), "name": ["name"] * rows})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content_type = "application/vnd.apache.arrow.stream"
    path = "/v1/streams/things/rows"
    reply = web.send("POST", path, bytes(sink.getvalue()), content_type, tenant=tenant)
    assert reply.status == 200, reply


@pytest.mark.parametrize("form", ["json", "ndjson", "csv", "arrow"])
def test_an_answer_that_fails_never_looks_complete(
    web: WebServer, tenant: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _long_stream(web, tenant)
    sql = "SELECT id, name FROM things ROWS 200000"
    whole = web.get("/v1/ask", tenant=tenant, sql=sql, format=form)
    assert whole.status == 200 and "etag" not in whole.headers
    make = sending.ChunkMessages.make

    async def fail(self: Any, *arguments: Any) -> Any:
        if self._chunk > 1:
            raise RowsGone("the rows are gone")
        return await make(self, *arguments)

    monkeypatch.setattr(sending.ChunkMessages, "make", fail)
    if form == "ndjson":
        reply = web.get("/v1/ask", tenant=tenant, sql=sql, format=form)
        *lines, last = reply.body.splitlines()
        assert whole.body.startswith(b"\n".join(lines[1:2])) or len(lines) > 2
        assert json.loads(last)["error"]["reason"] == "DATA_FILE_GONE"
        assert len(lines) < 200_000
        return
    with pytest.raises(http.client.IncompleteRead) as failure:
        web.get("/v1/ask", tenant=tenant, sql=sql, format=form)
    assert 0 < len(failure.value.partial) < len(whole.body)


def test_waiting_is_suggested_if_it_helps(
    web: WebServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overloaded(*arguments: Any) -> Any:
        raise Overloaded("too many", retry_after=timedelta(seconds=1.2))

    monkeypatch.setattr(web.server.core.follower, "attend", overloaded)
    reply = web.get("/v1/streams", tenant=tenant)
    assert reply.status == 429 and reply.headers["retry-after"] == "2"
    assert reply.json()["retry_after_seconds"] == 2


# ---- answers that are known


def test_rows_that_leave_by_time_make_another_answer(web: WebServer, tenant: str) -> None:
    """Nothing is published, but the window slides: 304 until the row leaves, then 200."""
    web.define("CREATE STREAM things (id BIGINT)", tenant=tenant)
    web.register("new", "SELECT id FROM things RANGE 1 SECOND", tenant=tenant)
    reply = web.send(
        "POST", "/v1/streams/things/rows", '{"id": 1}', "application/json", tenant=tenant
    )
    assert reply.status == 200
    first = web.get("/v1/answers/new", tenant=tenant)
    if not first.json()["rows"]:
        pytest.skip("the machine took more than a second for a request")
    headers = {"if-none-match": first.headers["etag"]}
    while (
        again := web.send("GET", "/v1/answers/new", headers=headers, tenant=tenant)
    ).status != 200:
        assert again.status == 304 and not again.body
        assert again.headers["psoup-now"] >= first.headers["psoup-now"]
        assert again.headers["vary"] == "Accept, Authorization, Cookie"
    assert again.json()["rows"] == [] and again.json()["position"] == first.json()["position"]
