"""The priority of commands that work beside servers for long."""

from __future__ import annotations

import contextlib
import os

# They take the processor time that servers leave.
_NICENESS = 10

_is_own_process = False


def begin_process() -> None:
    """Note that this process runs one command and ends."""
    global _is_own_process
    _is_own_process = True


def yield_to_servers() -> None:
    """Lower the priority of this process and of threads to come; call it before large imports,
    which take longer than the copy of a small store. A process that runs commands beside other work
    keeps its priority, because it could not raise it again."""
    if _is_own_process and hasattr(os, "nice"):
        with contextlib.suppress(OSError):
            os.nice(_NICENESS)
