"""ListGrants, SetQuota, ListQuotas and Audit: what administrators and operators ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow.compute as pc

from psoup.errors import BadRequest
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.server.permission import Acting, demand_operator, name_of
from psoup.server.settings import check_name
from psoup.server.wire.describing import grant_message
from psoup.server.wire.values import from_instant
from psoup.store import Epoch, Position, Store
from psoup.store.audit import AuditRecord, audit_of_rows
from psoup.store.delta.reading import reader
from psoup.store.state.access import Quota
from psoup.v1 import psoup_pb2 as pb
from psoup.write.quotas import SetLimits, quota_of

_PAGE, _MOST = 100, 1000
_TOKEN = re.compile(r"([0-9a-f]{1,16})\.([0-9]{1,9})")
_NEWEST = (1 << 63) - 1


# ---- grants


async def list_grants(
    core: Core, call: Call, request: pb.ListGrantsRequest
) -> pb.ListGrantsResponse:
    """The grants of a tenant, by what they are on."""
    acting = call.acting(request)
    await core.follower.catch_up()
    state = core.follower.state
    mine = [one for one in state.access.grants.values() if one.tenant == acting.tenant]
    grants = sorted(mine, key=lambda one: (name_of(state, one.object_id), one.to, one.id))
    return pb.ListGrantsResponse(grants=[grant_message(state, one) for one in grants])


# ---- quotas


async def set_quota(core: Core, call: Call, request: pb.SetQuotaRequest) -> pb.Quota:
    """The quota as it is then. Raises PermissionDenied, BadRequest."""
    acting = call.acting(request)
    check_name(request.owner, "owner")
    if not request.owner:
        demand_operator(acting, "set the quota of a tenant")
    limits = {one.name: one.limit for one in request.limits}
    whose = acting.tenant, acting.principal.owner, request.owner
    await core.submit(call, SetLimits(*whose, limits, tuple(request.remove)))
    left = quota_of(core.follower.state, acting.tenant, request.owner)
    return quota_message(core, Quota(acting.tenant, request.owner, tuple(left.items())))


async def list_quotas(
    core: Core, call: Call, request: pb.ListQuotasRequest
) -> pb.ListQuotasResponse:
    """The quotas of a tenant and its owners, the tenant's first."""
    acting = call.acting(request)
    await core.follower.catch_up()
    found = core.follower.state.access.quotas.values()
    mine = sorted((one for one in found if one.tenant == acting.tenant), key=lambda one: one.owner)
    return pb.ListQuotasResponse(quotas=[quota_message(core, one) for one in mine])


def quotas_on(core: Core, acting: Acting) -> list[pb.Quota]:
    """The quotas that hold for a caller."""
    quotas = core.follower.state.access.quotas
    ids = [Quota(acting.tenant, owner, ()).id for owner in ("", acting.owner)]
    return [quota_message(core, quotas[id_]) for id_ in ids if id_ in quotas]


def quota_message(core: Core, quota: Quota) -> pb.Quota:
    used = core.quotas.used(core.follower.state, quota)
    limits = [
        pb.QuotaLimit(name=name, limit=limit, used=used[name]) for name, limit in quota.limits
    ]
    return pb.Quota(tenant=quota.tenant, owner=quota.owner, limits=limits)


# ---- the audit


async def audit(core: Core, call: Call, request: pb.AuditRequest) -> pb.AuditResponse:
    """A page of the audit, newest first: what the log has, then what the engine has written."""
    if request.page_size < 0:
        raise BadRequest("page_size is negative", field="page_size", got=str(request.page_size))
    acting, limit = call.acting(request), min(request.page_size or _PAGE, _MOST)
    before, skip = _place(request.page_token)
    await core.follower.catch_up()
    tenant = None if acting.operates and not request.tenant else acting.tenant

    async def attempt() -> list[AuditRecord]:
        epoch, tail = core.follower.epoch.epoch, list(core.follower.audit)
        given = core.store, epoch, tail, tenant, before, skip + limit + 1
        return await core.in_thread(call, _page, *given)

    found = (await core.follower.read(attempt))[skip:]
    token = _token(found[:limit], before, skip) if len(found) > limit else ""
    records = [_record(core, one) for one in found[:limit]]
    return pb.AuditResponse(records=records, next_page_token=token)


def _page(
    store: Store,
    epoch: Epoch,
    tail: Sequence[AuditRecord],
    tenant: str | None,
    before: int,
    count: int,
) -> list[AuditRecord]:
    """The newest records of a tenant, or of all, up to a position: at most so many."""

    def wanted(one: AuditRecord) -> bool:
        return one.position <= before and tenant in (None, one.tenant)

    return list(islice(filter(wanted, _newest(store, epoch, tail, before)), count))


def _newest(
    store: Store, epoch: Epoch, tail: Sequence[AuditRecord], before: int
) -> Iterator[AuditRecord]:
    """Records from the newest on. Files are read one by one, since few are looked at."""
    yield from reversed(tail)
    folder, snapshot = store.table("audit"), store.snapshot(epoch, "audit")
    files = [file for file in snapshot.files.values() if file.low["position"] <= before]
    for file in sorted(files, key=lambda one: one.high["position"], reverse=True):
        table = reader(folder.root, file).whole()
        table = table.filter(pc.less_equal(table.column("position"), before))
        yield from reversed(audit_of_rows(table.sort_by("position")))


def _token(page: Sequence[AuditRecord], before: int, skip: int) -> str:
    """The place after a page: the position of its last record, and how many of that position have
    been told."""
    last = page[-1].position
    told = sum(one.position == last for one in page) + (skip if last == before else 0)
    return f"{last:x}.{told}"


def _place(token: str) -> tuple[int, int]:
    if not token:
        return _NEWEST, 0
    match = _TOKEN.fullmatch(token)
    if match is None or int(match[1], 16) > _NEWEST:
        raise BadRequest(
            "page_token is not one of this server's", field="page_token", hint="start anew"
        )
    return int(match[1], 16), int(match[2])


def _record(core: Core, one: AuditRecord) -> pb.AuditRecord:
    return pb.AuditRecord(
        position=core.positions.encode(Position.unpack(one.position)),
        at=from_instant(one.stamp),
        tenant=one.tenant,
        actor=one.owner,
        action=one.action,
        object=one.object,
        detail=one.detail,
        server=one.server,
    )
