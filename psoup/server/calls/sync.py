"""One Sync: wait for positions, aim all items at one moment, send them by priority."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from datastem.arrays import Int64s
from psoup.answers import Plan, Question
from psoup.answers.difference import Claim, CopyJob, Repair, WholeReason
from psoup.answers.difference.erased import erased_rows
from psoup.answers.difference.job import aim, make_job
from psoup.answers.difference.keys import NO_IDS
from psoup.answers.planning.prepared import PreparedQuery
from psoup.answers.planning.question import (
    RegisteredQuery,
    StoredTexts,
    cached_prepared,
    prepare,
    read_texts,
    texts_of,
)
from psoup.answers.planning.sources import TextReplaced
from psoup.errors import BadRequest, UnknownTimeZone
from psoup.server.call import Call
from psoup.server.call_trace import traced_child
from psoup.server.calls.transfer import Budget, Transfer, copy_subject
from psoup.server.calls.waiting import Deadline, is_foreign, reach, reach_own
from psoup.server.calls.withdrawn import WithdrawnTransfer, is_withdrawn
from psoup.server.calls.zones import zones_for
from psoup.server.core import Core
from psoup.server.status_codes import FAMILIES, code_of, detail_of
from psoup.server.wire.copies import CopySubject, Signed, Tokens, Unusable
from psoup.server.wire.values import BadValue, to_micros
from psoup.v1 import psoup_pb2 as pb
from results.id_sets import from_runs

T = TypeVar("T")

MAX_ITEMS = 1000
# Refresh points of an item that a call computes, with or without changes.
MAX_POINTS = 1000
# Ids a client may name in `have` and `resend`, of all items of a call: a few bytes can name many.
MAX_IDS = 50_000_000
# An id is in memory twice while it is compared with the rows.
_ID_BYTES = 16

_UNLIMITED = sys.maxsize
_ENCODINGS = frozenset(pb.Encoding.values())

# What is to be done for an item: a difference to be sent, a copy to be emptied, or a refusal.
_Job: TypeAlias = CopyJob | WithdrawnTransfer | Exception


def sync(core: Core, call: Call, request: pb.SyncRequest) -> AsyncGenerator[pb.SyncPart, None]:
    """Return the parts that bring copies up to date. Raise BadRequest."""
    return SyncCall(core, call, request).parts(Deadline.of(call, core.settings.wait))


@dataclass(frozen=True, slots=True)
class ItemRead:
    """The parts of an item that take long to read: its texts, and its ids, of which a few bytes may
    name many."""

    question: Question
    repair: Repair


class SyncCall:
    """A request that was checked. `transfers` are by item, for the items that were begun."""

    def __init__(self, core: Core, call: Call, request: pb.SyncRequest) -> None:
        """Raise BadRequest."""
        _check(request)
        self._core = core
        self._call = call
        self._request = request
        self._acting = acting = call.acting(request)
        self._away = _away(request)
        self._signed = [_signed(core.tokens, item.token, acting.binding) for item in request.items]
        self.transfers: dict[int, Transfer | WithdrawnTransfer] = {}
        self._subjects: dict[int, CopySubject] = {}
        # The plan that the job of a single item was made with, until the transfer has begun.
        self._plan: Plan | None = None
        self._hold = call.hold

    async def parts(self, deadline: Deadline) -> AsyncGenerator[pb.SyncPart, None]:
        """Yield the parts of all items, one item after the other. Raise Overloaded, BadRequest."""
        room_bytes = 0 if self._hold is None else self._hold.nbytes
        try:
            async with contextlib.aclosing(self._parts(deadline)) as parts:
                async for part in parts:
                    yield part
        finally:
            # The next round of a Watch names no ids any more.
            if self._hold is not None:
                self._hold.shrink(room_bytes)

    async def _parts(self, deadline: Deadline) -> AsyncGenerator[pb.SyncPart, None]:
        core, items = self._core, self._request.items
        await self._reach(deadline)
        state = core.follower.state
        # Another server may just have registered what this one does not know. A point that was
        # delivered is never delivered again, so it must have all rows that were known then.
        known = all(self._acting.owns(state, item.handle) for item in items)
        if not known or any(item.every_point for item in items):
            await core.follower.catch_up()
        # All jobs are made before the first is sent, so that they are of one moment.
        self._call.works_for(None)
        jobs: list[_Job | None] = [*await self._read_jobs()]
        budget = Budget(self._request.byte_budget or _UNLIMITED)
        waiting, has_sent = (
            sorted(range(len(items)), key=lambda index: -items[index].priority),
            False,
        )
        while waiting:
            # It stays in the list until it is done: if a text was replaced, it begins again.
            index = waiting[0]
            try:
                async with contextlib.aclosing(self._item(index, jobs, budget)) as parts:
                    async for part in parts:
                        part.item, has_sent = index, True
                        budget.spend(part)
                        yield part
            except TextReplaced:
                if not has_sent:
                    jobs = [*await self._read_jobs()]
                    continue
                # The parts that were sent are of no use; the next call gets the other answer whole.
            del waiting[0]

    async def _reach(self, deadline: Deadline) -> None:
        """Return when the server is as far as all that the client shows; a token of a history that
        the store does not have is unusable then. Raise ForeignPosition, NotReached."""
        if self._request.least_position:
            await reach_own(self._core, self._call, self._request.least_position, deadline)
        marked = [signed.marked for signed in self._signed if isinstance(signed, Signed)]
        await reach(
            self._core, self._call, [signed for signed in marked if signed is not None], deadline
        )
        self._signed = [self._checked(signed) for signed in self._signed]

    def _checked(self, signed: Signed | Unusable | None) -> Signed | Unusable | None:
        if not isinstance(signed, Signed) or signed.marked is None:
            return signed
        foreign = is_foreign(self._core, signed.marked)
        return Unusable(WholeReason.FOREIGN_TOKEN) if foreign else signed

    async def _item(
        self, index: int, jobs: list[_Job | None], budget: Budget
    ) -> AsyncGenerator[pb.SyncPart, None]:
        # A job may have a plan, which keeps rows in memory until the transfer drops it.
        job, jobs[index] = jobs[index], None
        assert job is not None
        handle = self._request.items[index].handle
        self._call.works_for(self._core.follower.state.registrations.get(handle))
        try:
            if isinstance(job, Exception):
                raise job
            if isinstance(job, WithdrawnTransfer):
                self.transfers[index] = job
                async for part in job.parts():
                    yield part
                return
            item = self._request.items[index]
            transfer = Transfer(
                self._core,
                self._call,
                self._request.encoding,
                item,
                job,
                self._acting,
                self._subjects[index],
                plan=self._plan,
            )
            job = self._plan = None
            self.transfers[index] = transfer
            if not budget.spent:
                async with contextlib.aclosing(self._points(index, budget)) as parts:
                    async for part in parts:
                        yield part
            # Without this token the item would aim at a later position at the next call than those
            # sent.
            elif self._request.one_position:
                yield await transfer.hold_target()
        except FAMILIES as error:
            self.transfers.pop(index, None)
            yield pb.SyncPart(refused=_refused(self._core.store.id, error))

    async def _points(self, index: int, budget: Budget) -> AsyncGenerator[pb.SyncPart, None]:
        """Yield the parts of an item that was begun: of one transfer, or with `every_point` of one
        to each refresh point, as many as a call has."""
        for remaining in reversed(range(MAX_POINTS)):
            transfer = self.transfers[index]
            assert isinstance(transfer, Transfer)
            with traced_child(self._call.trace, "sync_item") as attributes:
                async with contextlib.aclosing(transfer.parts(budget)) as parts:
                    async for part in parts:
                        # A point without changes is passed over, unless the call ends with it.
                        if not (transfer.more and transfer.quiet and remaining):
                            yield part
                if attributes is not None:
                    transfer.describe(attributes)
            if not (transfer.more and transfer.done and remaining) or budget.spent:
                return
            self.transfers[index] = transfer.next_point()

    # ---- reading the items

    async def _read_jobs(self) -> list[_Job]:
        """Return the jobs of all items. Read the items again if a query was replaced in between."""
        while True:
            reads = await self._read_items()
            with contextlib.suppress(TextReplaced):
                return self._jobs(reads)

    async def _read_items(self) -> list[ItemRead | Exception]:
        """Read the items in a thread, unless all were read before."""
        items = self._request.items
        if any(item.have.runs or item.resend.runs for item in items):
            # Count and reserve before the runs are unpacked: a few bytes may name millions of ids.
            named = await self._core.in_thread(self._call, _count_ids, items)
            if self._hold is not None:
                await self._hold.reserve(_ID_BYTES * named)
        reads = list(map(self._read_if_quick, items))
        if None in reads:
            return await self._read_slowly(items)
        return [read for read in reads if read is not None]

    async def _read_slowly(self, items: Sequence[pb.SyncItem]) -> list[ItemRead | Exception]:
        """Return the items, read in a thread; again if a window names time zones that are new to
        the store."""

        async def read() -> list[ItemRead | Exception]:
            texts = [_caught(self._texts, item) for item in items]
            return await self._core.in_thread(self._call, self._read_all, texts)

        reads = await read()
        missing = [item.names for item in reads if isinstance(item, UnknownTimeZone)]
        if not missing:
            return reads
        with contextlib.suppress(UnknownTimeZone):
            await zones_for(self._core, self._call, frozenset().union(*missing))
        return await read()

    def _read_if_quick(self, item: pb.SyncItem) -> ItemRead | Exception | None:
        """Return an item that is quick to read, else None."""
        if item.have.runs or item.resend.runs:
            return None
        try:
            state = self._core.follower.state
            registration = self._acting.registration(state, item.handle)
        except FAMILIES as error:
            return error
        memo = self._core.maker.memo
        prepared = cached_prepared(memo, state, registration, item.window, item.base_rows)
        if prepared is None:
            return None
        source = self._source(item)
        return self._item_read(item, replace(source, text=registration.position), prepared)

    def _source(self, item: pb.SyncItem) -> RegisteredQuery:
        owner = self._acting.own(self._core.follower.state)
        return RegisteredQuery(self._acting.tenant, item.handle, owner=owner)

    def _texts(self, item: pb.SyncItem) -> StoredTexts:
        state = self._core.follower.state
        return texts_of(state, self._source(item), item.window, item.base_rows)

    def _read_all(self, texts: Sequence[StoredTexts | Exception]) -> list[ItemRead | Exception]:
        return [
            text if isinstance(text, Exception) else _caught(self._read, item, text)
            for item, text in zip(self._request.items, texts, strict=True)
        ]

    def _read(self, item: pb.SyncItem, texts: StoredTexts) -> ItemRead:
        memo = self._core.maker.memo
        prepared = prepare(memo, texts, read_texts(memo, texts))
        return self._item_read(item, texts.source, prepared)

    def _item_read(
        self, item: pb.SyncItem, source: RegisteredQuery, prepared: PreparedQuery
    ) -> ItemRead:
        question = Question(
            source,
            prepared.query,
            self._acting.principal,
            unrefreshed=item.base_rows,
            base_rows=item.base_rows,
            ahead=True,
            changes=item.changes,
            every_point=item.every_point,
            prepared=prepared,
        )
        return ItemRead(question, _repair(item))

    # ---- what to aim at

    def _jobs(self, reads: Sequence[ItemRead | Exception]) -> list[_Job]:
        """Return the jobs of all items, of one moment: nothing here waits."""
        jobs = [
            read if isinstance(read, Exception) else _caught(self._job, index, read)
            for index, read in enumerate(reads)
        ]
        good = [job for job in jobs if isinstance(job, CopyJob)]
        if not self._request.one_position or not any(job.claim.target for job in good):
            return jobs
        # All items were begun together only if their claims have the same position.
        together = len({job.claim.position for job in good}) == 1
        again = _staying if together else self._aim_at_now
        return [again(job) if isinstance(job, CopyJob) else job for job in jobs]

    def _job(self, index: int, read: ItemRead) -> CopyJob | WithdrawnTransfer:
        item, core = self._request.items[index], self._core
        token = self._signed[index]
        if is_withdrawn(core.follower.state, self._acting, read.question, token):
            previous = None if item.whole else token
            return WithdrawnTransfer(core, self._acting, read.question, previous)
        plan = core.maker.plan(core.follower.view, read.question)
        question = replace(read.question, permission=plan.permission)
        self._subjects[index] = subject = copy_subject(question, core.follower.state)
        self._plan = plan if len(self._request.items) == 1 else None
        claim, reason = _claim(item, token, subject)
        erased = erased_rows(core.follower.state, plan, claim)
        if erased is None:
            claim, reason, erased = Claim(), WholeReason.ERASED, NO_IDS
        job = make_job(question, plan, claim, reason, read.repair, self._away)
        return replace(job, erased=erased) if len(erased) else job

    def _aim_at_now(self, job: CopyJob) -> CopyJob:
        """Aim an item at now: not all items can have the position that was begun, so none is held
        to it."""
        if job.claim.target is None:
            return job
        plan = self._core.maker.plan(self._core.follower.view, job.question)
        restarted = job.restarted(aim(plan, Claim(job.claim.copy), self._away))
        return replace(restarted, moment=plan) if plan.query.stays else restarted


def _staying(job: CopyJob) -> CopyJob:
    """Return the job of an item, which stays if its copy is there already, until the others are,
    too."""
    copy = job.claim.copy
    if job.claim.target is not None or copy is None:
        return job
    return replace(job, target=copy, fixed=True, moment=None)


def _caught(work: Callable[..., T], *arguments: Any) -> T | Exception:
    """Return what the work gives, or the error that the item is refused with."""
    try:
        return work(*arguments)
    except FAMILIES as error:
        return error


# ---- the request


def _check(request: pb.SyncRequest) -> None:
    if not 0 < len(request.items) <= MAX_ITEMS:
        raise BadRequest(
            f"a Sync has from 1 to {MAX_ITEMS:,} items, not {len(request.items):,}", field="items"
        )
    if request.encoding not in _ENCODINGS:
        raise BadRequest("an encoding this server does not know", field="encoding")
    if request.one_position and any(item.every_point for item in request.items):
        raise BadRequest(
            "every_point is not for one_position: the points come one after the other",
            field="one_position",
        )
    if request.byte_budget < 0:
        raise BadRequest("byte_budget is negative", field="byte_budget")


def _count_ids(items: Sequence[pb.SyncItem]) -> int:
    """Count the ids that the items name. Raise BadRequest if they are more than are taken."""
    # Runs alternate: how many ids to skip, and how many to take.
    named = sum(sum(ids.runs[1::2]) for item in items for ids in (item.have, item.resend))
    if named > MAX_IDS:
        raise BadRequest(f"have and resend name more than {MAX_IDS:,} ids", field="items")
    return named


def _repair(item: pb.SyncItem) -> Repair:
    have = _ids(item.have, "have") if item.HasField("have") else None
    return Repair(_ids(item.resend, "resend"), have)


def _ids(ids: pb.Ids, field: str) -> Int64s:
    try:
        return from_runs(ids.runs, MAX_IDS) if ids.runs else np.empty(0, np.int64)
    except ValueError as problem:
        raise BadRequest(f"{field}: {problem}", field=field) from None


def _away(request: pb.SyncRequest) -> int | None:
    """Return how long the client is away, in microseconds, or None."""
    if not request.HasField("away"):
        return None
    try:
        return to_micros(request.away)
    except BadValue as bad:
        raise BadRequest(f"away {bad}", reason=bad.reason, field="away") from None


# ---- tokens


def _signed(tokens: Tokens, token: bytes, binding: bytes) -> Signed | Unusable | None:
    if not token:
        return None
    try:
        return tokens.read(token, binding)
    except Unusable as problem:
        return problem


def _claim(
    item: pb.SyncItem, signed: Signed | Unusable | None, subject: CopySubject
) -> tuple[Claim, WholeReason]:
    """Return the claim of the client, and the reason if it claims nothing."""
    if signed is None:
        return Claim(), WholeReason.FIRST
    if item.whole:
        return Claim(), WholeReason.ASKED
    try:
        if isinstance(signed, Unusable):
            raise signed
        return signed.about(subject), WholeReason.NONE
    except Unusable as problem:
        return Claim(), problem.reason


def _refused(store_id: str, error: Exception) -> pb.SyncRefused:
    code: int = code_of(error).value[0]
    detail = detail_of(error, store_id)
    return pb.SyncRefused(code=code, message=str(error)[:1000], detail=detail)
