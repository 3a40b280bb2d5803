"""Invoke: waits where it must, plans, computes, and streams what came out."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from datastem.schema import StreamSchema
from psoup.server.core import Core
from psoup.server.describing import columns_message
from psoup.server.errors import BadRequest, NotReached, StreamDropped
from psoup.server.invoke import Answer, Interval, Plan, answer, read_query
from psoup.server.matcher import Matcher, Uncovered, Work
from psoup.server.names import default_name
from psoup.server.pieces import pieces
from psoup.server.proposals import find_registration
from psoup.server.registering import check_text
from psoup.server.values import BadValue, from_duration, from_instant, to_instant
from psoup.store import CorruptStore, Position, StreamState
from psoup.v1 import psoup_pb2 as pb
from querystem.language import bind_window
from results.window import Window

# Answer this much before the caller's deadline, so that the reason arrives in time.
_MARGIN = 0.05


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant of the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float | None, limit: float) -> Deadline:
        allowed = limit if seconds is None else min(limit, seconds - _MARGIN)
        return cls(time.monotonic() + max(allowed, 0.0))

    @property
    def left(self) -> float:
        return max(0.0, self.at - time.monotonic())


async def invoke(
    core: Core, request: pb.InvokeRequest, seconds: float | None
) -> AsyncIterator[pb.InvokeResponse]:
    """`seconds` is what is left of the call's own deadline, if it has one."""
    started = time.perf_counter()
    deadline = Deadline.after(seconds, core.settings.wait)
    if request.encoding not in pb.Encoding.values():
        raise BadRequest("an encoding this server does not know", field="encoding")
    await _reach(core, request, deadline)
    if request.handle not in core.follower.state.registrations:
        await core.follower.catch_up()
    plan, found, messages = await _answer(core, request, deadline)
    header = _header(core, plan, found, int((time.perf_counter() - started) * 1e6))
    yield pb.InvokeResponse(header=header)
    message, last = messages.first
    while message is not None:
        yield message
        if last:
            return
        message, last = await core.in_thread(messages.next)


class _Messages:
    """Looks one message ahead, so that the last one is known to be the last."""

    def __init__(self, source: Iterator[pb.InvokeResponse]) -> None:
        self._source = source
        self._ahead = next(source, None)
        self.first = self.next()

    def next(self) -> tuple[pb.InvokeResponse | None, bool]:
        message, self._ahead = self._ahead, next(self._source, None)
        return message, self._ahead is None


# ---- waiting


async def _reach(core: Core, request: pb.InvokeRequest, deadline: Deadline) -> None:
    if not request.least_position:
        return
    least = core.store.positions.decode(request.least_position)
    if core.follower.state.position < least:
        await core.follower.catch_up()
    while core.follower.state.position < least:
        if not deadline.left or not await core.follower.moved(deadline.left):
            raise NotReached(
                "this server has not seen that position yet",
                expected=_show(least),
                got=_show(core.follower.state.position),
                hint="ask again, or with a longer deadline",
            )


def _show(position: Position) -> str:
    return f"position {position.version}.{position.ordinal}"


async def _answer(
    core: Core, request: pb.InvokeRequest, deadline: Deadline
) -> tuple[Plan, Answer, _Messages]:
    """Again with the newest epoch where a file is gone, once; or each time the engine moves."""
    retried = False
    while True:
        plan = make_plan(core, request)
        try:
            return plan, *await core.in_thread(_compute, core, plan, request)
        except (FileNotFoundError, CorruptStore):
            if retried:
                raise
            retried = True
            await core.follower.refresh()
        except Uncovered:
            await _wait_for_engine(core, plan, deadline)


async def _wait_for_engine(core: Core, plan: Plan, deadline: Deadline) -> None:
    while core.follower.view.epoch.number == plan.view.epoch.number:
        if not deadline.left or not await core.follower.moved(deadline.left):
            rows, _ = core.follower.behind(core.clock())
            raise NotReached(
                f"the engine has not matched this query over all its rows; "
                f"it is {rows:,} rows behind",
                hint="ask without wait_for_engine, or with a longer deadline",
            )


def _compute(core: Core, plan: Plan, request: pb.InvokeRequest) -> tuple[Answer, _Messages]:
    matcher = Matcher(
        plan.predicate_id,
        plan.stream_id,
        plan.query.where,
        plan.view,
        core.store.table("matches").root,
        core.known,
        core.match_cache,
        Work(None if request.wait_for_engine else core.settings.compute_rows),
    )
    found = answer(plan, matcher)
    limit = core.settings.piece_bytes
    return found, _Messages(pieces(found.rows, plan.query.columns, request.encoding, limit))


# ---- planning


def make_plan(core: Core, request: pb.InvokeRequest) -> Plan:
    """Everything of one moment: nothing here waits."""
    tenant = default_name(request.tenant, "tenant", core.settings)
    state, view = core.follower.state, core.follower.view
    registration = find_registration(state, tenant, request.handle)
    stream = state.streams[registration.stream_id]
    if stream.dropped:
        raise StreamDropped(
            f"stream {stream.schema.name} was dropped, and its rows with it",
            hint="unregister this query",
        )
    query = read_query(registration.query)
    window = query.window
    if request.window:
        check_text(core, request.window)
        window = bind_window(request.window, stream.schema)
    current = now_of(core, stream)
    as_of = _as_of(core, request)
    now = current if as_of is None else as_of
    today = request.knowledge == pb.KNOWLEDGE_TODAY
    interval, notes = _interval(window, stream.schema, now, current)
    return Plan(
        query,
        stream.schema,
        stream.id,
        registration.predicate_id,
        core.follower.stems[stream.id].view(),
        view,
        state.position,
        now,
        interval,
        as_of if as_of is not None and not today and as_of < state.clock else None,
        notes,
    )


def now_of(core: Core, stream: StreamState) -> int | None:
    """NOW of a stream: the clock, or the greatest ts reached; None before there is one."""
    if stream.schema.ordered_by is not None:
        return stream.reached
    return max(core.clock(), core.follower.state.clock)


def _as_of(core: Core, request: pb.InvokeRequest) -> int | None:
    if not request.HasField("as_of"):
        return None
    try:
        as_of = to_instant(request.as_of)
    except BadValue as bad:
        raise BadRequest(f"as_of {bad}", reason=bad.reason, field="as_of") from None
    if as_of > max(core.clock(), core.follower.state.clock):
        raise BadRequest(
            "as_of lies in the future; nothing is known then",
            reason="OUT_OF_RANGE",
            field="as_of",
            hint="leave it out to ask for now",
        )
    return as_of


def _interval(
    window: Window, schema: StreamSchema, now: int | None, current: int | None
) -> tuple[Interval | None, tuple[str, ...]]:
    """What is retained is retained at the stream's own NOW, whatever instant is asked about."""
    if now is None or current is None:
        return None, ("the stream has no rows yet, so it has no NOW",)
    begin, end = window.at(now)
    notes: tuple[str, ...] = ()
    if schema.retain is not None:
        oldest = max(now, current) - schema.retain + 1
        if begin is not None and begin < oldest:
            notes = ("the window began before the retention; what is left is shown",)
        begin = oldest if begin is None else max(begin, oldest)
    return Interval(begin, end), notes


# ---- the header


def _header(core: Core, plan: Plan, found: Answer, elapsed: int) -> pb.AnswerHeader:
    rows, age = core.follower.behind(core.clock())
    header = pb.AnswerHeader(
        position=core.store.positions.encode(found.position),
        row_count=found.rows.num_rows,
        columns=columns_message(plan.query.columns),
        computed_rows=found.computed_rows,
        epoch=plan.view.epoch.number,
        behind_rows=rows,
        behind=from_duration(age),
        elapsed=from_duration(elapsed),
        notes=plan.notes,
    )
    if plan.now is not None:
        header.now.CopyFrom(from_instant(plan.now))
    if plan.interval is not None:
        _window_ends(header, plan.interval)
    return header


def _window_ends(header: pb.AnswerHeader, interval: Interval) -> None:
    if interval.begin is not None:
        header.window_begin.CopyFrom(from_instant(interval.begin))
    header.window_end.CopyFrom(from_instant(interval.end - 1))
