"""The command that is run after a change, in a shell and a process group of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

from client_sdk.pulls._durations import show_duration
from client_sdk.pulls._errors import HookFailed
from client_sdk.pulls._pull import Hook

GRACE = 2.0


@dataclass(frozen=True, slots=True)
class HookRun:
    """`error` None: it ended with 0 in time."""

    seconds: float
    error: HookFailed | None = None


def run_hook(hook: Hook, facts: Mapping[str, str]) -> HookRun:
    """Waits for it. What it prints goes to standard error, where it does no harm to a log.

    Past its limit, and where the caller is interrupted, the command and what it started get
    SIGTERM, and SIGKILL two seconds later.
    """
    begun = time.monotonic()
    process = subprocess.Popen(
        hook.command,
        shell=True,
        env={**os.environ, **facts},
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
    )
    try:
        code = process.wait(hook.limit.total_seconds())
        error = None if code == 0 else HookFailed(f"on_change {_ending(code)}: {hook.command}")
    except subprocess.TimeoutExpired:
        _end(process)
        limit = show_duration(hook.limit)
        error = HookFailed(f"on_change took longer than {limit} and was ended: {hook.command}")
    except BaseException:
        _end(process)
        raise
    return HookRun(time.monotonic() - begun, error)


def _ending(code: int) -> str:
    return f"ended with {code}" if code > 0 else f"was killed by signal {-code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
