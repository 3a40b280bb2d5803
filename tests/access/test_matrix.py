"""Every RPC of the proto × role × tenant × object, with a row policy and without, against a table
that says nothing of how the server decides."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from psoup.errors import PermissionDenied
from psoup.server.permission import RULES, rule_of
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.callers import NamedCaller, open_server
from tests.support.server.process import ipc

METHODS = pb.DESCRIPTOR.services_by_name["Psoup"].methods
OK, DENIED, MISSING = "OK", "PERMISSION_DENIED", "NOT_FOUND"
OWN, OTHERS, UNKNOWN = "own", "another's", "unknown"
READS, ALL_ACTIONS = {"read", "register"}, {"define", "publish", "register", "read", "administer"}
ROWS = pa.table({"region": ["north", "south"], "amount": [1, 2]})
UNKNOWN_HANDLE = bytes(16)


@dataclass(frozen=True)
class Role:
    """What a caller may do: with all streams of the tenant, and with `orders` beside that."""

    name: str
    roles: tuple[str, ...]
    everywhere: frozenset[str]
    orders: frozenset[str] = frozenset()
    operator: bool = False

    def may(self, action: str, obj: str) -> bool:
        return action in self.everywhere or (obj == OWN and action in self.orders)

    def sees(self, obj: str) -> bool:
        return obj != UNKNOWN and bool(self.everywhere or (obj == OWN and self.orders))

    @property
    def administers(self) -> bool:
        return "administer" in self.everywhere


ROLES = (
    Role("anyone", (), frozenset(ALL_ACTIONS), operator=True),
    Role("operator", ("operator",), frozenset(ALL_ACTIONS), operator=True),
    Role("administrator", ("administrator",), frozenset(ALL_ACTIONS)),
    Role("developer", ("developer",), frozenset(ALL_ACTIONS - {"administer"})),
    Role("publisher", ("publisher",), frozenset({"publish"})),
    Role("reader", ("reader",), frozenset(READS)),
    Role("nobody", (), frozenset()),
    Role("monitor", ("monitor",), frozenset()),
    Role("granted", ("field",), frozenset(), frozenset(READS)),
)


# ---- what must come out


def needs(*actions: str) -> Callable[[Role, str], str]:
    """All of the actions on a stream."""

    def outcome(role: Role, obj: str) -> str:
        if not role.sees(obj):
            return MISSING
        return OK if all(role.may(action, obj) for action in actions) else DENIED

    return outcome


def own_registration(reading: bool) -> Callable[[Role, str], str]:
    """A registration over `orders`: one's own, or any for those who administer."""

    def outcome(role: Role, obj: str) -> str:
        if obj == UNKNOWN or (obj == OTHERS and not role.administers):
            return MISSING
        return OK if not reading or role.may("read", OWN) else DENIED

    return outcome


def administers(role: Role, obj: str) -> str:
    return OK if role.administers else DENIED


def revoke(role: Role, obj: str) -> str:
    """A key of the tenant, whoever's."""
    if not role.administers:
        return DENIED
    return MISSING if obj == UNKNOWN else OK


def own_publishers(role: Role, obj: str) -> str:
    """Publishers of the caller, or of any owner for those who administer."""
    return OK if obj == OWN or role.administers else DENIED


def forget(role: Role, obj: str) -> str:
    if obj == OTHERS and not role.administers:
        return DENIED
    return MISSING if obj == UNKNOWN else OK


def always(role: Role, obj: str) -> str:
    return OK


def define(role: Role, obj: str) -> str:
    if obj == OWN:
        return OK if "define" in role.everywhere else DENIED
    return needs("define")(role, obj)


EXPECTED: dict[str, Callable[[Role, str], str]] = {
    "Define": define,
    "ListStreams": always,
    "DescribeStream": needs(),
    "ListViews": always,
    "Register": needs("read", "register"),
    "RegisterMany": needs("read", "register"),
    "Unregister": own_registration(reading=False),
    "ListRegistrations": always,
    "DescribeRegistration": own_registration(reading=True),
    "Publish": needs("publish"),
    "PublishStream": needs("publish"),
    "ListPublishers": own_publishers,
    "ForgetPublishers": forget,
    "Invoke": own_registration(reading=True),
    "Ask": needs("read"),
    "Explain": own_registration(reading=True),
    "Sync": own_registration(reading=True),
    "Watch": own_registration(reading=True),
    "Status": always,
    "Clock": always,
    "Zones": always,
    "CreateKey": administers,
    "ListKeys": administers,
    "RevokeKey": revoke,
    "ListGrants": administers,
    "SetQuota": administers,
    "ListQuotas": administers,
    "Audit": administers,
}


def expected(rpc: str, role: Role, other_tenant: bool, obj: str) -> str:
    method = next(candidate for candidate in METHODS if candidate.name == rpc)
    request_type = pb.SyncRequest if rpc == "Watch" else None
    has_tenant = (
        "tenant" in (request_type.DESCRIPTOR if request_type else method.input_type).fields_by_name
    )
    if other_tenant and has_tenant and not role.operator:
        return DENIED
    # It reads pages of the web port, and makes no calls.
    return DENIED if role.name == "monitor" else EXPECTED[rpc](role, obj)


def test_every_rpc_has_a_rule_and_an_expectation() -> None:
    names = {method.name for method in METHODS}
    assert names == set(RULES), "an RPC without a rule is refused; give it one in permission.py"
    assert names == set(EXPECTED), "say who may call the new RPC"
    with pytest.raises(PermissionDenied):
        rule_of("Another")


# ---- the calls


class World:
    """Two tenants with the streams `orders` and `secret`; in each, registrations over `orders` of
    every role's caller and of somebody else."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub
        self.root = NamedCaller(stub, "ops", "root", ("operator",))
        self.numbers = itertools.count()

    async def prepare(self, policy: bool) -> None:
        for tenant in ("a", "b"):
            for name in ("orders", "secret"):
                sql = f"CREATE STREAM {name} (region TEXT, amount BIGINT)"
                await self.root.call("Define", pb.DefineRequest(tenant=tenant, sql=sql))
                await self.root.call(
                    "Publish", pb.PublishRequest(tenant=tenant, stream=name, arrow=ipc(ROWS))
                )
                if policy:
                    await self._guard(tenant, name)
            sql = "GRANT read, register ON orders TO ROLE field"
            await self.root.call("Define", pb.DefineRequest(tenant=tenant, sql=sql))

    async def _guard(self, tenant: str, name: str) -> None:
        sql = f"CREATE POLICY mine ON {name} USING (region = claim('region'))"
        await self.root.call("Define", pb.DefineRequest(tenant=tenant, sql=sql))

    def caller(self, role: Role) -> NamedCaller:
        if role.name == "anyone":
            return NamedCaller(self.stub)
        return NamedCaller(self.stub, "a", role.name, role.roles, {"region": "north"})

    async def handle(self, tenant: str, role: Role, obj: str) -> bytes:
        """A registration that nobody has used yet."""
        if obj == UNKNOWN:
            return UNKNOWN_HANDLE
        owner = "somebody" if obj == OTHERS else ("main" if role.name == "anyone" else role.name)
        request = pb.RegisterRequest(
            tenant=tenant, owner=owner, sql="SELECT amount FROM orders WHERE amount > 0"
        )
        (response,) = await self.root.call("Register", request)
        handle: bytes = response.handle
        return handle

    async def _forgetting(self, tenant: str, role: Role, obj: str) -> pb.ForgetPublishersRequest:
        """A request to forget a publisher that has just published, or one that never did."""
        name, caller_owner = (
            f"p{next(self.numbers)}",
            "main" if role.name == "anyone" else role.name,
        )
        owner = "somebody" if obj == OTHERS else caller_owner
        if obj != UNKNOWN:
            batch = pb.PublishRequest(
                tenant=tenant,
                owner=owner,
                stream="orders",
                publisher=name,
                sequence=1,
                arrow=ipc(ROWS),
            )
            await self.root.call("Publish", batch)
        named_owner = owner if obj == OTHERS else ""
        return pb.ForgetPublishersRequest(tenant=tenant, owner=named_owner, names=[name])

    async def key(self, tenant: str, obj: str) -> str:
        """A key that was not revoked yet."""
        if obj == UNKNOWN:
            return "0" * 16
        owner = "somebody" if obj == OTHERS else "me"
        request = pb.CreateKeyRequest(tenant=tenant, owner=owner)
        (response,) = await self.root.call("CreateKey", request)
        id_: str = response.key.id
        return id_

    async def request(self, rpc: str, tenant: str, role: Role, obj: str) -> Any:
        """A request of the RPC about an object."""
        stream = {OWN: "orders", OTHERS: "secret", UNKNOWN: "nothing"}[obj]
        where: dict[str, Any] = {"tenant": tenant}
        if rpc == "Define":
            return pb.DefineRequest(sql=await self._statement(tenant, obj), **where)
        if rpc in ("Register", "Ask"):
            request_type = getattr(pb, f"{rpc}Request")
            return request_type(sql=f"SELECT amount FROM {stream} WHERE amount > 1", **where)
        if rpc == "RegisterMany":
            values = ipc(pa.table({"least": [1, 2]}))
            sql = f"SELECT amount FROM {stream} WHERE amount > :least"
            return pb.RegisterManyRequest(sql=sql, arrow=values, **where)
        if rpc in ("Publish", "PublishStream"):
            return pb.PublishRequest(stream=stream, arrow=ipc(ROWS), **where)
        if rpc == "DescribeStream":
            return pb.DescribeStreamRequest(name=stream, **where)
        if rpc == "SetQuota":
            limits = [pb.QuotaLimit(name="watches", limit=9)]
            return pb.SetQuotaRequest(owner="somebody", limits=limits, **where)
        if rpc == "ListPublishers":
            owner = "" if obj == OWN else "somebody"
            return pb.ListPublishersRequest(owner=owner, **where)
        if rpc == "ForgetPublishers":
            return await self._forgetting(tenant, role, obj)
        if rpc == "RevokeKey":
            return pb.RevokeKeyRequest(id=await self.key(tenant, obj), **where)
        if rpc in ("Sync", "Watch"):
            item = pb.SyncItem(handle=await self.handle(tenant, role, obj))
            sync = pb.SyncRequest(items=[item], **where)
            return sync if rpc == "Sync" else pb.WatchRequest(sync=sync, rounds=1)
        request_type = getattr(pb, f"{rpc}Request")
        if "handle" in request_type.DESCRIPTOR.fields_by_name:
            return request_type(handle=await self.handle(tenant, role, obj), **where)
        return (
            request_type(**where)
            if "tenant" in request_type.DESCRIPTOR.fields_by_name
            else request_type()
        )

    async def _statement(self, tenant: str, obj: str) -> str:
        if obj == OWN:
            return f"CREATE STREAM fresh_{next(self.numbers)} (a BIGINT)"
        name = f"doomed_{next(self.numbers)}"
        if obj == OTHERS:
            sql = f"CREATE STREAM {name} (a BIGINT)"
            await self.root.call("Define", pb.DefineRequest(tenant=tenant, sql=sql))
        return f"DROP STREAM {name}"


async def outcome(caller: NamedCaller, rpc: str, request: Any) -> str:
    try:
        responses = await caller.call(rpc, request)
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    if rpc not in ("Sync", "Watch"):
        return OK
    first = responses[0]
    if first.WhichOneof("part") == "refused":
        return next(code.name for code in grpc.StatusCode if code.value[0] == first.refused.code)
    # A copy of what may not be read any more is emptied.
    denied = first.begin.reason == pb.SYNC_REASON_PERMISSION
    assert not denied or not any(
        response.WhichOneof("part") in ("rows", "arrow") for response in responses
    )
    return DENIED if denied else OK


@pytest.mark.parametrize("policy", [False, True], ids=["without policy", "with policy"])
async def test_who_may_call_what(tmp_path: Path, policy: bool) -> None:
    wrong = []
    async with open_server(tmp_path / "store") as (_, stub):
        world = World(stub)
        await world.prepare(policy)
        cases = itertools.product(METHODS, ROLES, (False, True), (OWN, OTHERS, UNKNOWN))
        for method, role, other_tenant, obj in cases:
            rpc, tenant = method.name, "b" if other_tenant else "a"
            request = await world.request(rpc, tenant, role, obj)
            result = await outcome(world.caller(role), rpc, request)
            rule = expected(rpc, role, other_tenant, obj)
            if result != rule:
                tenant_text = "another tenant" if other_tenant else "own tenant"
                wrong.append(f"{rpc}, {role.name}, {tenant_text}, {obj}: {result}, not {rule}")
    assert not wrong, "\n".join(wrong)
