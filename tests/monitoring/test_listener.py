"""The port for monitoring answers scrapes, and withstands strangers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from psoup.monitoring import listener as listener_module
from psoup.monitoring.listener import MonitoringListener, PageReply, PageRequest, for_trusted
from psoup.monitoring.settings import MonitoringSettings


async def page(request: PageRequest) -> PageReply:
    return PageReply(HTTPStatus.OK, f"{request.path} {request.query}".encode())


@asynccontextmanager
async def listening(token_file: Path | None = None) -> AsyncIterator[int]:
    settings = MonitoringSettings("127.0.0.1", 0, token_file)
    listener = MonitoringListener(settings, {"/open": page, "/secret": for_trusted(page)})
    listener.listen()
    await listener.open()
    try:
        yield listener.port
    finally:
        await listener.close()


async def send(port: int, content: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(content)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def get(path: str, *headers: str, method: str = "GET", host: str = "localhost") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]
    return "\r\n".join(lines).encode()


async def status_of(port: int, content: bytes) -> int:
    reply = await send(port, content)
    return int(reply.split(b" ")[1])


async def test_a_page_is_answered_with_its_length() -> None:
    async with listening() as port:
        head, _, body = (await send(port, get("/open?a=1"))).partition(b"\r\n\r\n")
        assert body == b"/open a=1" and b"Content-Length: 9\r\n" in head
        head, _, body = (await send(port, get("/open?a=1", method="HEAD"))).partition(b"\r\n\r\n")
        assert body == b"" and b"Content-Length: 9\r\n" in head


async def test_other_paths_and_methods_are_refused() -> None:
    async with listening() as port:
        assert await status_of(port, get("/nothing")) == 404
        assert await status_of(port, get("/open", method="POST")) == 405
        assert await status_of(port, get("/open", method="DELETE")) == 405


async def test_without_a_token_only_names_of_this_machine_are_answered() -> None:
    """A page of another site can make its own name an address of this machine."""
    async with listening() as port:
        for host in ("localhost", "localhost:9181", "127.0.0.1:9181", "[::1]:9181"):
            assert await status_of(port, get("/secret", host=host)) == 200, host
        for host in ("evil.example", "evil.example:9181", "", "127.0.0.1.evil.example"):
            assert await status_of(port, get("/secret", host=host)) == 401, host
        assert await status_of(port, get("/open", host="evil.example")) == 200


async def test_with_a_token_every_scrape_shows_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first-secret\n")
    async with listening(file) as port:
        assert await status_of(port, get("/secret")) == 401
        assert await status_of(port, get("/secret", "Authorization: Bearer wrong")) == 401
        assert await status_of(port, get("/secret", "Authorization: Basic first-secret")) == 401
        assert await status_of(port, get("/secret", "authorization: bearer first-secret")) == 200
        assert await status_of(port, get("/open")) == 200
        # A token that is replaced holds at once, and a file that is gone lets nobody in.
        file.write_text("second-secret")
        assert await status_of(port, get("/secret", "Authorization: Bearer first-secret")) == 401
        assert await status_of(port, get("/secret", "Authorization: Bearer second-secret")) == 200
        file.unlink()
        assert await status_of(port, get("/secret", "Authorization: Bearer second-secret")) == 401


@pytest.mark.parametrize(
    "content",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /open\r\n\r\n",
        b"GET /open HTTP/2.0\r\n\r\n",
        b"GET http://evil.example/open HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /open HTTP/1.1\r\n" + b"X: " + b"x" * 100_000 + b"\r\n\r\n",
        b"\xff" * 100_000,
    ],
)
async def test_what_is_no_request_is_refused_and_the_next_is_answered(content: bytes) -> None:
    async with listening() as port:
        reply = await send(port, content)
        assert reply == b"" or reply.startswith(b"HTTP/1.1 400 ")
        assert await status_of(port, get("/open")) == 200


async def test_slow_and_many_connections_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "_REQUEST_SECONDS", 0.2)
    async with listening() as port:
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        for _, writer in slow:
            writer.write(b"GET /open HT")
        # All of them are closed: those too many at once, the others when their time is over.
        for reader, writer in slow:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        assert await status_of(port, get("/open")) == 200


def test_other_machines_need_a_token(tmp_path: Path) -> None:
    MonitoringSettings("127.0.0.1", 9181).check()
    MonitoringSettings("::1", 9181).check()
    with pytest.raises(ValueError, match="--metrics-token-file"):
        MonitoringSettings("0.0.0.0", 9181).check()
    file = tmp_path / "token"
    for content in ("", "two words\n"):
        file.write_text(content)
        with pytest.raises(ValueError, match="holds no token"):
            MonitoringSettings("0.0.0.0", 9181, file).check()
    file.write_text("secret\n")
    MonitoringSettings("0.0.0.0", 9181, file).check()
