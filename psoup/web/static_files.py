"""The files of the console, which are part of the package."""

from __future__ import annotations

import hashlib
from pathlib import Path

from psoup.errors import BadRequest
from psoup.web.exchange import Headers, Request, Response

CONSOLE = Path(__file__).parent / "console"
INDEX = "index.html"

_CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_HEADERS: Headers = [
    ("content-security-policy", "default-src 'self'; frame-ancestors 'none'"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
]


class StaticFiles:
    """The files of a folder that there were at the start: no other path can be read."""

    def __init__(self, folder: Path = CONSOLE) -> None:
        self._files = {
            f"/{file.relative_to(folder).as_posix()}": file
            for file in folder.rglob("*")
            if file.is_file() and file.suffix in _CONTENT_TYPES
        }
        if f"/{INDEX}" in self._files:
            self._files["/"] = self._files[f"/{INDEX}"]

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def respond(self, request: Request) -> Response:
        """Return a file, or 304 if the browser has it."""
        if request.method not in ("GET", "HEAD"):
            raise BadRequest("files can only be read", reason="METHOD_NOT_ALLOWED")
        file = self._files[request.path]
        content = file.read_bytes()
        etag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        headers = [("content-type", _CONTENT_TYPES[file.suffix]), *_HEADERS, ("etag", etag)]
        if request.headers.get("if-none-match") == etag:
            return Response(304, headers)
        return Response(200, headers, content)
