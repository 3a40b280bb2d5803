"""CreateKey, ListKeys and RevokeKey: for those who administer the tenant of the key."""

from __future__ import annotations

from psoup.access.actions import Action, may
from psoup.access.keys import new_key
from psoup.access.principal import Principal
from psoup.errors import BadRequest, PermissionDenied
from psoup.server.core import Core
from psoup.server.identity import PRINCIPAL
from psoup.server.settings import check_name, default_name
from psoup.server.wire.values import BadValue, from_instant, to_instant
from psoup.store.state.access import Key
from psoup.v1 import psoup_pb2 as pb
from psoup.write.keys import CreateKey, RevokeKey

_OPERATOR = "operator"


async def create_key(core: Core, request: pb.CreateKeyRequest) -> pb.CreateKeyResponse:
    """Raises PermissionDenied, BadRequest."""
    caller = PRINCIPAL.get()
    await core.follower.catch_up()
    tenant = _administered(core, caller, request.tenant)
    if _OPERATOR in request.roles and not _operates(caller):
        raise PermissionDenied("only an operator can make a key with the role operator")
    owner = default_name(request.owner, "owner", core.settings)
    key, text = new_key(
        tenant, owner, request.roles, request.claims, core.guard.now(), _expires(request)
    )
    position = await core.appender.submit(CreateKey(key, caller.owner))
    return pb.CreateKeyResponse(
        key=_message(key), secret=text, position=core.store.positions.encode(position)
    )


async def list_keys(core: Core, request: pb.ListKeysRequest) -> pb.ListKeysResponse:
    """Raises PermissionDenied."""
    await core.follower.catch_up()
    tenant = _administered(core, PRINCIPAL.get(), request.tenant)
    keys = [key for key in core.follower.state.access.keys.values() if key.tenant == tenant]
    keys.sort(key=lambda key: (key.created, key.id))
    return pb.ListKeysResponse(keys=map(_message, keys))


async def revoke_key(core: Core, request: pb.RevokeKeyRequest) -> pb.RevokeKeyResponse:
    """Raises PermissionDenied, NoSuchKey."""
    caller = PRINCIPAL.get()
    await core.follower.catch_up()
    tenant = _administered(core, caller, request.tenant)
    key, position = await core.appender.submit(RevokeKey(tenant, caller.owner, request.id))
    return pb.RevokeKeyResponse(key=_message(key), position=core.store.positions.encode(position))


def _administered(core: Core, caller: Principal, named: str) -> str:
    """The tenant whose keys are meant. Raises PermissionDenied where the caller does not administer
    it, whether it exists or not."""
    check_name(named, "tenant", core.settings)
    tenant = named or caller.tenant
    own = tenant == caller.tenant and may(core.follower.state, caller, Action.ADMINISTER)
    if not own and not _operates(caller):
        raise PermissionDenied(
            "keys are for those who administer their tenant",
            hint="ask an administrator of the tenant, or an operator",
        )
    return tenant


def _operates(caller: Principal) -> bool:
    return caller.anyone or _OPERATOR in caller.roles


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
