"""One Sync: wait where it must, aim all items at one moment, send them by priority."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from psoup.server.answering import Deadline, reach
from psoup.server.core import Core
from psoup.server.errors import FAMILIES, BadRequest, code_of, detail_of
from psoup.server.names import default_name
from psoup.server.readings import Texts, known_reading, read, texts_of
from psoup.server.sync.jobs import (
    ItemRead,
    Job,
    Repair,
    aim,
    check_ids,
    make_job,
    plan_of,
    request_of,
)
from psoup.server.sync.tokens import Claim, Signed, Unusable
from psoup.server.sync.transfer import Budget, Transfer
from psoup.server.values import BadValue, to_micros
from psoup.store import START, Position
from psoup.v1 import psoup_pb2 as pb

MOST_ITEMS = 1000

_UNLIMITED = 1 << 62


async def sync(
    core: Core, request: pb.SyncRequest, seconds: float | None
) -> AsyncIterator[pb.SyncPart]:
    """`seconds` is what is left of the call's own deadline, if it has one."""
    call = Call(core, request)
    async for part in call.parts(Deadline.after(seconds, core.settings.wait)):
        yield part


class Call:
    """A request that was checked. `transfers` are by item, as far as the call has come."""

    def __init__(self, core: Core, request: pb.SyncRequest) -> None:
        """Raises BadRequest."""
        _check(request)
        self._core = core
        self._request = request
        self._tenant = default_name(request.tenant, "tenant", core.settings)
        self._away = _away(request)
        self._signed = [_signed(core, item.token) for item in request.items]
        self._read: list[ItemRead | Exception] = []
        self.transfers: dict[int, Transfer] = {}

    async def parts(self, deadline: Deadline) -> AsyncIterator[pb.SyncPart]:
        core, items = self._core, self._request.items
        await reach(core, self._needed, deadline)
        if any(item.handle not in core.follower.state.registrations for item in items):
            await core.follower.catch_up()
        self._read = await self._read_items()
        jobs = self._jobs()
        budget = Budget(self._request.byte_budget or _UNLIMITED)
        for index in sorted(range(len(items)), key=lambda index: -items[index].priority):
            async for part in self._item(index, jobs[index], budget):
                part.item = index
                budget.spend(part)
                yield part

    @property
    def _needed(self) -> Position:
        """The server must be as far as this."""
        least = self._request.least_position
        found = [self._core.store.positions.decode(least)] if least else []
        for signed in self._signed:
            if isinstance(signed, Signed) and signed.claim.position is not None:
                found.append(signed.claim.position)
        return max(found, default=START)

    async def _item(
        self, index: int, job: Job | Exception, budget: Budget
    ) -> AsyncIterator[pb.SyncPart]:
        try:
            if isinstance(job, Exception):
                raise job
            transfer = Transfer(self._core, self._tenant, self._request.encoding, job)
            self.transfers[index] = transfer
            if not budget.spent:
                async for part in transfer.parts(budget):
                    yield part
            elif self._request.one_position:
                yield await transfer.held()
        except FAMILIES as error:
            self.transfers.pop(index, None)
            yield pb.SyncPart(refused=_refused(self._core, error))

    # ---- what is asked for

    async def _read_items(self) -> list[ItemRead | Exception]:
        """Reads the items in a thread, unless all were read before."""
        items = self._request.items
        texts = [self._texts(item) for item in items]
        found = [self._known(*one) for one in zip(items, texts, strict=True)]
        if all(found):
            return [one for one in found if one is not None]
        return await self._core.in_thread(self._read_all, texts)

    def _texts(self, item: pb.SyncItem) -> Texts | Exception:
        try:
            return texts_of(self._core, request_of(self._tenant, item))
        except FAMILIES as error:
            return error

    def _known(self, item: pb.SyncItem, texts: Texts | Exception) -> ItemRead | Exception | None:
        if item.have.runs or item.resend.runs:
            return None
        if isinstance(texts, Exception):
            return texts
        reading = known_reading(self._core, texts)
        return None if reading is None else ItemRead(reading, Repair.of(item))

    def _read_all(self, texts: Sequence[Texts | Exception]) -> list[ItemRead | Exception]:
        check_ids(self._request.items)
        return [self._read_one(*one) for one in zip(self._request.items, texts, strict=True)]

    def _read_one(self, item: pb.SyncItem, texts: Texts | Exception) -> ItemRead | Exception:
        try:
            if isinstance(texts, Exception):
                raise texts
            return ItemRead(read(self._core, texts), Repair.of(item))
        except FAMILIES as error:
            return error

    # ---- what to aim at

    def _jobs(self) -> list[Job | Exception]:
        """All of one moment: nothing here waits."""
        jobs = [self._job(index) for index in range(len(self._request.items))]
        begun = {job.claim.position for job in jobs if isinstance(job, Job) and job.claim.target}
        if not self._request.one_position or not begun:
            return jobs
        had = {job.claim.position for job in jobs if isinstance(job, Job)}
        if len(had) == 1:
            return [_staying(job) if isinstance(job, Job) else job for job in jobs]
        return [self._anew(job) if isinstance(job, Job) else job for job in jobs]

    def _job(self, index: int) -> Job | Exception:
        item, read = self._request.items[index], self._read[index]
        try:
            if isinstance(read, Exception):
                raise read
            plan = plan_of(self._core, self._tenant, item, read.reading)
            return make_job(item, read, self._signed[index], plan, self._away)
        except FAMILIES as error:
            return error

    def _anew(self, job: Job) -> Job:
        """Where not all can have the position that was begun, none is held to it."""
        if job.claim.target is None:
            return job
        plan = plan_of(self._core, self._tenant, job.item, job.reading)
        anew = job.restarted(aim(plan, Claim(job.claim.copy), self._away))
        return anew if plan.query.refresh is None else replace(anew, moment=plan)


def _staying(job: Job) -> Job:
    """A copy that is there already waits for the others."""
    copy = job.claim.copy
    if job.claim.target is not None or copy is None:
        return job
    return replace(job, target=copy, fixed=True, moment=None)


# ---- the request


def _check(request: pb.SyncRequest) -> None:
    if not 0 < len(request.items) <= MOST_ITEMS:
        raise BadRequest(
            f"a Sync has from 1 to {MOST_ITEMS:,} items, not {len(request.items):,}", field="items"
        )
    if request.encoding not in pb.Encoding.values():
        raise BadRequest("an encoding this server does not know", field="encoding")
    if request.byte_budget < 0:
        raise BadRequest("byte_budget is negative", field="byte_budget")


def _away(request: pb.SyncRequest) -> int:
    """Microseconds; -1 where the client does not say."""
    if not request.HasField("away"):
        return -1
    try:
        return to_micros(request.away)
    except BadValue as bad:
        raise BadRequest(f"away {bad}", reason=bad.reason, field="away") from None


def _signed(core: Core, token: bytes) -> Signed | Unusable | None:
    if not token:
        return None
    try:
        return core.tokens.read(token)
    except Unusable as problem:
        return problem


def _refused(core: Core, error: Exception) -> pb.SyncRefused:
    code: int = code_of(error).value[0]
    detail = detail_of(error, core.store.id)
    return pb.SyncRefused(code=code, message=str(error)[:1000], detail=detail)
