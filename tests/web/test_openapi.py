"""The OpenAPI document has every route, and is valid."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from psoup.web.problems import STATUSES
from psoup.web.routes import ROUTES
from tests.support.web import WebServer


@pytest.fixture
def document(web: WebServer) -> Any:
    reply = web.get("/v1/openapi.json")
    assert reply.status == 200 and reply.headers["content-type"] == "application/json"
    return reply.json()


def test_every_route_is_in_it(document: Any) -> None:
    operations = {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        operation = operations[route.method, route.path]
        parameters = {(entry["in"], entry["name"]) for entry in operation["parameters"]}
        assert {("query", name) for name in route.parameters} <= parameters
        assert {("path", name) for name in re.findall(r"{(\w+)}", route.path)} <= parameters
        assert set(operation.get("requestBody", {}).get("content", {})) == set(route.bodies)
        assert set(operation["responses"]["200"]["content"]) == set(route.produces)


def test_it_is_consistent(document: Any) -> None:
    operations = [
        operation for methods in document["paths"].values() for operation in methods.values()
    ]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document)):
        place = document
        for part in reference.split("/"):
            place = place[part]
    for operation in operations:
        names = [(entry["in"], entry["name"]) for entry in operation["parameters"]]
        assert len(set(names)) == len(names)
    assert document["components"]["schemas"]["Problem"]["properties"]["status"]["enum"] == STATUSES


def test_it_is_valid(document: Any) -> None:
    validator = pytest.importorskip(
        "openapi_spec_validator", reason="pip install openapi-spec-validator"
    )
    validator.validate(document)


def test_problems_are_as_it_says(web: WebServer, document: Any) -> None:
    schema = document["components"]["schemas"]["Problem"]
    for path in ("/v1/ask?sql=SELECT", "/v1/answers/none", "/v1/nothing", "/v1/ask?x=1"):
        problem = web.get(path).json()
        assert set(schema["required"]) <= set(problem) <= set(schema["properties"])
        assert problem["status"] in schema["properties"]["status"]["enum"]
