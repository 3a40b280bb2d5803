"""ListPublishers and ForgetPublishers: names under which an owner has published."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

from psoup.errors import BadRequest
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.server.settings import check_name
from psoup.server.wire.values import from_duration, from_instant
from psoup.store import AcceptedBatch
from psoup.store.state.streams import PublisherKey
from psoup.v1 import psoup_pb2 as pb
from psoup.write.publishers import ForgetPublishers

_PAGE = 1000
_MAX_NAMES = 1000
_LENGTH_DIGITS = 4


async def list_publishers(
    core: Core, call: Call, request: pb.ListPublishersRequest
) -> pb.ListPublishersResponse:
    """Return a page of publishers, by owner and name. Raise PermissionDenied, BadRequest."""
    if request.page_size < 0:
        raise BadRequest("page_size is negative", field="page_size", got=str(request.page_size))
    acting, limit = call.acting(request), min(request.page_size or _PAGE, _PAGE)
    after = _place(request.page_token)
    await core.follower.catch_up()
    state = core.follower.state
    acting.check_owner(state)
    owner = request.owner or acting.own(state)
    # A list of a million keys takes milliseconds, as nothing is made for each of them; looking at
    # them is for a thread.
    keys = list(state.publishers)
    page = await core.in_thread(
        call, _page, keys, acting.tenant, owner, request.prefix, after, limit + 1
    )
    publishers = core.follower.state.publishers
    listed = [(key, publishers[key]) for key in page[:limit] if key in publishers]
    return pb.ListPublishersResponse(
        publishers=[_message(core, key, last) for key, last in listed],
        next_page_token=_token(*page[limit - 1][1:]) if len(page) > limit else "",
    )


def _page(
    keys: Sequence[PublisherKey],
    tenant: str,
    owner: str | None,
    prefix: str,
    after: tuple[str, str],
    count: int,
) -> list[PublisherKey]:
    """Return the first publishers of a tenant, and unless it is None of an owner, behind a place
    in the order of owner and name."""
    matches = (
        key
        for key in keys
        if key[0] == tenant
        and owner in (None, key[1])
        and key[2].startswith(prefix)
        and key[1:] > after
    )
    return nsmallest(count, matches)


def _place(token: str) -> tuple[str, str]:
    """Return the owner and name that a page begins behind. Raise BadRequest."""
    if not token:
        return "", ""
    length, dot, names = token.partition(".")
    if not dot or not length.isdecimal() or len(length) > _LENGTH_DIGITS:
        raise BadRequest(
            "page_token is not one of this server's", field="page_token", hint="start again"
        )
    return names[: int(length)], names[int(length) :]


def _token(owner: str, name: str) -> str:
    return f"{len(owner)}.{owner}{name}"


def _message(core: Core, key: PublisherKey, last: AcceptedBatch) -> pb.Publisher:
    return pb.Publisher(
        owner=key[1],
        name=key[2],
        sequence=last.sequence,
        position=core.positions.encode(last.position),
        published_at=from_instant(last.stamp),
        mark=last.mark,
        row_count=last.total_rows,
        lease=None if last.lease is None else from_duration(last.lease),
    )


async def forget_publishers(
    core: Core, call: Call, request: pb.ForgetPublishersRequest
) -> pb.ForgetPublishersResponse:
    """Raise PermissionDenied, NoSuchPublisher, BadRequest."""
    acting = call.acting(request)
    if not 0 < len(request.names) <= _MAX_NAMES:
        raise BadRequest(
            f"{len(request.names):,} names; a call takes 1 to {_MAX_NAMES:,}",
            field="names",
            expected=f"1 to {_MAX_NAMES} names",
            got=str(len(request.names)),
        )
    for name in request.names:
        check_name(name, "names")
    await core.follower.catch_up()
    acting.check_owner(core.follower.state)
    names = tuple(dict.fromkeys(request.names))
    proposal = ForgetPublishers(acting.tenant, acting.owner, names)
    position = await core.submit(call, proposal)
    return pb.ForgetPublishersResponse(position=core.positions.encode(position))
