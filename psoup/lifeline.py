"""A pipe that ends a child process with its parent, however the parent ends."""

from __future__ import annotations

import os
import signal
import threading

OPTION = "--end-with-stdin"
HELP = "end when standard input ends, which it does with the process that holds its other end"

_STDIN = 0


def end_with_stdin() -> None:
    """Send this process a SIGTERM when standard input ends, from now on; its content is
    discarded."""
    threading.Thread(target=_wait, name="lifeline", daemon=True).start()


def _wait() -> None:
    while os.read(_STDIN, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
