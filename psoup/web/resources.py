"""The resources of `/v1`: each makes the request of an RPC, and shows its response as JSON."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.message import Message

from psoup.errors import BadRequest, Unauthenticated, UnknownHandle
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.v1 import psoup_pb2 as pb
from psoup.web.answers import answer
from psoup.web.bodies import BATCH_FORMS
from psoup.web.changes import changes, watch_request
from psoup.web.exchange import Request, Response, json_response
from psoup.web.gateway import Gateway
from psoup.web.plain_messages import plain
from psoup.web.session import end

_HANDLE_DIGITS = 32
# A text in UTF-8 with what a client may put around it; the service has its own, smaller limit.
_MAX_TEXT_BYTES = 1 << 20
# How long a batch with an Idempotency-Key counts once.
_IDEMPOTENCY_SECONDS = 24 * 3600
_KNOWLEDGE = {"today": pb.KNOWLEDGE_TODAY, "then": pb.KNOWLEDGE_UNSPECIFIED}


# ---- helpers


async def _shown(gateway: Gateway, request: Request, rpc: str, message: Message) -> Response:
    """Return the response of an RPC as JSON."""

    async def make(call: Call) -> Message:
        return message

    return json_response(plain(await gateway.unary(request, rpc, make)))


async def _handle(core: Core, call: Call, request: Request) -> bytes:
    """Return the handle of the registration that the path names, by its client key or by 32 digits.
    Raise UnknownHandle, PermissionDenied."""
    key, parameters = request.names["key"], request.parameters
    acting = call.acting(
        pb.RegisterRequest(tenant=parameters.text("tenant"), owner=parameters.text("owner"))
    )
    for attempt in range(2):
        state = core.follower.state
        acting.check_owner(state)
        handle = state.registrations.find(acting.tenant, acting.owner, key)
        if handle is not None:
            return handle
        if len(key) == _HANDLE_DIGITS and (digits := _hexadecimal(key)) is not None:
            return digits
        if not attempt:
            # Another server may just have registered it.
            await core.follower.catch_up()
    raise UnknownHandle(
        f"no registration of {acting.owner} has the key {key[:60]!r}",
        field="key",
        hint="GET /v1/registrations lists those that there are; ?owner= names another owner",
    )


def _hexadecimal(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


async def _text(request: Request) -> str:
    try:
        return (await request.body(_MAX_TEXT_BYTES)).decode()
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8", field="body") from None


async def _sql(request: Request) -> str:
    """Return the SELECT of the URL, or of the body of a POST."""
    return await _text(request) if request.method == "POST" else request.parameters.text("sql")


def _knowledge(request: Request) -> pb.Knowledge:
    return _KNOWLEDGE[request.parameters.choice("knowledge", _KNOWLEDGE) or "then"]


# ---- the store


async def status(gateway: Gateway, request: Request) -> Response:
    return await _shown(gateway, request, "Status", pb.StatusRequest())


async def clock(gateway: Gateway, request: Request) -> Response:
    return await _shown(gateway, request, "Clock", pb.ClockRequest())


# ---- streams and views


async def streams(gateway: Gateway, request: Request) -> Response:
    message = pb.ListStreamsRequest(tenant=request.parameters.text("tenant"))
    return await _shown(gateway, request, "ListStreams", message)


async def stream(gateway: Gateway, request: Request) -> Response:
    message = pb.DescribeStreamRequest(
        tenant=request.parameters.text("tenant"), name=request.names["name"]
    )
    return await _shown(gateway, request, "DescribeStream", message)


async def publish(gateway: Gateway, request: Request) -> Response:
    """Append the rows of the body to a stream."""
    core, parameters = gateway.core, request.parameters
    key, sequence = _idempotency_key(request), _sequence(request)
    publisher = request.headers.get("psoup-publisher", "")

    async def make(call: Call) -> Message:
        # What arrives counts until the message that it becomes does.
        hold = core.room.hold(call.shown_tenant or call.peer)
        try:
            content = await request.body(core.settings.message_bytes, hold.arrive)
        finally:
            hold.release()
        call.batch_form = BATCH_FORMS[request.content_type]
        message = pb.PublishRequest(
            tenant=parameters.text("tenant"),
            owner=parameters.text("owner"),
            stream=request.names["name"],
            publisher=publisher,
            sequence=sequence,
            arrow=content,
        )
        if key:
            # A publisher of one batch.
            message.publisher = f"http/{call.acting(message).owner}/{key}"
            message.sequence = 1
            message.publisher_lease.FromSeconds(_IDEMPOTENCY_SECONDS)
        return message

    response: pb.PublishResponse = await gateway.unary(request, "Publish", make)
    return json_response(
        {
            "rows": response.row_count,
            "position": response.position.hex(),
            "first_row_id": response.first_row_id,
            "duplicate": response.duplicate,
            "unverified": response.unverified,
        }
    )


def _idempotency_key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if key and {"psoup-publisher", "psoup-sequence"} & request.headers.keys():
        raise BadRequest(
            "a batch has an Idempotency-Key, or a publisher and a sequence",
            field="Idempotency-Key",
        )
    return key


def _sequence(request: Request) -> int:
    text = request.headers.get("psoup-sequence", "0")
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise BadRequest(
            "Psoup-Sequence is no number", field="Psoup-Sequence", expected="1, 2, 3, …"
        )
    return int(text)


async def views(gateway: Gateway, request: Request) -> Response:
    message = pb.ListViewsRequest(tenant=request.parameters.text("tenant"))
    return await _shown(gateway, request, "ListViews", message)


async def define(gateway: Gateway, request: Request) -> Response:
    parameters = request.parameters

    async def make(call: Call) -> Message:
        return pb.DefineRequest(
            tenant=parameters.text("tenant"),
            owner=parameters.text("owner"),
            sql=await _text(request),
        )

    return json_response(plain(await gateway.unary(request, "Define", make)))


# ---- answers


async def ask(gateway: Gateway, request: Request) -> Response:
    parameters = request.parameters

    async def make(call: Call) -> Message:
        return pb.AskRequest(
            tenant=parameters.text("tenant"),
            sql=await _sql(request),
            parameters=parameters.values(),
            as_of=parameters.instant("as_of"),
            knowledge=_knowledge(request),
            least_position=parameters.position("least_position"),
            unrefreshed=parameters.flag("unrefreshed"),
            latest=parameters.flag("latest"),
        )

    return await answer(gateway, request, "Ask", make)


async def invoke(gateway: Gateway, request: Request) -> Response:
    parameters = request.parameters

    async def make(call: Call) -> Message:
        return pb.InvokeRequest(
            tenant=parameters.text("tenant"),
            handle=await _handle(gateway.core, call, request),
            window=parameters.text("window"),
            as_of=parameters.instant("as_of"),
            knowledge=_knowledge(request),
            least_position=parameters.position("least_position"),
            wait_for_engine=parameters.flag("wait_for_engine"),
            unrefreshed=parameters.flag("unrefreshed"),
            latest=parameters.flag("latest"),
        )

    return await answer(gateway, request, "Invoke", make)


async def watch(gateway: Gateway, request: Request) -> Response:
    async def make(call: Call) -> Message:
        return watch_request(request, await _handle(gateway.core, call, request))

    return await changes(gateway, request, make)


# ---- registrations


async def registrations(gateway: Gateway, request: Request) -> Response:
    parameters = request.parameters
    message = pb.ListRegistrationsRequest(
        tenant=parameters.text("tenant"),
        owner=parameters.text("owner"),
        page_size=parameters.count("page_size") or 0,
        page_token=parameters.text("page"),
        stream=parameters.text("stream"),
        contains=parameters.text("contains"),
    )
    return await _shown(gateway, request, "ListRegistrations", message)


async def registration(gateway: Gateway, request: Request) -> Response:
    async def make(call: Call) -> Message:
        return pb.DescribeRegistrationRequest(
            tenant=request.parameters.text("tenant"),
            handle=await _handle(gateway.core, call, request),
        )

    return json_response(plain(await gateway.unary(request, "DescribeRegistration", make)))


async def explain(gateway: Gateway, request: Request) -> Response:
    async def make(call: Call) -> Message:
        return pb.ExplainRequest(
            tenant=request.parameters.text("tenant"),
            handle=await _handle(gateway.core, call, request),
            window=request.parameters.text("window"),
        )

    return json_response(plain(await gateway.unary(request, "Explain", make)))


async def explain_text(gateway: Gateway, request: Request) -> Response:
    parameters = request.parameters

    async def make(call: Call) -> Message:
        return pb.ExplainRequest(
            tenant=parameters.text("tenant"),
            sql=await _sql(request),
            parameters=parameters.values(),
        )

    return json_response(plain(await gateway.unary(request, "Explain", make)))


async def register(gateway: Gateway, request: Request) -> Response:
    """Register the body's text under the key of the path; 201 if it is new."""
    parameters = request.parameters
    replaces = request.headers.get("if-match", "").strip()
    if replaces not in ("", "*"):
        raise BadRequest("If-Match takes * and no tags", field="If-Match", got=replaces[:60])

    async def make(call: Call) -> Message:
        return pb.RegisterRequest(
            tenant=parameters.text("tenant"),
            owner=parameters.text("owner"),
            client_key=request.names["key"],
            sql=await _text(request),
            parameters=parameters.values(),
            lease=parameters.duration("lease"),
            replace=bool(replaces),
        )

    response: pb.RegisterResponse = await gateway.unary(request, "Register", make)
    return json_response(plain(response), 201 if response.created else 200)


async def unregister(gateway: Gateway, request: Request) -> Response:
    async def make(call: Call) -> Message:
        return pb.UnregisterRequest(
            tenant=request.parameters.text("tenant"),
            handle=await _handle(gateway.core, call, request),
        )

    return json_response(plain(await gateway.unary(request, "Unregister", make)))


# ---- log-ins


async def log_in(gateway: Gateway, request: Request) -> Response:
    """Set the cookie of a log-in, if the bearer token of the request is one of the store's."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("a log-in needs a bearer token", hint="Authorization: Bearer TOKEN")
    await request.body(_MAX_TEXT_BYTES)
    # Whoever may not call at all is refused here.
    await _shown(gateway, request, "Status", pb.StatusRequest())
    headers, reason = gateway.sessions.begin(request, token.strip())
    return json_response({"cookie": bool(headers), "reason": reason}, headers=headers)


async def log_out(gateway: Gateway, request: Request) -> Response:
    return json_response({"cookie": False}, headers=end())


# ---- people


async def keys(gateway: Gateway, request: Request) -> Response:
    message = pb.ListKeysRequest(tenant=request.parameters.text("tenant"))
    return await _shown(gateway, request, "ListKeys", message)


async def grants(gateway: Gateway, request: Request) -> Response:
    message = pb.ListGrantsRequest(tenant=request.parameters.text("tenant"))
    return await _shown(gateway, request, "ListGrants", message)


async def quotas(gateway: Gateway, request: Request) -> Response:
    message = pb.ListQuotasRequest(tenant=request.parameters.text("tenant"))
    return await _shown(gateway, request, "ListQuotas", message)


async def audit(gateway: Gateway, request: Request) -> Response:
    message = pb.AuditRequest(**_page(request))
    return await _shown(gateway, request, "Audit", message)


async def publishers(gateway: Gateway, request: Request) -> Response:
    parameters = request.parameters
    message = pb.ListPublishersRequest(
        owner=parameters.text("owner"), prefix=parameters.text("prefix"), **_page(request)
    )
    return await _shown(gateway, request, "ListPublishers", message)


def _page(request: Request) -> dict[str, Any]:
    parameters = request.parameters
    return {
        "tenant": parameters.text("tenant"),
        "page_size": parameters.count("page_size") or 0,
        "page_token": parameters.text("page"),
    }
