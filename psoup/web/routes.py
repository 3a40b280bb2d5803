"""The one table of routes: what is dispatched, what the OpenAPI document says, what tests call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from psoup.web import resources
from psoup.web.bodies import BATCH_FORMS
from psoup.web.exchange import EVENTS, JSON, SQL, Request, Response, json_response
from psoup.web.forms import CONTENT_TYPES
from psoup.web.gateway import Gateway
from psoup.web.openapi import Route, document

# What parameters of URLs mean; a route names those that it takes.
PARAMETERS: Mapping[str, str] = {
    "as_of": "answer as of this instant, such as 2026-11-16T09:00:00Z",
    "beat": "send a `beat` if nothing was sent for so long; 30s without it",
    "bigint": "`text` writes a BIGINT past 2^53 as text, which JavaScript needs",
    "contains": "only registrations whose text or client key contains this",
    "format": "`json`, `ndjson`, `csv` or `arrow`; without it `Accept` decides",
    "knowledge": "with `as_of`: `then`, only rows accepted by it, or `today`, all rows known now",
    "latest": "over several event-time streams: don't wait for those that lag",
    "lease": "how long the registration lives without contact, such as 30d",
    "least_position": "the answer must include this position",
    "limit": "at most this many rows of the answer; `truncated` says that there are more",
    "owner": "another owner, for those who administer the tenant",
    "p.": "`p.NAME` is the value of `:NAME`; `p.NAME:TYPE` names its type",
    "page": "`next_page_token` of the page before",
    "page_size": "how many entries a page has at most",
    "prefix": "only names that begin so",
    "since": "the id of the `end` after which changes are wanted; without it all rows come first",
    "sql": "the SELECT",
    "stream": "only registrations that read this stream or view",
    "tenant": "another tenant, for operators",
    "timeout": "how long the request may take, such as 5s",
    "unrefreshed": "leave REFRESH out",
    "wait_for_engine": "compute nothing on the spot; wait for the engine",
    "window": "another window than the registered one, such as RANGE 5 MINUTES",
}
_ANSWER = ("as_of", "bigint", "format", "knowledge", "latest", "least_position", "limit")
_ANSWER_FORMS = tuple(CONTENT_TYPES.values())


@cache
def _document() -> Any:
    return document(ROUTES, PARAMETERS)


async def _describe(gateway: Gateway, request: Request) -> Response:
    return json_response(_document())


ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/status", "Status", resources.status, "How the store is."),
    Route("GET", "/v1/clock", "Clock", resources.clock, "What is known of the servers' clocks."),
    Route("GET", "/v1/streams", "ListStreams", resources.streams, "The streams.", ("tenant",)),
    Route(
        "GET", "/v1/streams/{name}", "DescribeStream", resources.stream, "A stream.", ("tenant",)
    ),
    Route(
        "POST",
        "/v1/streams/{name}/rows",
        "Publish",
        resources.publish,
        "Append the rows of the body.",
        ("tenant", "owner"),
        tuple(BATCH_FORMS),
    ),
    Route(
        "GET", "/v1/views", "ListViews", resources.views, "The views and functions.", ("tenant",)
    ),
    Route(
        "POST",
        "/v1/define",
        "Define",
        resources.define,
        "Run a statement: CREATE, DROP, GRANT or REVOKE.",
        ("tenant", "owner"),
        (SQL,),
    ),
    Route(
        "GET",
        "/v1/ask",
        "Ask",
        resources.ask,
        "The answer of a query that is not registered.",
        ("tenant", "sql", "p.", "unrefreshed", *_ANSWER),
        produces=_ANSWER_FORMS,
    ),
    Route(
        "POST",
        "/v1/ask",
        "Ask",
        resources.ask,
        "The same, with the query as the body.",
        ("tenant", "p.", "unrefreshed", *_ANSWER),
        (SQL,),
        _ANSWER_FORMS,
    ),
    Route(
        "GET",
        "/v1/answers/{key}",
        "Invoke",
        resources.invoke,
        "The answer of a registration, by its key or its 32 digits.",
        ("tenant", "owner", "window", "wait_for_engine", "unrefreshed", *_ANSWER),
        produces=_ANSWER_FORMS,
    ),
    Route(
        "GET",
        "/v1/answers/{key}/changes",
        "Watch",
        resources.watch,
        "The changes of an answer as they come, as server-sent events.",
        ("tenant", "owner", "window", "since", "beat", "bigint"),
        produces=(EVENTS,),
    ),
    Route(
        "GET",
        "/v1/registrations",
        "ListRegistrations",
        resources.registrations,
        "A page of registrations.",
        ("tenant", "owner", "stream", "contains", "page", "page_size"),
    ),
    Route(
        "GET",
        "/v1/registrations/{key}",
        "DescribeRegistration",
        resources.registration,
        "A registration.",
        ("tenant", "owner"),
    ),
    Route(
        "PUT",
        "/v1/registrations/{key}",
        "Register",
        resources.register,
        "Register a query under a key; with `If-Match: *` it replaces another one.",
        ("tenant", "owner", "p.", "lease"),
        (SQL,),
    ),
    Route(
        "DELETE",
        "/v1/registrations/{key}",
        "Unregister",
        resources.unregister,
        "End a registration.",
        ("tenant", "owner"),
    ),
    Route(
        "GET",
        "/v1/registrations/{key}/explain",
        "Explain",
        resources.explain,
        "How a registration is matched, and where the time of an answer goes.",
        ("tenant", "owner", "window"),
    ),
    Route(
        "GET",
        "/v1/explain",
        "Explain",
        resources.explain_text,
        "The same of a query that is not registered.",
        ("tenant", "sql", "p."),
    ),
    Route(
        "POST",
        "/v1/explain",
        "Explain",
        resources.explain_text,
        "The same, with the query as the body.",
        ("tenant", "p."),
        (SQL,),
    ),
    Route(
        "POST",
        "/v1/session",
        "Status",
        resources.log_in,
        "Log a page in: the bearer token becomes a cookie.",
        bodies=(JSON,),
    ),
    Route("DELETE", "/v1/session", "", resources.log_out, "Log a page out."),
    Route("GET", "/v1/keys", "ListKeys", resources.keys, "The access keys.", ("tenant",)),
    Route("GET", "/v1/grants", "ListGrants", resources.grants, "The grants.", ("tenant",)),
    Route(
        "GET",
        "/v1/quotas",
        "ListQuotas",
        resources.quotas,
        "Quotas, and what is used.",
        ("tenant",),
    ),
    Route(
        "GET",
        "/v1/audit",
        "Audit",
        resources.audit,
        "What was administered, newest first.",
        ("tenant", "page", "page_size"),
    ),
    Route(
        "GET",
        "/v1/publishers",
        "ListPublishers",
        resources.publishers,
        "The publishers, and how far each has come.",
        ("tenant", "owner", "prefix", "page", "page_size"),
    ),
    Route("GET", "/v1/openapi.json", "", _describe, "This table, for programs: OpenAPI 3.1."),
)
