"""ListGrants, SetQuota, ListQuotas and Audit: what administrators and operators do."""

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

_PAGE_RECORDS, _MAX_PAGE_RECORDS = 100, 1000
_TOKEN = re.compile(r"([0-9a-f]{1,16})\.([0-9]{1,9})")
_MAX_POSITION = (1 << 63) - 1


# ---- grants


async def list_grants(
    core: Core, call: Call, request: pb.ListGrantsRequest
) -> pb.ListGrantsResponse:
    """Return the grants of a tenant, by what they are on."""
    acting = call.acting(request)
    await core.follower.catch_up()
    state = core.follower.state
    of_tenant = [grant for grant in state.access.grants.values() if grant.tenant == acting.tenant]
    grants = sorted(
        of_tenant, key=lambda grant: (name_of(state, grant.object_id), grant.to, grant.id)
    )
    return pb.ListGrantsResponse(grants=[grant_message(state, grant) for grant in grants])


# ---- quotas


async def set_quota(core: Core, call: Call, request: pb.SetQuotaRequest) -> pb.Quota:
    """Change a quota; return it. Raise PermissionDenied, BadRequest."""
    acting = call.acting(request)
    check_name(request.owner, "owner")
    if not request.owner:
        demand_operator(acting, "set the quota of a tenant")
    limits = {limit.name: limit.limit for limit in request.limits}
    removed = tuple(request.remove)
    await core.submit(call, SetLimits(acting.tenant, call.owner, request.owner, limits, removed))
    remaining = quota_of(core.follower.state, acting.tenant, request.owner)
    return quota_message(core, Quota(acting.tenant, request.owner, tuple(remaining.items())))


async def list_quotas(
    core: Core, call: Call, request: pb.ListQuotasRequest
) -> pb.ListQuotasResponse:
    """Return the quotas of a tenant and its owners, the tenant's first."""
    acting = call.acting(request)
    await core.follower.catch_up()
    quotas = core.follower.state.access.quotas.values()
    of_tenant = sorted(
        (quota for quota in quotas if quota.tenant == acting.tenant), key=lambda quota: quota.owner
    )
    return pb.ListQuotasResponse(quotas=[quota_message(core, quota) for quota in of_tenant])


def quotas_on(core: Core, acting: Acting) -> list[pb.Quota]:
    """Return the quotas that hold for a caller."""
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
    """Return a page of the audit, newest first: what the log has, then what the engine has
    written."""
    if request.page_size < 0:
        raise BadRequest("page_size is negative", field="page_size", got=str(request.page_size))
    acting, limit = call.acting(request), min(request.page_size or _PAGE_RECORDS, _MAX_PAGE_RECORDS)
    before, skip = _place(request.page_token)
    await core.follower.catch_up()
    tenant = None if acting.operates and not request.tenant else acting.tenant

    async def attempt() -> list[AuditRecord]:
        epoch, tail = core.follower.epoch.epoch, list(core.follower.audit)
        count = skip + limit + 1
        return await core.in_thread(call, _page, core.store, epoch, tail, tenant, before, count)

    page = (await core.follower.read(attempt))[skip:]
    token = _token(page[:limit], before, skip) if len(page) > limit else ""
    records = [_record(core, record) for record in page[:limit]]
    return pb.AuditResponse(records=records, next_page_token=token)


def _page(
    store: Store,
    epoch: Epoch,
    tail: Sequence[AuditRecord],
    tenant: str | None,
    before: int,
    count: int,
) -> list[AuditRecord]:
    """Return at most `count` of the newest records of a tenant, or of all, up to a position."""

    def is_visible(record: AuditRecord) -> bool:
        return record.position <= before and tenant in (None, record.tenant)

    return list(islice(filter(is_visible, _newest(store, epoch, tail, before)), count))


def _newest(
    store: Store, epoch: Epoch, tail: Sequence[AuditRecord], before: int
) -> Iterator[AuditRecord]:
    """Records from the newest on. Files are read one by one, since few are looked at."""
    yield from reversed(tail)
    folder, snapshot = store.table("audit"), store.snapshot(epoch, "audit")
    files = [file for file in snapshot.files.values() if file.low["position"] <= before]
    for file in sorted(files, key=lambda data_file: data_file.high["position"], reverse=True):
        table = reader(folder.root, file).whole()
        table = table.filter(pc.less_equal(table.column("position"), before))
        yield from reversed(audit_of_rows(table.sort_by("position")))


def _token(page: Sequence[AuditRecord], before: int, skip: int) -> str:
    """Return the token of the next page: the position of the last record, and how many records of
    that position were on pages so far."""
    last = page[-1].position
    passed = sum(record.position == last for record in page) + (skip if last == before else 0)
    return f"{last:x}.{passed}"


def _place(token: str) -> tuple[int, int]:
    if not token:
        return _MAX_POSITION, 0
    match = _TOKEN.fullmatch(token)
    if match is None or int(match[1], 16) > _MAX_POSITION:
        raise BadRequest(
            "page_token is not one of this server's", field="page_token", hint="start again"
        )
    return int(match[1], 16), int(match[2])


def _record(core: Core, record: AuditRecord) -> pb.AuditRecord:
    return pb.AuditRecord(
        position=core.positions.encode(Position.unpack(record.position)),
        at=from_instant(record.stamp),
        tenant=record.tenant,
        actor=record.owner,
        action=record.action,
        object=record.object,
        detail=record.detail,
        server=record.server,
    )
