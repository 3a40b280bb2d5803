"""A server that believes a header, `x-principal`, about who calls: for measurements of many
tenants on the own machine, where credentials would only be checked by what is measured."""

from __future__ import annotations

import asyncio
import sys

from psoup.server.main import Server, serve
from psoup.server.options import parse_arguments
from psoup.web.listener import WebDoor
from psoup.web.settings import WebSettings
from tests.support.server.callers import TrustedHeaders


def believe(server: Server) -> None:
    server.core.authenticator = TrustedHeaders()
    server.doors.append(WebDoor(server, WebSettings()))


if __name__ == "__main__":
    asyncio.run(serve(parse_arguments(["--store", *sys.argv[1:]]), believe))
