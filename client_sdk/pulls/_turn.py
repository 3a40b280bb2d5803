"""One turn: pulls of one store and one state file, brought up to date in one round trip.

Every output is locked, the copies are synced together, and each answer that changed is written.
A pull that fails does not hold up the others. Interrupted anywhere, nothing is half: the copy is
committed by the sync, the output replaced at once, and what was written is remembered last; a
change whose hook was not run is told by the next turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from client_sdk._client import Client
from client_sdk._exceptions import PsoupError
from client_sdk.copies import Change, Copies
from client_sdk.pulls._deliver import deliver, tell
from client_sdk.pulls._errors import BadPull, Incomplete, OutputFailed
from client_sdk.pulls._memory import Memory, MemoryFile
from client_sdk.pulls._pull import Pull
from client_sdk.pulls._report import PullReport
from client_sdk.pulls._sinks import sink_for
from client_sdk.pulls._source import declare, found_again, keep_handle


@dataclass
class _Work:
    """A pull under way; with an error it takes no further part."""

    pull: Pull
    file: MemoryFile
    memory: Memory = field(default_factory=Memory)
    change: Change | None = None
    error: PsoupError | None = None
    report: PullReport | None = None

    def attempt(self, step: Callable[[_Work], None]) -> None:
        if self.error is None:
            try:
                step(self)
            except PsoupError as error:
                self.error = error
            except OSError as error:
                self.error = OutputFailed(f"{self.pull.to}: {error}")


def pull_once(client: Client, pull: Pull) -> PullReport:
    """One pull, now. Raises what went wrong as a PsoupError; the output is as it was then,
    unless it is a HookFailed."""
    (report,) = pull_many(client, [pull])
    if report.error is not None:
        raise report.error
    return report


def pull_many(client: Client, pulls: Sequence[Pull]) -> list[PullReport]:
    """Pulls of one store with one state file. Errors are in the reports, in the same order."""
    if len({(pull.store, pull.state_path.resolve()) for pull in pulls}) > 1:
        raise ValueError("pulls made together have one store and one state file")
    begun, at = time.monotonic(), datetime.now(UTC)
    works = [_Work(pull, MemoryFile(pull.memory_path)) for pull in pulls]
    with ExitStack() as stack:
        for work in works:
            work.attempt(lambda work: _take(work, stack))
        try:
            _up_to_date(works, client, stack)
        except PsoupError as error:
            for work in _going(works):
                work.error = error
    seconds = time.monotonic() - begun
    return [_report(work, at, seconds) for work in works]


def _take(work: _Work, stack: ExitStack) -> None:
    try:
        sink_for(work.pull.to, work.pull.format, work.pull.name)
    except BadPull as error:
        raise OutputFailed(error.message) from error
    stack.enter_context(work.file)
    work.memory = work.file.load()


def _up_to_date(works: list[_Work], client: Client, stack: ExitStack) -> None:
    """Raises PsoupError for what concerns all of them."""
    if not _going(works):
        return
    copies = stack.enter_context(Copies(works[0].pull.state_path))
    for work in works:
        work.attempt(lambda work: _declare(work, copies, client))
    _sync(_going(works), copies, client)
    _sync([work for work in _going(works) if _again(work, copies, client)], copies, client)
    for work in works:
        work.attempt(lambda work: _deliver(work, copies))


def _going(works: list[_Work]) -> list[_Work]:
    return [work for work in works if work.error is None]


def _declare(work: _Work, copies: Copies, client: Client) -> None:
    work.memory = declare(copies, client, work.pull, work.memory)


def _sync(works: list[_Work], copies: Copies, client: Client) -> None:
    if works:
        synced = copies.sync(client, only=[work.pull.name for work in works])
        for work in works:
            work.change = synced[work.pull.name]


def _again(work: _Work, copies: Copies, client: Client) -> bool:
    """Whether the registration was gone and another one has been found or made."""
    before = work.memory

    def find(work: _Work) -> None:
        refusal = None if work.change is None else work.change.error
        work.memory = found_again(client, work.pull, before, refusal)
        if work.memory is not before:
            keep_handle(copies, work.pull, work.memory)

    work.attempt(find)
    return work.error is None and work.memory is not before


def _deliver(work: _Work, copies: Copies) -> None:
    change = work.change
    assert change is not None
    if change.error is not None:
        raise change.error
    if change.status == "incomplete":
        raise Incomplete(f"the transfer of {work.pull.name} was cut; the next pull goes on")
    with copies.snapshot():
        copy = copies[work.pull.name]
        report = deliver(copy, change, work.pull, work.file, work.memory)
    work.report = tell(report, work.file)


def _report(work: _Work, at: datetime, seconds: float) -> PullReport:
    if work.report is None:
        return PullReport(work.pull, at, seconds, error=work.error)
    return replace(work.report, at=at, seconds=seconds)
