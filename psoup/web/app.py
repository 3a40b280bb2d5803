"""The ASGI application: from a request to its resource, and from a response to the client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import aclosing
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote_to_bytes

from psoup.errors import BadRequest
from psoup.web.exchange import Headers, Receive, Request, Response, Scope, Send
from psoup.web.gateway import Gateway
from psoup.web.guards import Guards
from psoup.web.monitoring import PATHS, WatchedPages
from psoup.web.openapi import Route
from psoup.web.parameters import Parameters
from psoup.web.problems import RefusedCall
from psoup.web.routes import ROUTES
from psoup.web.static_files import StaticFiles

_ALWAYS: Headers = [("x-content-type-options", "nosniff")]
_WITH_BODY = ("POST", "PUT")
# Set by the listener for a request whose headers it did not keep.
TOO_LARGE_HEADERS = "psoup.too_large_headers"

_Segments = tuple[str | None, ...]


class App:
    """The application of one port. `static` is None without the console."""

    def __init__(
        self, gateway: Gateway, guards: Guards, watched: WatchedPages, static: StaticFiles | None
    ) -> None:
        self._gateway = gateway
        self._guards = guards
        self._watched = watched
        self._static = static
        self._routes = _by_segments()
        self._date = (0, "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        request = Request(scope, receive)
        try:
            if (scope.get("state") or {}).get(TOO_LARGE_HEADERS):
                raise BadRequest("the headers are too large", reason="HEADERS_TOO_LARGE")
            response = await self._respond(request)
            if response.pieces is not None and scope["http_version"] == "1.0":
                await anext(response.pieces, None)
                await response.pieces.aclose()
                # Its bodies end with the connection, so one that is cut would look complete.
                raise BadRequest("a long answer needs HTTP/1.1", reason="OLD_HTTP")
        except Exception as error:
            response = self._refusal(error)
        headers = [*response.headers, *_ALWAYS, ("date", self._now()), *self._guards.cors(request)]
        if not request.body_ended:
            # What is left of the body would be read as the next request.
            headers.append(("connection", "close"))
        if response.pieces is None:
            await _send_whole(request, response, headers, send)
        else:
            await _send_pieces(request, response, headers, send)

    def _refusal(self, error: Exception) -> Response:
        refused = RefusedCall.by(error, self._gateway.core.store.id)
        extra = {"allow": refused.detail.expected} if refused.http_status == 405 else {}
        return refused.response(extra)

    async def _respond(self, request: Request) -> Response:
        if request.path in PATHS:
            return await self._watched.respond(request)
        self._guards.check_host(request)
        if self._static is not None and request.path in self._static:
            # A link to the console may stand on another site: the page itself has no data.
            if request.headers.get("sec-fetch-mode") != "navigate":
                self._guards.check_origin(request)
            return self._static.respond(request)
        self._guards.check_origin(request)
        methods, request.names = self._find(request.raw_path)
        if request.method == "OPTIONS":
            return Response(204, self._guards.preflight(request, methods))
        route = methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            expected = ", ".join(methods)
            raise BadRequest(
                f"{request.method} is not for this resource",
                reason="METHOD_NOT_ALLOWED",
                expected=expected,
            )
        _check_content_type(request, route)
        self._gateway.sessions.admit(request)
        request.parameters = Parameters.of(request.query_string, ("timeout", *route.parameters))
        return await route.respond(self._gateway, request)

    def _find(self, raw_path: bytes) -> tuple[Mapping[str, Route], Mapping[str, str]]:
        """Return the routes of a path by method, and the parts of it that have names."""
        try:
            # A slash inside a name is written %2F, so names are decoded after the path is cut.
            parts = tuple(unquote_to_bytes(part).decode() for part in raw_path.split(b"/")[1:])
        except UnicodeDecodeError:
            raise BadRequest("the path is not UTF-8", reason="NO_SUCH_RESOURCE") from None
        for segments, methods in self._routes.get(len(parts), {}).items():
            if all(segment in (None, part) for segment, part in zip(segments, parts, strict=True)):
                names = next(iter(methods.values())).path.split("/")[1:]
                return methods, {
                    name.strip("{}"): part
                    for name, segment, part in zip(names, segments, parts, strict=True)
                    if segment is None
                }
        raise BadRequest(
            "there is no such resource",
            reason="NO_SUCH_RESOURCE",
            hint="GET /v1/openapi.json lists the resources",
        )

    def _now(self) -> str:
        """Return the time of a response; it is spelled once a second."""
        second = int(time.time())
        if self._date[0] != second:
            self._date = second, formatdate(second, usegmt=True)
        return self._date[1]


def _by_segments() -> dict[int, dict[_Segments, dict[str, Route]]]:
    """Return the routes by the number of parts of their paths, the parts, and the method. Parts
    that have names are None, and come after those that are spelled out."""
    table: dict[int, dict[_Segments, dict[str, Route]]] = {}
    for route in sorted(ROUTES, key=lambda route: route.path.count("{")):
        parts = route.path.split("/")[1:]
        segments = tuple(None if part.startswith("{") else part for part in parts)
        table.setdefault(len(parts), {}).setdefault(segments, {})[route.method] = route
    return table


def _check_content_type(request: Request, route: Route) -> None:
    """Raise BadRequest, 415, for a body of another type. A page of another site can send only
    types that are listed nowhere without asking first."""
    if request.method not in _WITH_BODY:
        return
    if request.content_type not in route.bodies:
        raise BadRequest(
            f"a body of the type {request.content_type[:60]!r} is not taken here",
            reason="UNSUPPORTED_TYPE",
            field="Content-Type",
            expected=" or ".join(route.bodies),
            got=request.content_type[:60],
        )


# ---- sending


def _start(status: int, headers: Headers) -> dict[str, Any]:
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": encoded}


async def _send_whole(request: Request, response: Response, headers: Headers, send: Send) -> None:
    if response.status not in (204, 304):
        headers = [*headers, ("content-length", str(len(response.body)))]
    await send(_start(response.status, headers))
    body = {"type": "http.response.body", "body": response.body}
    if not request.body_ended:
        # A connection that is closed while the client sends is reset, and the response lost.
        await send({**body, "more_body": True})
        await request.discard_body()
        body["body"] = b""
    await send(body)


async def _send_pieces(request: Request, response: Response, headers: Headers, send: Send) -> None:
    """Send pieces as the client takes them, and end them if it goes. Pieces that fail end the
    connection without the end of the body."""
    assert response.pieces is not None
    task = asyncio.current_task()
    assert task is not None
    gone = asyncio.ensure_future(request.disconnected())
    gone.add_done_callback(lambda done: None if done.cancelled() else task.cancel())
    try:
        async with aclosing(response.pieces):
            # Pieces that were begun clean up when they are closed; others would not.
            piece = await anext(response.pieces, None)
            await send(_start(response.status, headers))
            while piece is not None and request.method != "HEAD":
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = await anext(response.pieces, None)
        await send({"type": "http.response.body", "body": b""})
    except RefusedCall:
        # Returning now leaves the body without its end, so the listener closes the connection.
        return
    except asyncio.CancelledError:
        if gone.cancelled() or not gone.done() or task.uncancel():
            raise
    finally:
        gone.cancel()
