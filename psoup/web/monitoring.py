"""`/livez`, `/readyz` and `/metrics` on the web port, for those who watch a server.

Probes come by address and show no credential, so anybody learns whether a server lives and is
ready. What it lacks, and its metrics, are for operators and for callers with the role `monitor`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from psoup.access.actions import monitors
from psoup.errors import BadRequest, PermissionDenied, Unauthenticated
from psoup.monitoring.listener import PageReply
from psoup.server.metrics.health import LIVE, readiness
from psoup.web.exchange import Request, Response
from psoup.web.gateway import Gateway
from psoup.web.guards import Guards

_LIVENESS, _READINESS, _METRICS = "/livez", "/readyz", "/metrics"
PATHS = (_LIVENESS, _READINESS, _METRICS)
_METHODS = ("GET", "HEAD")

# Makes the page of metrics; a server without one says why instead.
MakePage = Callable[[], Awaitable[PageReply]]


class WatchedPages:
    """The pages of a server for those who watch it. `metrics` makes the page of metrics, or is the
    reason why this port has none."""

    def __init__(self, gateway: Gateway, guards: Guards, metrics: MakePage | str) -> None:
        self._gateway = gateway
        self._guards = guards
        self._metrics = metrics

    async def respond(self, request: Request) -> Response:
        """Raise BadRequest, Unauthenticated, PermissionDenied."""
        if request.method not in _METHODS:
            raise BadRequest(
                f"{request.method} is not for this resource",
                reason="METHOD_NOT_ALLOWED",
                expected=", ".join(_METHODS),
            )
        if request.path == _LIVENESS:
            return _response(LIVE)
        if request.path == _READINESS:
            query = request.query_string.decode("latin-1")
            return _response(readiness(self._gateway.core, query, await self._is_monitor(request)))
        await self._demand_monitor(request)
        if isinstance(self._metrics, str):
            raise BadRequest(self._metrics, reason="NO_SUCH_RESOURCE")
        return _response(await self._metrics())

    async def _is_monitor(self, request: Request) -> bool:
        """Return whether a request shows that it may read more than a status. A probe must get an
        answer even if the credential, the host or the store is bad."""
        try:
            await self._demand_monitor(request)
        except Exception:
            return False
        return True

    async def _demand_monitor(self, request: Request) -> None:
        self._guards.check_host(request)
        self._guards.check_origin(request)
        principal, context = None, self._gateway.bare_context(request)
        try:
            principal = await self._gateway.identify(context)
            if not monitors(principal):
                raise PermissionDenied(
                    "metrics are for operators and the role monitor",
                    hint="ask an operator for an access key with the role monitor",
                )
        except (Unauthenticated, PermissionDenied) as error:
            self._gateway.core.security.note(context, principal, request.path, error)
            raise


def _response(reply: PageReply) -> Response:
    headers = [("content-type", reply.content_type), ("cache-control", "no-store")]
    return Response(reply.status.value, headers, reply.body)
