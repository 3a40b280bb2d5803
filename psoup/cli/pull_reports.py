"""Reports of `psoup pull`: a line for each pull, and one exit code for all."""

from __future__ import annotations

from collections.abc import Iterable

from client_sdk import PsoupError
from client_sdk.pulls import (
    BadPull,
    HookFailed,
    OutputBusy,
    Pull,
    PullReport,
    passes,
    show_duration,
)
from psoup.cli.output import as_json, counted, echo
from psoup.cli.problems import (
    BUSY,
    HOOK_FAILED,
    NO_STORE,
    REFUSED,
    TRY_LATER,
    USAGE,
    complain,
    exit_code,
    show,
)

# The exit code of several pulls is the first one of these that occurred: the gravest first.
_BY_GRAVITY = (USAGE, REFUSED, HOOK_FAILED, NO_STORE, TRY_LATER, BUSY)


class Reporter:
    """Prints reports: results to standard output, failures to standard error."""

    def __init__(self, *, quiet: bool, lines: bool) -> None:
        self._quiet = quiet
        self._lines = lines

    def __call__(self, report: PullReport) -> None:
        if self._lines:
            echo(as_json(report.as_dict()))
            return
        if report.error is not None:
            show(report.error)
        elif report.hook is not None and report.hook.error is not None:
            complain(report.hook.error.message)
        if not self._quiet or report.error is not None:
            echo(line_of(report), err=report.error is not None)


def line_of(report: PullReport) -> str:
    """Return the line that describes a pull."""
    parts = [f"{report.at:%Y-%m-%d %H:%M:%SZ}", report.name]
    if report.position:
        parts += [f"{counted(report.rows, 'row')} at {_instant(report)}", _change(report)]
        parts.append(f"-> {report.pull.to}" if report.written else f"{report.pull.to} is current")
    else:
        parts.append("failed")
    parts.append(f"{report.seconds:.2f} s")
    if report.given_up:
        parts.append("given up")
    if report.next_in is not None:
        parts.append(f"next in {show_duration(report.next_in)}")
    return "  ".join(parts)


def _instant(report: PullReport) -> str:
    return "no instant yet" if report.now is None else str(report.now).replace("+00:00", "Z")


def _change(report: PullReport) -> str:
    verdict = "changed" if report.changed else "unchanged"
    received = f"{report.received:,} received"
    if report.whole:
        received += f", whole ({report.reason.lower().replace('_', ' ')})"
    if report.removed:
        received += f", {report.removed:,} removed"
    if report.pull.changes_to is not None:
        received += f", {counted(report.changes, 'change')} -> {report.pull.changes_to}"
    return f"{verdict}: {received}"


def code_of(error: PsoupError) -> int:
    """Return the exit code of a failed pull."""
    match error:
        case BadPull():
            return USAGE
        case OutputBusy():
            return BUSY
        case HookFailed():
            return HOOK_FAILED
    code = exit_code(error)
    return TRY_LATER if code == REFUSED and passes(error) else code


def code_of_all(reports: Iterable[PullReport], changed_code: int) -> int:
    """Return the gravest exit code; without errors 0, or `changed_code` if an answer changed."""
    all_reports = list(reports)
    codes = {code_of(report.error) for report in all_reports if report.error is not None}
    for code in _BY_GRAVITY:
        if code in codes:
            return code
    return changed_code if any(report.changed for report in all_reports) else 0


def describe(pull: Pull) -> Iterable[str]:
    """Yield lines that say what a pull would do, for --check."""
    yield f"{pull.name}: {_source(pull)}"
    tenant, owner = (name or "of the credentials" for name in pull.store.names)
    yield f"  from      {pull.store.target}, tenant {tenant}, owner {owner}"
    yield f"  to        {pull.to} ({pull.format})"
    if pull.changes_to is not None:
        yield f"  changes   {pull.changes_to}"
    yield f"  state     {pull.state_path}"
    yield f"  schedule  {_schedule(pull)}"
    if pull.hook is not None:
        yield f"  on change {pull.hook.command} (at most {show_duration(pull.hook.limit)})"


def _source(pull: Pull) -> str:
    if pull.handle is not None:
        return f"the registration {pull.handle}"
    if pull.sql is None:
        return f"the registration with client key {pull.key!r}"
    client_key = "" if pull.key is None else f" with client key {pull.key!r}"
    return f"registers{client_key}: {' '.join(pull.sql.split())}"


def _schedule(pull: Pull) -> str:
    plan = pull.schedule
    if plan is None:
        return "once"
    aligned = ", at full times in UTC" if plan.aligned else " after the first one"
    jitter = f", up to {show_duration(plan.jitter)} later" if plan.jitter else ""
    longest = show_duration(plan.backoff_cap or plan.every)
    backoff = f"after a failure in {show_duration(plan.backoff)}, doubling up to {longest}"
    return f"every {show_duration(plan.every)}{aligned}{jitter}; {backoff}"
