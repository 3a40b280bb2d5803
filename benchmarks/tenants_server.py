"""A server that believes a header, `x-principal`, about who calls: for measurements of many
tenants on the own machine, where credentials would only be checked by what is measured."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from psoup.server.main import Server, parse_arguments
from tests.support.server.callers import TrustedHeaders


async def serve(folder: Path) -> None:
    server = Server(parse_arguments(["--store", str(folder)]))
    server.core.authenticator = TrustedHeaders()
    await server.start()
    sys.setswitchinterval(0.001)
    print(f"server ready on 127.0.0.1:{server.port}", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
