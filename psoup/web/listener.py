"""The port: HTTP/1.1 by uvicorn's protocol, with bounds on headers, in the event loop of the
server."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from psoup.addresses import bound_socket, is_loopback
from psoup.server.main import Server
from psoup.web.app import TOO_LARGE_HEADERS, App
from psoup.web.gateway import Gateway
from psoup.web.guards import Guards, loopback_hosts
from psoup.web.monitoring import MakePage, WatchedPages
from psoup.web.settings import WebSettings
from psoup.web.static_files import StaticFiles
from psoup.web.tls import WebCertificates

MAX_HEADER_BYTES = 16 << 10
_HEADER_SECONDS = 10.0
# Browsers and proxies keep idle connections about a minute, and expect the server to.
_IDLE_SECONDS = 75
_BACKLOG = 2048
# How often closing connections are looked at, and how long those that are cut off have.
_CLOSING_POLL_SECONDS = 0.005
_CUT_SECONDS = 1.0
# Connections beside those that the gates of calls and watches allow: idle ones.
_SPARE_CONNECTIONS = 1000
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


def listening_socket(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return the socket of a port; with `shared` other processes may take the same port, and each
    gets a part of the connections. Raise OSError if the port is not free."""
    options = [socket.SO_REUSEADDR, *([socket.SO_REUSEPORT] if shared else [])]
    listening = bound_socket(host, port, *options)
    try:
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"can't listen on {host}:{port}: {error.strerror}") from None
    return listening


class WebConnection(HttpToolsProtocol):
    """A connection of HTTP/1.1. Headers must come within seconds and kilobytes."""

    max_connections = 0

    def connection_made(self, transport: Any) -> None:
        self._header_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        if self.max_connections and len(self.connections) > self.max_connections:
            transport.abort()
            return
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._header_bytes += len(data)
        super().data_received(data)
        # Headers that do not end are not kept.
        if self._timer is not None and self._header_bytes > MAX_HEADER_BYTES:
            self._headers_came()
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_headers()

    def on_headers_complete(self) -> None:
        self._headers_came()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEADER_BYTES:
            self.scope["state"][TOO_LARGE_HEADERS] = True
        super().on_headers_complete()

    def _expect_headers(self) -> None:
        if self._timer is None:
            self._header_bytes = 0
            self._timer = self.loop.call_later(_HEADER_SECONDS, self.transport.abort)

    def _headers_came(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class WebDoor:
    """The web port of a server. Its calls go through the server's Admission."""

    def __init__(self, server: Server, settings: WebSettings) -> None:
        """Raise ValueError if other machines reach the port and may not."""
        settings.check(server.settings.identity)
        self._server = server
        self._settings = settings
        tls = server.settings.identity.tls
        self._certificates = None if tls is None else WebCertificates(tls)
        self._socket: socket.socket | None = None
        self._listener: asyncio.Server | None = None
        self._state = ServerState()
        self._metrics = self._metrics_page()

    @property
    def port(self) -> int:
        assert self._socket is not None
        return int(self._socket.getsockname()[1])

    @property
    def ready_line(self) -> str:
        scheme = "http" if self._certificates is None else "https"
        host = self._settings.host
        return f"web ready on {scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def listen(self) -> None:
        self._socket = listening_socket(
            self._settings.host,
            self._settings.port,
            shared=self._server.settings.group is not None,
        )

    def app(self) -> App:
        """Return the application; the port must be known."""
        server, settings = self._server, self._settings
        gateway = Gateway(server.core, server.admission, server.handlers)
        static = StaticFiles() if settings.console else None
        guards = Guards(self._hosts, settings.origins)
        return App(gateway, guards, WatchedPages(gateway, guards, self._metrics), static)

    def _metrics_page(self) -> MakePage | str:
        if self._server.settings.group is not None:
            return "several servers share this port: each has its metrics at --metrics"
        page = self._server.metrics_page()
        return (
            "metrics need prometheus_client: pip install 'psoup[metrics]'"
            if page is None
            else page.reply
        )

    def _hosts(self) -> list[str]:
        hosts = [*self._settings.hosts, *loopback_hosts(self.port)]
        if self._certificates is not None:
            hosts += self._certificates.names
        elif not is_loopback(self._settings.host):
            hosts.append(self._settings.host)
        return hosts

    async def open(self) -> None:
        assert self._socket is not None
        # What goes wrong in a call is reported by the server's own log.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        config = uvicorn.Config(
            self.app(),
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
        )
        config.load()
        limits = self._server.settings
        WebConnection.max_connections = limits.calls + limits.watches + _SPARE_CONNECTIONS

        def connection() -> asyncio.Protocol:
            return WebConnection(config, self._state, {})

        self._listener = await asyncio.get_running_loop().create_server(
            connection,
            sock=self._socket,
            ssl=None if self._certificates is None else self._certificates.context,
            start_serving=True,
        )

    def connections(self) -> list[Any]:
        """Return the connections that are open."""
        return list(self._state.connections)

    async def close(self, drain: float) -> None:
        """Watches end by themselves when the core closes; other calls have `drain` seconds."""
        if self._listener is None:
            if self._socket is not None:
                self._socket.close()
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + drain
        self._listener.close()
        for connection in self.connections():
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(set(self._state.tasks), timeout=drain)
        for task in list(self._state.tasks):
            task.cancel()
        # A socket is closed in a later round of the loop, when all of an answer is sent. Clients
        # that have not read theirs by the deadline are cut off.
        for connection in self.connections():
            connection.transport.close()
        await self._wait_for_connections(deadline)
        for connection in self.connections():
            connection.transport.abort()
        await self._wait_for_connections(loop.time() + _CUT_SECONDS)

    async def _wait_for_connections(self, deadline: float) -> None:
        """Return when all connections are closed, or at the deadline of the loop's clock."""
        loop = asyncio.get_running_loop()
        while self.connections() and loop.time() < deadline:
            await asyncio.sleep(_CLOSING_POLL_SECONDS)
