"""Whether a server lives and is ready, as pages."""

from __future__ import annotations

import json
from http import HTTPStatus

from psoup.monitoring.listener import PageReply
from psoup.server.core import Core

# The event loop answers, and touches no disk for it.
LIVE = PageReply(HTTPStatus.OK, b"OK\n")
_FOR_WRITING = "for=write"


def readiness(core: Core, query: str, is_detailed: bool) -> PageReply:
    """Return the page `/readyz`: 200 or 503, and what is missing if the reader may know that."""
    missing = core.lacks(for_writing=_FOR_WRITING in query.split("&"))
    status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
    if not is_detailed:
        return PageReply(status, f"{status.phrase}\n".encode())
    body = {"ready": not missing, "missing": missing}
    return PageReply(status, json.dumps(body).encode() + b"\n", "application/json")
