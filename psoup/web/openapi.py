"""Routes, and what they are in an OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psoup.version import software_version
from psoup.web.exchange import JSON, Request, Response
from psoup.web.gateway import Gateway
from psoup.web.parameters import VALUE_PREFIX
from psoup.web.problems import PROBLEM, STATUSES

Respond = Callable[[Gateway, Request], Awaitable[Response]]

# Parameters that are not texts.
_FLAGS = ("latest", "unrefreshed", "wait_for_engine")
_NUMBERS = ("limit", "page_size")
_CHOICES = {"bigint": ["text", "number"], "knowledge": ["then", "today"]}
_HEADERS = {
    "Publish": {
        "Idempotency-Key": "any text: a batch with it counts once in 24 hours",
        "Psoup-Publisher": "who publishes: with `Psoup-Sequence` a batch counts once",
        "Psoup-Sequence": "the number of the batch, from 1 on, without gaps",
    },
    "Register": {"If-Match": "`*`: replace a registration of another text"},
    "Invoke": {"If-None-Match": "the `ETag` of an answer: 304 if the rows are the same"},
    "Ask": {"If-None-Match": "the `ETag` of an answer: 304 if the rows are the same"},
    "Watch": {"Last-Event-ID": "the id of the last `end`; precedes `since`"},
}
_REQUIRED = {"/v1/ask": ("sql",), "/v1/explain": ("sql",)}


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path, `{name}` standing for a part of it; the RPC that it makes; the
    parameters and the types of bodies that it takes; the types of its responses."""

    method: str
    path: str
    rpc: str
    respond: Respond
    summary: str
    parameters: tuple[str, ...] = ()
    bodies: tuple[str, ...] = ()
    produces: tuple[str, ...] = (JSON,)


def document(routes: Sequence[Route], parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the OpenAPI document of routes, whose parameters mean what `parameters` says."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, parameters)
    problem = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "PSoup", "version": software_version()},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Problem": {"description": "What was refused, and why.", "content": problem}
            },
            "schemas": {"Problem": _problem_schema()},
        },
    }


def _operation(route: Route, parameters: Mapping[str, str]) -> dict[str, Any]:
    words = re.findall(r"[a-z]+", route.path.removeprefix("/v1/"))
    operation: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *words]),
        "summary": route.summary,
        "parameters": [
            *map(_path_parameter, re.findall(r"\{(\w+)\}", route.path)),
            *(_parameter(route, name, parameters[name]) for name in ("timeout", *route.parameters)),
            *(_header(name, text) for name, text in _HEADERS.get(route.rpc, {}).items()),
        ],
        "responses": {
            "200": {
                "description": "The response.",
                "content": {content_type: {"schema": {}} for content_type in route.produces},
            },
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }
    if route.rpc == "Register":
        operation["responses"]["201"] = operation["responses"]["200"]
    if route.rpc in ("Invoke", "Ask"):
        operation["responses"]["304"] = {"description": "The rows are the same."}
    if route.rpc:
        operation["x-psoup-rpc"] = route.rpc
    if route.bodies:
        content: dict[str, Any] = {content_type: {"schema": {}} for content_type in route.bodies}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _parameter(route: Route, name: str, text: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    more: dict[str, Any] = {}
    if name in _FLAGS:
        schema, more = {"type": "boolean"}, {"allowEmptyValue": True}
    elif name in _NUMBERS:
        schema = {"type": "integer", "minimum": 0}
    elif name in _CHOICES:
        schema["enum"] = _CHOICES[name]
    elif name == VALUE_PREFIX:
        # Any number of parameters, whose names the query has.
        schema = {"type": "object", "additionalProperties": {"type": "string"}}
        more = {"style": "form", "explode": True}
    required = name in _REQUIRED.get(route.path, ())
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": text,
        "schema": schema,
        **more,
    }


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}


def _problem_schema() -> dict[str, Any]:
    text, number = {"type": "string"}, {"type": "integer"}
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail", "reason", "store_id"],
        "properties": {
            "type": text,
            "title": text,
            "status": {"type": "integer", "enum": STATUSES},
            "detail": text,
            "reason": text,
            **dict.fromkeys(("line", "column", "row", "retry_after_seconds"), number),
            **dict.fromkeys(("excerpt", "field", "expected", "got", "hint", "store_id"), text),
        },
    }
