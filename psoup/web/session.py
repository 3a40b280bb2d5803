"""Log-ins of the console: a cookie that holds the bearer token, sealed, so that no server has to
remember it and every server of the store can open it.

Cookies do not separate ports, and travel in the open without TLS. So only a request over TLS gets
one; other pages keep their token themselves.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
import time

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from psoup.errors import BadRequest, Unauthenticated
from psoup.server.core import Core
from psoup.web.exchange import Headers, Request

# A cookie of this name is Secure, has no Domain and the path /, or browsers drop it.
NAME = "__Host-psoup"
SESSION_SECONDS = 12 * 3600
# Browsers drop cookies of more than 4 KB, and a JWT may have 8.
MAX_COOKIE_BYTES = 3900
# A header that a page of another site can't send without being asked first.
OWN_REQUEST = "psoup-request"

_KEY_BYTES = 32
_NONCE_BYTES = 12
_EXPIRY = struct.Struct(">q")
_PURPOSE = b"psoup web session 1"
_ATTRIBUTES = "HttpOnly; Secure; SameSite=Strict; Path=/"


class Sessions:
    """Seals and opens cookies with a key that all servers of a store derive alike."""

    def __init__(self, core: Core) -> None:
        self._cipher = AESGCM(core.tokens.derived("web sessions", _KEY_BYTES))

    def seal(self, token: str, now: float) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        content = _EXPIRY.pack(int(now) + SESSION_SECONDS) + token.encode()
        sealed = self._cipher.encrypt(nonce, content, _PURPOSE)
        return base64.urlsafe_b64encode(nonce + sealed).decode().rstrip("=")

    def open(self, cookie: str, now: float) -> str:
        """Return the token of a cookie. Raise Unauthenticated for one that is forged or expired."""
        try:
            sealed = base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
            content = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _PURPOSE)
        except (InvalidTag, ValueError, binascii.Error):
            raise _ended("the log-in of this page can't be read") from None
        (expiry,) = _EXPIRY.unpack_from(content)
        if now >= expiry:
            raise _ended("the log-in of this page has expired")
        return content[_EXPIRY.size :].decode()

    def admit(self, request: Request) -> None:
        """Show the token of a request's cookie as a bearer token, unless the request shows one
        itself. Raise BadRequest, 403, if a page of another site may have made it, and
        Unauthenticated."""
        cookie = cookie_of(request)
        if cookie is None or "authorization" in request.headers:
            return
        if request.headers.get(OWN_REQUEST) != "1":
            raise BadRequest(
                "a request with the cookie of a log-in needs the header Psoup-Request: 1",
                reason="CROSS_SITE",
                field="Psoup-Request",
            )
        request.header_list.append(("authorization", f"Bearer {self.open(cookie, time.time())}"))

    def begin(self, request: Request, token: str) -> tuple[Headers, str]:
        """Return the headers that log a page in; without one, why the page keeps its token."""
        if not request.is_secure:
            return [], "without TLS there is no cookie"
        cookie = f"{NAME}={self.seal(token, time.time())}"
        if len(cookie) > MAX_COOKIE_BYTES:
            return [], "the token is too long for a cookie"
        return [("set-cookie", f"{cookie}; Max-Age={SESSION_SECONDS}; {_ATTRIBUTES}")], ""


def end() -> Headers:
    """Return the headers that log a page out."""
    return [("set-cookie", f"{NAME}=; Max-Age=0; {_ATTRIBUTES}")]


def cookie_of(request: Request) -> str | None:
    """Return the content of the cookie of a log-in; only TLS brings one."""
    if not request.is_secure:
        return None
    for part in request.headers.get("cookie", "").split(";"):
        name, _, content = part.strip().partition("=")
        if name == NAME:
            return content
    return None


def _ended(message: str) -> Unauthenticated:
    return Unauthenticated(message, hint="log in again")
