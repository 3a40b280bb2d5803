"""A child that does not outlive its parent, however that ends: the two ends of a pipe."""

from __future__ import annotations

import os
import signal
import threading

OPTION = "--end-with-stdin"
HELP = "end when standard input does, as it does with the process that holds its other end"

_STDIN = 0


def end_with_stdin() -> None:
    """From now on the end of standard input is a SIGTERM to this process; what it holds is lost."""
    threading.Thread(target=_wait, name="lifeline", daemon=True).start()


def _wait() -> None:
    while os.read(_STDIN, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
