"""A copy that is up to date becomes an output that is, and the hook hears of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from client_sdk.copies import Change, Copy
from client_sdk.pulls._content import content_of
from client_sdk.pulls._errors import OutputFailed
from client_sdk.pulls._hook import run_hook
from client_sdk.pulls._memory import Memory, MemoryFile
from client_sdk.pulls._pull import Pull
from client_sdk.pulls._report import PullReport
from client_sdk.pulls._sinks import Output, Sink, sink_for


def deliver(copy: Copy, change: Change, pull: Pull, file: MemoryFile, memory: Memory) -> PullReport:
    """Writes the copy's answer at its NOW, where it is not what the output already has.

    The caller holds the copy at one moment. The rows are read twice, to compare and to write, and
    are never all in memory but for a Delta table. Raises OutputFailed; then the output is as it
    was.
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
    return _write(output, report, file, memory, f"{pull.format} {content.digest}")


def _write(
    output: Output, report: PullReport, file: MemoryFile, memory: Memory, content: str
) -> PullReport:
    pull = report.pull
    sink = sink_for(pull.to, pull.format, pull.name)
    changed = content != memory.content
    try:
        written = changed or pull.always or not memory.still_there(sink)
        if written:
            sink.write(output)
        memory = _remembered(replace(memory, content=content), sink)
    except sink.failures as error:
        raise OutputFailed(f"{pull.to} could not be written: {error}") from error
    memory = replace(memory, told=memory.told and not changed)
    if memory != file.load():
        file.save(memory)
    return replace(report, changed=changed, written=written)


def _remembered(memory: Memory, sink: Sink) -> Memory:
    stamp = sink.stamp()
    if stamp == memory.stamp:
        return memory
    return replace(memory, stamp=stamp, fingerprint=sink.fingerprint())


def tell(report: PullReport, file: MemoryFile) -> PullReport:
    """Runs the hook where there is a change it has not heard of."""
    memory, hook = file.load(), report.pull.hook
    if memory.told:
        return report
    if hook is None:
        file.save(replace(memory, told=True))
        return report
    run = run_hook(hook, facts(report))
    failed = run.error is not None and hook.must_succeed
    if not failed:
        file.save(replace(memory, told=True))
    return replace(report, hook=run, error=run.error if failed else None)


def facts(report: PullReport) -> dict[str, str]:
    """What the hook finds in its environment."""
    pull = report.pull
    return {
        "PSOUP_PULL": pull.name,
        "PSOUP_OUTPUT": str(pull.to.resolve()),
        "PSOUP_FORMAT": pull.format,
        "PSOUP_ROWS": str(report.rows),
        "PSOUP_RECEIVED": str(report.received),
        "PSOUP_NOW": "" if report.now is None else report.now.isoformat(),
        "PSOUP_POSITION": report.position.hex(),
        "PSOUP_TARGET": pull.store.target,
        "PSOUP_TENANT": pull.store.tenant,
        "PSOUP_OWNER": pull.store.owner,
    }
