"""Every route × role × tenant × object, against the table of tests/access/test_matrix.py."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from psoup.web.listener import WebDoor
from psoup.web.openapi import Route
from psoup.web.routes import ROUTES
from psoup.web.settings import WebSettings
from tests.access.test_matrix import (
    DENIED,
    MISSING,
    OK,
    OTHERS,
    OWN,
    ROLES,
    UNKNOWN,
    Role,
    World,
    expected,
    needs,
)
from tests.support.server.callers import open_server
from tests.support.web import SQL, Reply, fetch

_OUTCOMES = {200: OK, 201: OK, 403: DENIED, 404: MISSING}
# Routes without a call, or of a call that another route makes too.
_LEFT_OUT = ("/v1/session", "/v1/openapi.json")
_FEW_ROLES = ("administrator", "reader", "granted")


def _expected(route: Route, role: Role, other_tenant: bool, obj: str) -> str:
    if route.path != "/v1/explain":
        return expected(route.rpc, role, other_tenant, obj)
    # Of a text, for those who may ask it.
    return DENIED if other_tenant and not role.operator else needs("read")(role, obj)


class WebWorld(World):
    """The same world; its callers use the web port."""

    def __init__(self, stub: Any, port: int) -> None:
        super().__init__(stub)
        self.port = port

    async def outcome(self, route: Route, tenant: str, role: Role, obj: str) -> str:
        request = await self.request(route.rpc, tenant, role, obj)
        path, parameters = route.path, self._parameters(route, request, tenant, obj)
        body: str | None = None
        content_type = route.bodies[0] if route.bodies else None
        if "{key}" in path:
            key = request.handle.hex() if hasattr(request, "handle") else f"k{next(self.numbers)}"
            if route.rpc == "Watch":
                key = request.sync.items[0].handle.hex()
            path = path.replace("{key}", key)
        if "{name}" in path:
            name = request.stream if route.rpc == "Publish" else request.name
            path = path.replace("{name}", quote(name))
        if route.rpc == "Publish":
            body = json.dumps([{"region": "north", "amount": 1}])
        elif content_type == SQL:
            body = self._sql(route, request, obj)
        headers = dict(self.caller(role).metadata)
        reply = await asyncio.to_thread(
            fetch, self.port, route.method, path, body, content_type, headers, parameters,
            first_bytes=route.rpc == "Watch",
        )  # fmt: skip
        return _changes_outcome(reply) if route.rpc == "Watch" else _OUTCOMES[reply.status]

    def _sql(self, route: Route, request: Any, obj: str) -> str:
        if route.rpc == "Explain":
            stream = {OWN: "orders", OTHERS: "secret", UNKNOWN: "nothing"}[obj]
            return f"SELECT amount FROM {stream} WHERE amount > 1"
        return str(request.sql)

    def _parameters(self, route: Route, request: Any, tenant: str, obj: str) -> dict[str, str]:
        parameters = {"tenant": tenant} if "tenant" in route.parameters else {}
        if "sql" in route.parameters:
            parameters["sql"] = self._sql(route, request, obj)
        if route.rpc == "ListPublishers":
            parameters["owner"] = request.owner
        return parameters


def _changes_outcome(reply: Reply) -> str:
    if reply.status != 200:
        return _OUTCOMES[reply.status]
    # A copy of what may not be read any more is emptied.
    is_denied = b'"reason": "permission"' in reply.body
    assert not is_denied or b"event: row" not in reply.body
    return DENIED if is_denied else OK


async def _wrong(path: Path, roles: Sequence[Role], policy: bool) -> list[str]:
    wrong = []
    doors: list[WebDoor] = []

    def open_door(server: Any) -> None:
        doors.append(WebDoor(server, WebSettings()))
        server.doors += doors

    async with open_server(path, adapt=open_door) as (_, stub):
        world = WebWorld(stub, doors[0].port)
        await world.prepare(policy)
        routes = [route for route in ROUTES if route.path not in _LEFT_OUT]
        cases = itertools.product(routes, roles, (False, True), (OWN, OTHERS, UNKNOWN))
        for route, role, other_tenant, obj in cases:
            result = await world.outcome(route, "b" if other_tenant else "a", role, obj)
            rule = _expected(route, role, other_tenant, obj)
            if result != rule:
                place = f"{route.method} {route.path}, {role.name}"
                wrong.append(f"{place}, {other_tenant=}, {obj}: {result}, not {rule}")
    return wrong


async def test_who_may_request_what(tmp_path: Path) -> None:
    roles = [role for role in ROLES if role.name in _FEW_ROLES]
    wrong = await _wrong(tmp_path / "store", roles, policy=False)
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.parametrize("policy", [False, True], ids=["without policy", "with policy"])
async def test_every_role_may_request_what_it_may_call(tmp_path: Path, policy: bool) -> None:
    wrong = await _wrong(tmp_path / "store", ROLES, policy)
    assert not wrong, "\n".join(wrong)


def test_every_call_of_a_route_is_expected() -> None:
    names: Callable[[Route], bool] = lambda route: route.path not in _LEFT_OUT  # noqa: E731
    assert all(route.rpc for route in filter(names, ROUTES))
