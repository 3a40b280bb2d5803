"""Pulling: pulls of one store and one state file are brought up to date in one round trip.

Every output is locked, the copies are synced together, and each answer that changed is written. A
pull that fails does not hold up the others. An interruption leaves nothing half done: the sync
commits the copy, the output is replaced at once, and the receipt is written last. If the hook of a
change was not run, the next pull runs it.

Client keys are looked up once and noted. A pull by key or handle also notes the registration's
text, so that one whose lease ended while the machine was off can be registered again. A
registration that was unregistered is not: that was on purpose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from client_sdk._client import Client
from client_sdk._exceptions import (
    BadPull,
    ErrorDetail,
    Incomplete,
    NotFound,
    OutputFailed,
    PsoupError,
)
from client_sdk._wire.models import Registration
from client_sdk._wire.values import duration, from_value, span, to_value
from client_sdk.copies import Change, Copies
from client_sdk.pulls._changes import append_changes, change_sink_for
from client_sdk.pulls._deliver import PullReport, deliver, run_due_hook
from client_sdk.pulls._pull import Pull
from client_sdk.pulls._receipt import Receipt, ReceiptFile
from client_sdk.pulls._sinks import sink_for
from psoup.v1 import psoup_pb2 as pb


@dataclass
class _Work:
    """A pull in progress. After an error no more steps are tried."""

    pull: Pull
    file: ReceiptFile
    receipt: Receipt = field(default_factory=Receipt)
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
    """Make one pull now, and return its report.

    Raises a PsoupError; the output is then as it was, unless it is a HookFailed.
    """
    (report,) = pull_many(client, [pull])
    if report.error is not None:
        raise report.error
    return report


def pull_many(client: Client, pulls: Sequence[Pull]) -> list[PullReport]:
    """Make pulls of one store with one state file, and return their reports in the same order.

    Errors are in the reports. Raises ValueError if the pulls have several stores or state files.
    """
    if len({(pull.store, pull.state_path.resolve()) for pull in pulls}) > 1:
        raise ValueError("pulls made together have one store and one state file")
    begun, at = time.monotonic(), datetime.now(UTC)
    works = [_Work(pull, ReceiptFile(pull.receipt_path)) for pull in pulls]
    # The stack holds the locks of the outputs until the last receipt is written.
    with ExitStack() as stack:
        for work in works:
            work.attempt(lambda work: _take(work, stack))
        try:
            _up_to_date(works, client, stack)
        except PsoupError as error:
            for work in _unfailed(works):
                work.error = error
    seconds = time.monotonic() - begun
    return [_report(work, at, seconds) for work in works]


def _take(work: _Work, stack: ExitStack) -> None:
    try:
        # Checked before the sync, so that a wrong output costs no transfer.
        sink_for(work.pull.to, work.pull.format, work.pull.name)
        if work.pull.changes_to is not None:
            change_sink_for(
                work.pull.changes_to, work.pull.changes_secret_file, work.pull.receivers
            )
    except BadPull as error:
        raise OutputFailed(error.message) from error
    stack.enter_context(work.file)
    work.receipt = work.file.load()


def _up_to_date(works: list[_Work], client: Client, stack: ExitStack) -> None:
    """Sync and deliver all pulls. Raises PsoupError for what concerns all of them."""
    if not _unfailed(works):
        return
    copies = stack.enter_context(Copies(works[0].pull.state_path, key=works[0].pull.state_key()))
    for work in works:
        work.attempt(lambda work: _declare(work, copies, client))
    _sync(_unfailed(works), copies, client)
    # Pulls whose registration was gone are synced again, with their new handle.
    _sync([work for work in _unfailed(works) if _renew(work, copies, client)], copies, client)
    for work in works:
        work.attempt(lambda work: _note_text(work, client))
        work.attempt(lambda work: _deliver(work, copies))


def _unfailed(works: list[_Work]) -> list[_Work]:
    return [work for work in works if work.error is None]


def _declare(work: _Work, copies: Copies, client: Client) -> None:
    work.receipt = declare(copies, client, work.pull, work.receipt)


def _sync(works: list[_Work], copies: Copies, client: Client) -> None:
    if works:
        synced = copies.sync(client, only=[work.pull.name for work in works])
        for work in works:
            work.change = synced[work.pull.name]


def _renew(work: _Work, copies: Copies, client: Client) -> bool:
    """Return whether the registration was gone and there is another one now."""
    before = work.receipt

    def find(work: _Work) -> None:
        refusal = None if work.change is None else work.change.error
        work.receipt = renew_handle(client, work.pull, before, refusal)
        if work.receipt is not before:
            keep_handle(copies, work.pull, work.receipt)

    work.attempt(find)
    return work.error is None and work.receipt is not before


def _note_text(work: _Work, client: Client) -> None:
    """Note the text that has replaced the one in the receipt."""
    if work.change is not None and work.change.reason == "REPLACED" and work.receipt.handle:
        registration = client.registration(work.receipt.handle)
        work.receipt = replace(work.receipt, registration=_request(registration).hex())


def _deliver(work: _Work, copies: Copies) -> None:
    change = work.change
    assert change is not None
    if change.error is not None:
        raise change.error
    if change.status == "incomplete":
        raise Incomplete(f"the transfer of {work.pull.name} was cut; the next pull continues it")
    # Rows are read twice, to compare and to write, and must be of one moment.
    with copies.snapshot():
        copy = copies[work.pull.name]
        report = deliver(copy, change, work.pull, work.file, work.receipt)
    if work.pull.changes_to is not None:
        sink = change_sink_for(
            work.pull.changes_to, work.pull.changes_secret_file, work.pull.receivers
        )
        count = append_changes(copies, work.pull.name, sink, work.file)
        report = replace(report, changes=count)
    work.report = run_due_hook(report, work.file)


def _report(work: _Work, at: datetime, seconds: float) -> PullReport:
    if work.report is None:
        return PullReport(work.pull, at, seconds, error=work.error)
    return replace(work.report, at=at, seconds=seconds)


EXPIRED = "REGISTRATION_EXPIRED"
_GONE_REASONS = frozenset({EXPIRED, "UNKNOWN_HANDLE"})


def declare(copies: Copies, client: Client, pull: Pull, receipt: Receipt) -> Receipt:
    """Keep the pull's copy. The store is asked only if the key or handle is new to the receipt."""
    if pull.key is None and pull.handle is None:
        copies.keep(
            pull.name,
            pull.sql,
            parameters=pull.parameters,
            lease=pull.lease,
            window=pull.window,
            priority=pull.priority,
            changes=pull.changes,
        )
        return receipt
    if receipt.source != _source(pull) or not receipt.handle:
        receipt = _look_up(client, pull, receipt)
    keep_handle(copies, pull, receipt)
    return receipt


def keep_handle(copies: Copies, pull: Pull, receipt: Receipt) -> None:
    handle = bytes.fromhex(receipt.handle)
    copies.keep(
        pull.name,
        handle=handle,
        window=pull.window,
        priority=pull.priority,
        changes=pull.changes,
    )


def renew_handle(client: Client, pull: Pull, receipt: Receipt, error: PsoupError | None) -> Receipt:
    """Return the receipt with another handle if its own is gone, unchanged if there is no other."""
    if error is None or error.reason not in _GONE_REASONS or not receipt.handle:
        return receipt
    try:
        if pull.key is not None:
            return _look_up(client, pull, receipt)
    except NotFound:
        # The key is gone too. If the lease ended, the text in the receipt is registered below.
        pass
    if error.reason != EXPIRED or not receipt.registration:
        return receipt
    request = pb.RegisterRequest.FromString(bytes.fromhex(receipt.registration))
    registered = client.register(
        request.sql,
        key=request.client_key or None,
        parameters={name: from_value(value) for name, value in request.parameters.items()},
        lease=span(request.lease),
    )
    return replace(receipt, handle=registered.hex)


def _source(pull: Pull) -> str:
    """Return the name of what the receipt's handle stands for. Another source is looked up
    again.
    """
    return "\n".join([*pull.store.names, pull.key or "", pull.handle or ""])


def _look_up(client: Client, pull: Pull, receipt: Receipt) -> Receipt:
    """Look the registration up, and return the receipt with it. Raises NotFound."""
    if pull.handle is not None:
        registration = client.registration(pull.handle)
    elif pull.sql is not None:
        registered = client.register(
            pull.sql, key=pull.key, parameters=pull.parameters or None, lease=pull.lease
        )
        registration = client.registration(registered.handle)
    else:
        registration = _registration_by_key(client, pull)
    return replace(
        receipt,
        source=_source(pull),
        handle=registration.hex,
        registration=_request(registration).hex(),
    )


def _registration_by_key(client: Client, pull: Pull) -> Registration:
    owner = client.owner()
    for registration in client.registrations(owner=owner):
        if registration.key == pull.key:
            return registration
    raise NotFound(
        f"owner {owner} has no registration with client key {pull.key!r}",
        detail=ErrorDetail(
            hint="`psoup list` shows them; if the pull has the SQL too, it registers it"
        ),
    )


def _request(registration: Registration) -> bytes:
    message = pb.RegisterRequest(
        sql=registration.sql, client_key=registration.key or "", lease=duration(registration.lease)
    )
    for name, value in registration.parameters.items():
        message.parameters[name].CopyFrom(to_value(value))
    return message.SerializeToString()
