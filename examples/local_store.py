"""A store of one's own, for as long as a block of code runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client_sdk import Client, PsoupError

PATIENCE = 60.0


@contextmanager
def running_store(folder: Path, *options: str) -> Iterator[str]:
    """A server and an engine over `folder`, as processes of their own, until the block is left;
    `options` are those of `psoup serve`.

    Gives the server's address as soon as it answers, which is before the engine has started.
    Raises RuntimeError, with the end of its log, if the store does not start.
    """
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "psoup.cli", "serve", str(folder / "store")]
    log = folder / "serve.log"
    with log.open("wb") as output:
        # A session of its own: Ctrl-C reaches only the caller, which then ends the store in order.
        process = subprocess.Popen(
            [*command, "--listen", address, *options],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait_for(address, process, log)
        yield address
    finally:
        _stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with Client(address) as client:
                client.status(timeout=1)
                return
        except PsoupError:
            time.sleep(0.2)
    raise RuntimeError(f"the store did not start:\n{log.read_text(errors='replace')[-4000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
