"""Delivery: an output is made of an up-to-date copy, and the hook is run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from client_sdk._exceptions import HookFailed, OutputFailed, PsoupError
from client_sdk.copies import Change, Copy
from client_sdk.pulls._pull import Hook, Pull
from client_sdk.pulls._receipt import Receipt, ReceiptFile, content_of
from client_sdk.pulls._schedule import show_duration
from client_sdk.pulls._sinks import Output, Sink, sink_for


def deliver(
    copy: Copy, change: Change, pull: Pull, file: ReceiptFile, receipt: Receipt
) -> PullReport:
    """Write the copy's answer at its NOW, if the output does not have it already.

    The caller must hold the copy at one moment. The rows are read twice, to compare and to write,
    and are never all in memory, except for a Delta table. Raises OutputFailed; then the output is
    as it was.
    """
    state = copy.state
    output = Output(
        pull.name, state.columns, lambda: copy.batches(state.now), state.now, state.position
    )
    content = content_of(output.schema, output.batches())
    report = PullReport(
        pull,
        datetime.now(UTC),
        rows=content.rows,
        received=change.rows,
        removed=change.removed,
        whole=change.whole,
        reason=change.reason,
        now=state.now,
        position=state.position,
    )
    return _write(
        output,
        report,
        file,
        receipt,
        f"{pull.format}{' safe' if pull.csv_safe else ''} {content.digest}",
    )


def _write(
    output: Output, report: PullReport, file: ReceiptFile, receipt: Receipt, content: str
) -> PullReport:
    pull = report.pull
    sink = sink_for(pull.to, pull.format, pull.name, pull.csv_safe)
    changed = content != receipt.content
    try:
        written = changed or pull.always or not receipt.still_there(sink)
        if written:
            sink.write(output)
        receipt = _stamped(replace(receipt, content=content), sink)
    except sink.failures as error:
        raise OutputFailed(f"{pull.to} could not be written: {error}") from error
    # From here on the hook is due, even if the process ends before it is run.
    receipt = replace(receipt, told=receipt.told and not changed)
    if receipt != file.load():
        file.save(receipt)
    return replace(report, changed=changed, written=written)


def _stamped(receipt: Receipt, sink: Sink) -> Receipt:
    stamp = sink.stamp()
    # A fingerprint reads the whole output, so it is made only if the stamp has changed.
    if stamp == receipt.stamp:
        return receipt
    return replace(receipt, stamp=stamp, fingerprint=sink.fingerprint())


def run_due_hook(report: PullReport, file: ReceiptFile) -> PullReport:
    """Run the hook if it was not run for a change yet."""
    receipt, hook = file.load(), report.pull.hook
    if receipt.told:
        return report
    if hook is None:
        file.save(replace(receipt, told=True))
        return report
    run = run_hook(hook, facts(report))
    failed = run.error is not None and hook.must_succeed
    # A hook that must succeed stays due until it does.
    if not failed:
        file.save(replace(receipt, told=True))
    return replace(report, hook=run, error=run.error if failed else None)


def facts(report: PullReport) -> dict[str, str]:
    """Return the variables that are added to the environment of the hook."""
    pull = report.pull
    tenant, owner = pull.store.names
    return {
        "PSOUP_PULL": pull.name,
        "PSOUP_OUTPUT": str(pull.to.resolve()),
        "PSOUP_FORMAT": pull.format,
        "PSOUP_ROWS": str(report.rows),
        "PSOUP_RECEIVED": str(report.received),
        "PSOUP_NOW": "" if report.now is None else report.now.isoformat(),
        "PSOUP_POSITION": report.position.hex(),
        "PSOUP_TARGET": pull.store.target,
        "PSOUP_TENANT": tenant,
        "PSOUP_OWNER": owner,
    }


TERMINATION_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class HookRun:
    """A run of the hook. `error` is None if it ended with 0 in time."""

    seconds: float
    error: HookFailed | None = None


def run_hook(hook: Hook, facts: Mapping[str, str]) -> HookRun:
    """Run the command, in a shell and a process group of its own, and wait for it.

    Its output goes to standard error, where it does no harm to a log. After its limit, or if the
    caller is interrupted, the command and what it started get SIGTERM, and SIGKILL two seconds
    later.
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
        env={**_without_secrets(os.environ), **facts},
        stdin=subprocess.DEVNULL,
        stdout=2,
        # A group of its own, so that `_end` reaches what the command has started.
        start_new_session=True,
    )


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the token of the pull: a hook must have its own."""
    return {name: value for name, value in environment.items() if name != "PSOUP_TOKEN"}


def _ending(code: int) -> str:
    return f"ended with {code}" if code > 0 else f"was killed by signal {-code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    # SIGKILL follows even if the shell has ended, because its children may ignore SIGTERM.
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TERMINATION_SECONDS)


@dataclass(frozen=True)
class PullReport:
    """The result of one pull.

    `changed` is True if the answer differs from the one last written, `written` if it was written
    now. `rows` are in the answer, which is of `position` and NOW; `received` rows were transferred,
    and `removed` were deleted; `changes` were appended, if the pull has `changes_to`. `whole` is
    True if the whole answer was sent, and `reason` says why. With an `error` the output is as it
    was, unless the error is a HookFailed. `next_in` is None if there is no next pull, and
    `given_up` is True if the schedule was abandoned.
    """

    pull: Pull
    at: datetime
    seconds: float = 0.0
    changed: bool = False
    written: bool = False
    rows: int = 0
    received: int = 0
    removed: int = 0
    changes: int = 0
    whole: bool = False
    reason: str = ""
    now: datetime | None = None
    position: bytes = b""
    error: PsoupError | None = None
    hook: HookRun | None = None
    next_in: timedelta | None = None
    given_up: bool = False

    @property
    def name(self) -> str:
        return self.pull.name

    @property
    def ok(self) -> bool:
        return self.error is None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values only, for a log."""
        return {
            "at": self.at.isoformat(),
            "pull": self.name,
            "output": str(self.pull.to),
            "ok": self.ok,
            "changed": self.changed,
            "written": self.written,
            "rows": self.rows,
            "received": self.received,
            "removed": self.removed,
            "changes": self.changes,
            "whole": self.whole,
            "reason": self.reason,
            "now": None if self.now is None else self.now.isoformat(),
            "position": self.position.hex(),
            "seconds": round(self.seconds, 3),
            "error": None if self.error is None else self.error.message,
            "error_reason": "" if self.error is None else self.error.reason,
            "hook_error": None
            if self.hook is None or self.hook.error is None
            else self.hook.error.message,
            "given_up": self.given_up,
            "next_in": None if self.next_in is None else round(self.next_in.total_seconds(), 3),
        }
