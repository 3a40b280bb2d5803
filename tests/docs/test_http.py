"""docs/reference/http.md names every route and parameter of the web port."""

from __future__ import annotations

from psoup.web.routes import PARAMETERS, ROUTES
from tests.support.docs.markdown import code, read, table

PAGE = read("docs/reference/http.md")


def test_every_route_is_in_the_table() -> None:
    rows = [(code(row[0]), row[1], row[2]) for row in table(PAGE, "request", "call", "is")]
    assert rows == [(f"{route.method} {route.path}", route.rpc, route.summary) for route in ROUTES]


def test_every_parameter_is_in_the_table() -> None:
    rows = {code(row[0]): row[1] for row in table(PAGE, "parameter", "is")}
    assert rows == dict(PARAMETERS)
    assert {name for route in ROUTES for name in route.parameters} <= set(rows)
