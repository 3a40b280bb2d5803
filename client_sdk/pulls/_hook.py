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
    try:
        process = _start(hook, facts)
    except OSError as error:
        return HookRun(0.0, HookFailed(f"on_change could not be started: {error}"))
    try:
        code = process.wait(hook.limit.total_seconds())
        failed = None if code == 0 else _ending(code)
    except subprocess.TimeoutExpired:
        _end(process)
        failed = f"took longer than {show_duration(hook.limit)} and was ended"
    except BaseException:
        _end(process)
        raise
    failure = None if failed is None else HookFailed(f"on_change {failed}: {hook.command}")
    return HookRun(time.monotonic() - begun, failure)


def _start(hook: Hook, facts: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        hook.command,
        shell=True,
        cwd=hook.folder,
        env={**os.environ, **facts},
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
    )


def _ending(code: int) -> str:
    return f"ended with {code}" if code > 0 else f"was killed by signal {-code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
