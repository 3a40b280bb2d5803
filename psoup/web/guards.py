"""Who may reach the port through a browser: hosts against DNS rebinding, origins against other
sites.

A store that asks nobody has no credential that another site would lack. So a page of another site
is refused by what browsers say of each request, with a credential or without. Programs other than
browsers send neither `Origin` nor `Sec-Fetch-Site`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from psoup.errors import BadRequest
from psoup.web.exchange import Headers, Request
from psoup.web.session import cookie_of

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_OTHER_SITES = ("cross-site", "same-site")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ALLOWED_HEADERS = (
    "accept",
    "authorization",
    "content-encoding",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "last-event-id",
    "traceparent",
    "tracestate",
)
_EXPOSED_HEADERS = "ETag, Psoup-Now, Psoup-Position, Psoup-Rows, Retry-After"
_PREFLIGHT_SECONDS = 600


class Guards:
    """The hosts and origins that a port answers. Without a port, a host is allowed with any."""

    def __init__(self, hosts: Callable[[], Iterable[str]], origins: Iterable[str] = ()) -> None:
        """`hosts` is called for each request: a certificate may be renewed."""
        self._hosts = hosts
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def check_host(self, request: Request) -> None:
        """Raise BadRequest, 421, if the request is for another host."""
        host = request.headers.get("host", "").lower()
        name = _without_port(host)
        _, dot, parent = name.partition(".")
        # A certificate for `*.example.org` is for all names beside this one.
        wildcard = f"*.{parent}" if dot else name
        if not {host, name, wildcard}.isdisjoint(map(str.lower, self._hosts())):
            return
        raise BadRequest(
            f"this server is not {host[:80]!r}",
            reason="WRONG_HOST",
            field="Host",
            hint="use the address that the server shows; --web-host allows another name",
        )

    def check_origin(self, request: Request) -> None:
        """Raise BadRequest, 403, if a page of another site makes the request."""
        origin = request.headers.get("origin")
        if origin is not None:
            # Other sites bring a token of their own, and never the cookie of a log-in.
            is_allowed = self._is_allowed(origin) and cookie_of(request) is None
            if is_allowed or self._is_own(origin, request):
                return
        elif request.headers.get("sec-fetch-site", "").lower() not in _OTHER_SITES:
            return
        raise BadRequest(
            "a page of another site may not use this server",
            reason="CROSS_SITE",
            field="Origin",
            got=(origin or "")[:80],
            hint="--web-origin allows the pages of a site",
        )

    def cors(self, request: Request) -> Headers:
        """Return the headers by which a browser hands a response to a page of an allowed site."""
        origin = request.headers.get("origin")
        if origin is None or not self._is_allowed(origin):
            return []
        return [
            ("access-control-allow-origin", origin),
            ("access-control-expose-headers", _EXPOSED_HEADERS),
            ("vary", "Origin"),
        ]

    def preflight(self, request: Request, methods: Iterable[str]) -> Headers:
        """Return the headers that answer a browser which asks before it sends."""
        asked = request.headers.get("access-control-request-headers", "").lower().split(",")
        names = [name.strip() for name in asked]
        allowed = [name for name in names if name in _ALLOWED_HEADERS or name.startswith("psoup-")]
        return [
            *self.cors(request),
            ("access-control-allow-methods", ", ".join(methods)),
            ("access-control-allow-headers", ", ".join(allowed)),
            ("access-control-max-age", str(_PREFLIGHT_SECONDS)),
        ]

    def _is_allowed(self, origin: str) -> bool:
        return origin.lower() in self._origins

    def _is_own(self, origin: str, request: Request) -> bool:
        """Return whether an origin is the host of the request."""
        try:
            parts = urlsplit(origin.lower())
            port = parts.port or _DEFAULT_PORTS[parts.scheme]
            host = urlsplit(f"{parts.scheme}://{request.headers.get('host', '').lower()}")
            own = host.hostname, host.port or _DEFAULT_PORTS[parts.scheme]
        except (ValueError, KeyError):
            return False
        return bool(parts.hostname) and (parts.hostname, port) == own


def loopback_hosts(port: int) -> list[str]:
    """Return the hosts of a port that only this machine reaches."""
    return [f"{name}:{port}" for name in _LOOPBACK_NAMES]


def _without_port(host: str) -> str:
    name, colon, digits = host.rpartition(":")
    return name if colon and digits.isdigit() else host
