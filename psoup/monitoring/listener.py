"""A small HTTP listener for those who watch a process: it answers GET with short pages.

It needs no web framework, so every process can have one. Each connection gets one answer, within
seconds, and there are few at a time: a stranger who opens many, or sends slowly, delays nobody but
other watchers.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from psoup.addresses import bound_socket
from psoup.monitoring.settings import MonitoringSettings

_MAX_CONNECTIONS = 32
_MAX_HEAD_BYTES = 8 << 10
_REQUEST_SECONDS = 5.0
PLAIN = "text/plain; charset=utf-8"


class PageReply(NamedTuple):
    status: HTTPStatus
    body: bytes = b""
    content_type: str = PLAIN


class PageRequest(NamedTuple):
    """A request whose headers are in lower case. It `is_trusted` if it showed the token, or if none
    is asked for."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    is_trusted: bool


Page = Callable[[PageRequest], Awaitable[PageReply]]


class MonitoringListener:
    """A listener with a page for each path."""

    def __init__(self, settings: MonitoringSettings, pages: Mapping[str, Page]) -> None:
        self._settings = settings
        self._pages = pages
        self._connections = 0
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self.port = 0

    def listen(self) -> None:
        """Take the port. Raise OSError if it is not free."""
        host, port = self._settings.host, self._settings.port
        self._socket = bound_socket(host, port, socket.SO_REUSEADDR)
        self.port = self._socket.getsockname()[1]

    async def open(self) -> None:
        """Answer from now on."""
        self._server = await asyncio.start_server(
            self._serve, sock=self._socket, limit=_MAX_HEAD_BYTES
        )

    async def close(self) -> None:
        """Answer nothing any more."""
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()

    @property
    def ready_line(self) -> str:
        return f"metrics ready on {self._settings.host}:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= _MAX_CONNECTIONS:
                async with asyncio.timeout(_REQUEST_SECONDS):
                    await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the other side is gone, or too slow
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            request = self._request(head.decode("latin-1"))
            reply = await self._reply(request)
            has_body = request.method != "HEAD"
        except (asyncio.LimitOverrunError, ValueError):
            reply, has_body = _refusal(HTTPStatus.BAD_REQUEST), True
        writer.write(
            f"HTTP/1.1 {reply.status.value} {reply.status.phrase}\r\n"
            f"Content-Type: {reply.content_type}\r\n"
            f"Content-Length: {len(reply.body)}\r\n"
            "Cache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        if has_body:
            writer.write(reply.body)
        await writer.drain()

    def _request(self, head: str) -> PageRequest:
        """Raise ValueError for what is no request of HTTP/1."""
        first, *lines = head.split("\r\n")[:-2]
        method, target, version = first.split(" ")
        if not version.startswith("HTTP/1.") or not target.startswith("/"):
            raise ValueError("not a request of HTTP/1")
        fields = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        path, _, query = target.partition("?")
        return PageRequest(method, path, query, headers, self._is_trusted(headers))

    def _is_trusted(self, headers: Mapping[str, str]) -> bool:
        try:
            token = self._settings.token()
        except ValueError:
            return False
        if token is None:
            # A page of another site may have made its own name an address of this machine.
            return _is_own_name(headers.get("host", ""))
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(), token)

    async def _reply(self, request: PageRequest) -> PageReply:
        page = self._pages.get(request.path)
        if page is None:
            return _refusal(HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        return await page(request)


def _refusal(status: HTTPStatus) -> PageReply:
    return PageReply(status, f"{status.phrase}\n".encode())


def for_trusted(page: Page) -> Page:
    """Return a page that is shown only to those who have the token."""

    async def guarded(request: PageRequest) -> PageReply:
        return await page(request) if request.is_trusted else _refusal(HTTPStatus.UNAUTHORIZED)

    return guarded


def _is_own_name(host: str) -> bool:
    """Return whether a Host header names an address, or this machine, and not a name that somebody
    else chose."""
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
