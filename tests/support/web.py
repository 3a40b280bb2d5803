"""A server with a web port, in a thread of the test's own process, and a client of HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import grpc
import pyarrow as pa

from psoup.server.main import Server
from psoup.server.settings import Settings
from psoup.v1.psoup_pb2_grpc import PsoupStub
from psoup.web.listener import WebDoor
from psoup.web.settings import WebSettings

SQL = "application/sql"
_SECONDS = 60
_LAST = re.compile(rb"^event: (end|error)$", re.MULTILINE)


@dataclass(frozen=True)
class Reply:
    """A response that was read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def table(self) -> pa.Table:
        return pa.ipc.open_stream(self.body).read_all()

    @property
    def reason(self) -> str:
        """The reason of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        problem = self.json()
        assert problem["status"] == self.status
        return str(problem["reason"])


def fetch(
    port: int,
    method: str,
    path: str,
    body: bytes | str | None = None,
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
    parameters: Mapping[str, Any] | None = None,
    connection: http.client.HTTPConnection | None = None,
    *,
    first_bytes: bool = False,
) -> Reply:
    """Send a request and read the response; with `first_bytes` only until its first `end` or
    error, since a stream of changes does not end by itself."""
    connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    typed = {} if content_type is None else {"content-type": content_type}
    if parameters:
        path += f"?{urlencode(parameters, quote_via=quote)}"
    content = body.encode() if isinstance(body, str) else body
    try:
        connection.request(method, path, content, {**(headers or {}), **typed})
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        if not first_bytes or response.status != 200:
            return Reply(response.status, names, response.read())
        received = b""
        while not received.endswith(b"\n\n") or not _LAST.search(received):
            received += response.readline()
        return Reply(response.status, names, received)
    finally:
        connection.close()


class WebServer:
    """Ready after `__init__`; `stop` ends it."""

    def __init__(
        self, settings: Settings | Path, web: WebSettings | None = None, token: str = ""
    ) -> None:
        if isinstance(settings, Path):
            settings = Settings(settings, port=0)
        self.settings = settings
        self.token = token
        self._web = web or WebSettings()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.run(self._start())
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.server.port}")
        self.stub: Any = PsoupStub(self.channel)

    async def _start(self) -> None:
        self.server = Server(self.settings)
        self.door = WebDoor(self.server, self._web)
        self.server.doors.append(self.door)
        await self.server.start()

    def run(self, work: Any) -> Any:
        """Return what a coroutine returns that runs in the server's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_SECONDS)

    @property
    def port(self) -> int:
        return self.door.port

    def stop(self) -> None:
        self.channel.close()
        assert self.run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ---- requests

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)

    def send(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        **parameters: Any,
    ) -> Reply:
        """Send a request; parameters of the URL are named with `__` in place of a dot."""
        credential = {"authorization": f"Bearer {self.token}"} if self.token else {}
        texts = {name.replace("__", "."): text for name, text in parameters.items()}
        sent = {**credential, **(headers or {})}
        return fetch(self.port, method, path, body, content_type, sent, texts, self.connection())

    def get(self, path: str, **parameters: Any) -> Reply:
        return self.send("GET", path, **parameters)

    def json(self, path: str, **parameters: Any) -> Any:
        reply = self.get(path, **parameters)
        assert reply.status == 200, reply
        return reply.json()

    def define(self, sql: str, **parameters: Any) -> Any:
        reply = self.send("POST", "/v1/define", sql, SQL, **parameters)
        assert reply.status == 200, reply
        return reply.json()

    def register(self, key: str, sql: str, **parameters: Any) -> Any:
        reply = self.send("PUT", f"/v1/registrations/{key}", sql, SQL, **parameters)
        assert reply.status in (200, 201), reply
        return reply.json()
