"""One request and its response, between ASGI and the resources."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from psoup.errors import BadRequest
from psoup.web.parameters import Parameters

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[str, str]]
Arrive = Callable[[int], None]

JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"
ARROW, SQL, EVENTS = "application/vnd.apache.arrow.stream", "application/sql", "text/event-stream"

# A body that stays away for this long ends its request.
_BODY_SECONDS = 60.0
# What is unpacked on the event loop, in about a millisecond; more is unpacked in a thread.
_LOOP_BYTES = 64 << 10
_PACKINGS = ("gzip", "zstd")
# A byte of gzip unpacks to no more; one of zstd may.
_MAX_UNPACKING = 1 << 12
_ARRIVING_BYTES = 1 << 20
# How much of a refused body is read, and for how long, so that its client reads the refusal.
_DISCARDED_BYTES, _DISCARDING_SECONDS = 64 << 20, 2.0


@dataclass(slots=True)
class Response:
    """A response: `body`, or `pieces` that are made as the client reads them."""

    status: int = 200
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    pieces: AsyncGenerator[bytes, None] | None = None


def json_response(value: Any, status: int = 200, headers: Headers | None = None) -> Response:
    # The end of the line is for people with curl.
    content = f"{json.dumps(value, ensure_ascii=False)}\n".encode()
    return Response(status, [("content-type", JSON), *(headers or [])], content)


class Request:
    """A request whose headers have come. Its body is read when a resource asks for it."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.raw_path: bytes = scope.get("raw_path") or self.path.encode()
        self.is_secure = scope.get("scheme") == "https"
        self.client: tuple[str, int] = tuple(scope.get("client") or ("", 0))
        self.query_string: bytes = scope["query_string"]
        self.header_list = [
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in scope["headers"]
        ]
        self.headers: dict[str, str] = dict(self.header_list)
        # Of the route: parts of the path by name, and the query's parameters.
        self.names: Mapping[str, str] = {}
        self.parameters = Parameters({})
        self._receive = receive
        self.body_ended = not ({"content-length", "transfer-encoding"} & self.headers.keys())
        if self.headers.get("content-length") == "0":
            self.body_ended = True
        # A client that asks first sends no body once it is refused.
        self._awaits_go_ahead = "expect" in self.headers

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def body(self, max_bytes: int, arrive: Arrive = lambda nbytes: None) -> bytes:
        """Return the body, unpacked. Raise BadRequest for one of more than `max_bytes`.

        `arrive` is called before bytes are kept, with how many; it may raise.
        """
        packing = self.headers.get("content-encoding", "identity").strip().lower()
        if packing not in ("identity", *_PACKINGS):
            raise BadRequest(
                f"a body in {packing[:40]!r} is not taken",
                reason="UNSUPPORTED_TYPE",
                field="Content-Encoding",
                expected=" or ".join(_PACKINGS),
            )
        content = await self._received(max_bytes, arrive)
        if packing == "identity":
            return content
        # What it unpacks to is not known before.
        arrive(min(max_bytes, _MAX_UNPACKING * len(content)))
        if len(content) <= _LOOP_BYTES // 16:
            return _unpacked(content, packing, max_bytes)
        return await asyncio.to_thread(_unpacked, content, packing, max_bytes)

    async def _received(self, max_bytes: int, arrive: Arrive) -> bytes:
        length = self.headers.get("content-length", "")
        expected = int(length) if length.isdigit() and len(length) < 20 else 0
        if expected > max_bytes:
            raise _too_large(max_bytes, f"{expected} bytes")
        if self.body_ended:
            return b""
        self._awaits_go_ahead = False
        # A body of unknown length is counted as it grows.
        counted = expected
        arrive(counted)
        parts, size = [], 0
        while not self.body_ended:
            try:
                async with asyncio.timeout(_BODY_SECONDS):
                    message = await self._receive()
            except TimeoutError:
                raise BadRequest(
                    f"no byte of the body came for {_BODY_SECONDS:g} seconds", reason="SLOW_BODY"
                ) from None
            if message["type"] == "http.disconnect":
                raise BadRequest("the connection ended before the body", reason="SLOW_BODY")
            size += len(message.get("body", b""))
            if size > max_bytes:
                raise _too_large(max_bytes, "more")
            if size > counted:
                arrive(_ARRIVING_BYTES)
                counted += _ARRIVING_BYTES
            parts.append(message.get("body", b""))
            self.body_ended = not message.get("more_body", False)
        return b"".join(parts)

    async def discard_body(self) -> None:
        """Read what is left of the body, within bounds."""
        if self._awaits_go_ahead:
            return
        remaining = _DISCARDED_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARDING_SECONDS):
                while not self.body_ended and remaining > 0:
                    message = await self._receive()
                    remaining -= len(message.get("body", b""))
                    self.body_ended = not message.get("more_body", False)

    async def disconnected(self) -> None:
        """Return when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _unpacked(content: bytes, packing: str, max_bytes: int) -> bytes:
    """Return a packed body, of which no more than `max_bytes` are ever unpacked."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(content), packing) as stream:
            unpacked: bytes = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise BadRequest(f"the body is not {packing}: {error}", field="Content-Encoding") from None
    if len(unpacked) > max_bytes:
        raise _too_large(max_bytes, "more when it is unpacked")
    return unpacked


def _too_large(max_bytes: int, got: str) -> BadRequest:
    return BadRequest(
        f"a body of at most {max_bytes:,} bytes is taken",
        reason="BODY_TOO_LARGE",
        expected=f"at most {max_bytes} bytes",
        got=got,
        hint="send it in several requests",
    )
