"""CreateKey, ListKeys and RevokeKey: for those who administer the tenant of the key."""

from __future__ import annotations

from psoup.access.actions import STORE_ROLES
from psoup.access.keys import new_key
from psoup.errors import BadRequest
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.server.permission import demand_operator
from psoup.server.wire.values import BadValue, from_instant, to_instant
from psoup.store.state.access import Key
from psoup.v1 import psoup_pb2 as pb
from psoup.write.keys import CreateKey, RevokeKey


async def create_key(core: Core, call: Call, request: pb.CreateKeyRequest) -> pb.CreateKeyResponse:
    """Raise PermissionDenied, BadRequest."""
    acting = call.acting(request)
    await core.follower.catch_up()
    for role in sorted(STORE_ROLES.intersection(request.roles)):
        demand_operator(acting, f"make a key with the role {role}")
    key, text = new_key(
        acting.tenant,
        acting.owner,
        request.roles,
        request.claims,
        core.guard.now(),
        _expires(request),
    )
    position = await core.submit(call, CreateKey(key, acting.principal.owner))
    return pb.CreateKeyResponse(
        key=_message(key), secret=text, position=core.positions.encode(position)
    )


async def list_keys(core: Core, call: Call, request: pb.ListKeysRequest) -> pb.ListKeysResponse:
    """Raise PermissionDenied."""
    acting = call.acting(request)
    await core.follower.catch_up()
    keys = [key for key in core.follower.state.access.keys.values() if key.tenant == acting.tenant]
    keys.sort(key=lambda key: (key.created, key.id))
    return pb.ListKeysResponse(keys=map(_message, keys))


async def revoke_key(core: Core, call: Call, request: pb.RevokeKeyRequest) -> pb.RevokeKeyResponse:
    """Raise PermissionDenied, NoSuchAccessKey."""
    acting = call.acting(request)
    revocation = RevokeKey(acting.tenant, acting.principal.owner, request.id)
    key, position = await core.submit(call, revocation)
    return pb.RevokeKeyResponse(key=_message(key), position=core.positions.encode(position))


def _expires(request: pb.CreateKeyRequest) -> int | None:
    if not request.HasField("expires"):
        return None
    try:
        return to_instant(request.expires)
    except BadValue as bad:
        raise BadRequest(f"expires {bad}", reason=bad.reason, field="expires") from None


def _message(key: Key) -> pb.Key:
    message = pb.Key(
        id=key.id,
        tenant=key.tenant,
        owner=key.owner,
        roles=key.roles,
        claims=key.claims,
        created=from_instant(key.created),
    )
    if key.expires is not None:
        message.expires.CopyFrom(from_instant(key.expires))
    return message
