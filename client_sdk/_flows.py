"""The methods of a client as requests and flows over effects, without any input or output."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from google.protobuf.message import Message

from client_sdk._exceptions import ErrorDetail, NotFound, PsoupError
from client_sdk._grpc.effects import (
    Attempts,
    Begin,
    Collect,
    Flow,
    Question,
    Repeat,
    Unary,
    retrying,
)
from client_sdk._requests import register_many_request, register_request
from client_sdk._session import HANDLE_GONE, HandleLike, Session, client_key, handle_bytes
from client_sdk._wire.access import AuditRecord, Grant, PublisherRecord, Quota
from client_sdk._wire.answers import Answer
from client_sdk._wire.explanations import Explanation
from client_sdk._wire.keys import AccessKey, NewKey
from client_sdk._wire.models import (
    Definition,
    Function,
    Registered,
    RegisteredMany,
    Registration,
    Stream,
    View,
    columns_of,
    pattern_name,
)
from client_sdk._wire.status import StoreClock, StoreStatus, StoreZones
from client_sdk._wire.values import (
    Scalar,
    optional_moment,
    timestamp,
    to_value,
)
from psoup.v1 import psoup_pb2 as pb

T = TypeVar("T")


def call(
    session: Session, method: str, request: Message, repeat: Repeat, timeout: float | None = None
) -> Flow[tuple[Any, bool]]:
    """Make a unary call. Return its response, and whether it took more than one attempt.

    `timeout` is in seconds, for all attempts together; None is the timeout of the session.
    """
    return retrying(
        lambda seconds: Unary(method, request, seconds),
        repeat,
        session.retry,
        session.timeout if timeout is None else timeout,
    )


def define(session: Session, sql: str) -> Flow[Definition]:
    request = pb.DefineRequest(tenant=session.tenant, owner=session.owner, sql=sql)
    reply, _ = yield from call(session, "Define", request, Repeat.HARMFUL)
    session.wrote(reply.position)
    definition = Definition.from_wire(reply)
    if definition.defined is not None:
        # A stream of this name may have other columns than the cached one.
        session.streams.pop(definition.defined.name, None)
    return definition


def grants(session: Session) -> Flow[list[Grant]]:
    request = pb.ListGrantsRequest(tenant=session.tenant)
    reply, _ = yield from call(session, "ListGrants", request, Repeat.READ)
    return [Grant.from_wire(message) for message in reply.grants]


def quotas(session: Session) -> Flow[list[Quota]]:
    request = pb.ListQuotasRequest(tenant=session.tenant)
    reply, _ = yield from call(session, "ListQuotas", request, Repeat.READ)
    return [Quota.from_wire(message) for message in reply.quotas]


def set_quota(
    session: Session, limits: Mapping[str, int], remove: Sequence[str], owner: str
) -> Flow[Quota]:
    request = pb.SetQuotaRequest(
        tenant=session.tenant,
        owner=owner,
        limits=[pb.QuotaLimit(name=name, limit=limit) for name, limit in limits.items()],
        remove=remove,
    )
    reply, _ = yield from call(session, "SetQuota", request, Repeat.SAFE)
    return Quota.from_wire(reply)


def publishers_page(
    session: Session, owner: str, prefix: str, token: str
) -> Flow[tuple[list[PublisherRecord], str]]:
    """Return one page and the token of the next, which is empty after the last."""
    request = pb.ListPublishersRequest(
        tenant=session.tenant, owner=owner, prefix=prefix, page_token=token
    )
    reply, _ = yield from call(session, "ListPublishers", request, Repeat.READ)
    return [PublisherRecord.from_wire(item) for item in reply.publishers], reply.next_page_token


def forget_publishers(session: Session, names: Sequence[str], owner: str) -> Flow[None]:
    request = pb.ForgetPublishersRequest(
        tenant=session.tenant, owner=owner or session.owner, names=names
    )
    reply, _ = yield from call(session, "ForgetPublishers", request, Repeat.HARMFUL)
    session.wrote(reply.position)


def audit_page(session: Session, tenant: str, token: str) -> Flow[tuple[list[AuditRecord], str]]:
    """Return one page and the token of the next, which is empty after the last.

    An empty tenant stands for all tenants that the caller administers.
    """
    request = pb.AuditRequest(tenant=tenant, page_token=token)
    reply, _ = yield from call(session, "Audit", request, Repeat.READ)
    return [AuditRecord.from_wire(item) for item in reply.records], reply.next_page_token


def streams(session: Session) -> Flow[list[Stream]]:
    request = pb.ListStreamsRequest(tenant=session.tenant)
    reply, _ = yield from call(session, "ListStreams", request, Repeat.READ)
    return [Stream.from_wire(message) for message in reply.streams]


def views(session: Session) -> Flow[list[View]]:
    request = pb.ListViewsRequest(tenant=session.tenant)
    reply, _ = yield from call(session, "ListViews", request, Repeat.READ)
    return [View.from_wire(message) for message in reply.views]


def functions(session: Session) -> Flow[list[Function]]:
    request = pb.ListViewsRequest(tenant=session.tenant)
    reply, _ = yield from call(session, "ListViews", request, Repeat.READ)
    return [Function.from_wire(message) for message in reply.functions]


def stream(session: Session, name: str) -> Flow[Stream]:
    request = pb.DescribeStreamRequest(tenant=session.tenant, name=name)
    reply, _ = yield from call(session, "DescribeStream", request, Repeat.READ)
    description = Stream.from_wire(reply)
    session.streams[name] = description
    return description


def stream_as_of(session: Session, name: str, position: bytes) -> Flow[Stream]:
    """Return a stream with the columns of a position, under the names that they had then."""
    request = pb.DescribeStreamRequest(tenant=session.tenant, name=name, as_of=position)
    reply, _ = yield from call(session, "DescribeStream", request, Repeat.READ)
    return Stream.from_wire(reply)


def register(
    session: Session,
    sql: str,
    key: str | None,
    parameters: Mapping[str, Scalar] | None,
    lease: timedelta | None,
    replace: bool = False,
) -> Flow[Registered]:
    request = register_request(session, sql, key, parameters, lease, replace)
    # The store recognises a repeat by its client key; without one it would register twice.
    repeat = Repeat.SAFE if key else Repeat.HARMFUL
    reply, again = yield from call(session, "Register", request, repeat)
    # After several attempts the reply may say that nothing was created, although the first attempt
    # did it. So the position counts as fresh.
    session.wrote(reply.position, fresh=reply.created or reply.replaced or again)
    if key:
        session.cache_handle(key, reply.handle)
    return Registered(
        handle=reply.handle,
        position=reply.position,
        created=reply.created,
        columns=columns_of(reply.columns),
        notes=tuple(reply.notes),
        pattern=pattern_name(reply.pattern),
        lease_until=optional_moment(reply, "lease_until"),
        replaced=reply.replaced,
    )


def register_many(
    session: Session, sql: str, table: Any, lease: timedelta | None, replace: bool
) -> Flow[RegisteredMany]:
    request, keyed = register_many_request(session, sql, table, lease)
    request.replace = replace
    repeat = Repeat.SAFE if keyed else Repeat.HARMFUL
    reply, again = yield from call(session, "RegisterMany", request, repeat)
    changed = reply.created_count + reply.replaced_count > 0
    session.wrote(reply.position, fresh=changed or again)
    counts = reply.created_count, reply.replaced_count
    return RegisteredMany(tuple(reply.handles), reply.position, *counts)


def with_handle(
    session: Session,
    query: HandleLike,
    timeout: float | None,
    make_call: Callable[[bytes, float | None], Flow[T]],
) -> Flow[T]:
    """Make a call for the registration that `query` names, by handle or by client key.

    `make_call` takes the handle and the seconds that are left of `timeout`. It may be called twice:
    if the handle that this client remembers for a key is gone, the key is looked up again. Raises
    NotFound if the client's owner has no registration with the key.
    """
    key = client_key(query)
    if key is None:
        return (yield from make_call(handle_bytes(query), timeout))
    # Only a deadline for all calls together: each of them counts its own attempts.
    deadline = Attempts(session.retry, Repeat.READ, timeout)
    cached = session.handles.get(key)
    if cached is not None:
        try:
            return (yield from make_call(cached, timeout))
        except PsoupError as error:
            if error.reason not in HANDLE_GONE:
                raise
            session.handles.pop(key, None)
    handle = yield from look_up(session, key, deadline)
    session.cache_handle(key, handle)
    return (yield from make_call(handle, deadline.remaining()))


def look_up(session: Session, key: str, deadline: Attempts) -> Flow[bytes]:
    """Return the handle of a client key of the client's owner, from the list of registrations.

    Raises NotFound.
    """
    owner = yield from own_name(session, deadline.remaining())
    token = ""
    while True:
        page, token = yield from registrations_page(session, owner, 0, token, deadline.remaining())
        for registration in page:
            if registration.key == key:
                return registration.handle
        if not token:
            raise NotFound(
                f"owner {owner} has no registration with client key {key!r}",
                detail=ErrorDetail(
                    reason="UNKNOWN_HANDLE", hint="`psoup list` and registrations() show them"
                ),
                code="NOT_FOUND",
            )


def unregister(session: Session, query: HandleLike) -> Flow[None]:
    def make_call(handle: bytes, timeout: float | None) -> Flow[None]:
        request = pb.UnregisterRequest(tenant=session.tenant, handle=handle)
        reply, _ = yield from call(session, "Unregister", request, Repeat.HARMFUL, timeout)
        session.wrote(reply.position)

    yield from with_handle(session, query, session.timeout, make_call)
    if isinstance(query, str):
        session.handles.pop(query, None)


def registrations_page(
    session: Session,
    owner: str,
    page_size: int,
    token: str,
    timeout: float | None = None,
    stream: str | None = None,
    contains: str | None = None,
) -> Flow[tuple[list[Registration], str]]:
    """Return one page and the token of the next, which is empty after the last."""
    request = pb.ListRegistrationsRequest(
        tenant=session.tenant,
        owner=owner,
        page_size=page_size,
        page_token=token,
        stream=stream or "",
        contains=contains or "",
    )
    reply, _ = yield from call(session, "ListRegistrations", request, Repeat.READ, timeout)
    return [Registration.from_wire(item) for item in reply.registrations], reply.next_page_token


def registration(session: Session, query: HandleLike) -> Flow[Registration]:
    def make_call(handle: bytes, timeout: float | None) -> Flow[Registration]:
        request = pb.DescribeRegistrationRequest(tenant=session.tenant, handle=handle)
        reply, _ = yield from call(session, "DescribeRegistration", request, Repeat.READ, timeout)
        return Registration.from_wire(reply)

    return (yield from with_handle(session, query, session.timeout, make_call))


def invoke(
    session: Session, query: HandleLike, request: pb.InvokeRequest, timeout: float | None
) -> Flow[Answer]:
    """Return the answer of a registration. `request` has everything but the handle."""

    def make_call(handle: bytes, timeout: float | None) -> Flow[Answer]:
        request.handle = handle
        return answer(session, request, timeout)

    return with_handle(session, query, timeout, make_call)


def begin_invoke(
    session: Session, query: HandleLike, request: pb.InvokeRequest, timeout: float | None
) -> Flow[tuple[pb.InvokeResponse, Any]]:
    """Begin the answer of a registration, as `begin_answer` does. `request` has everything but the
    handle.
    """

    def make_call(handle: bytes, timeout: float | None) -> Flow[tuple[pb.InvokeResponse, Any]]:
        request.handle = handle
        return begin_answer(session, request, timeout)

    return with_handle(session, query, timeout, make_call)


def answer(session: Session, request: Question, timeout: float | None) -> Flow[Answer]:
    """Return the whole answer to an Invoke or an Ask."""
    received: Answer
    received, request = yield from _asking(session, request, timeout, Collect)
    # An answer of an earlier instant or refresh point does not show how far the store is.
    if not request.HasField("as_of") and received.refreshed_at is None:
        session.saw(received.position, least_position=request.least_position or None)
    return received


def begin_answer(
    session: Session, request: Question, timeout: float | None
) -> Flow[tuple[pb.InvokeResponse, Any]]:
    """Return the first message of an answer, and the iterator of the others.

    The call is retried until the first message is there. A later failure is raised by the iterator.
    """
    begun, request = yield from _asking(session, request, timeout, Begin)
    first: pb.InvokeResponse = begun[0]
    header = first.header
    earlier = request.HasField("as_of") or header.HasField("refreshed_at")
    if first.HasField("header") and not earlier:
        session.saw(header.position, least_position=request.least_position or None)
    return first, begun[1]


def _asking(
    session: Session, request: Question, timeout: float | None, effect: type[Collect | Begin]
) -> Flow[tuple[Any, Question]]:
    """Return the result of an effect, and the request that led to it.

    A request for a position that the store never had is repeated once without it.
    """

    def ask(request: Question) -> Flow[tuple[Any, bool]]:
        return retrying(
            lambda seconds: effect(_method(request), request, seconds),
            Repeat.READ,
            session.retry,
            timeout,
        )

    try:
        return (yield from ask(request))[0], request
    except PsoupError as error:
        if not session.forget(error, request.least_position):
            raise
    again = copy.deepcopy(request)
    again.least_position = b""
    return (yield from ask(again))[0], again


def _method(request: Question) -> str:
    return "Invoke" if isinstance(request, pb.InvokeRequest) else "Ask"


def explain(
    session: Session, query: HandleLike, window: str | None, timeout: float | None
) -> Flow[Explanation]:
    def make_call(handle: bytes, timeout: float | None) -> Flow[Explanation]:
        request = pb.ExplainRequest(tenant=session.tenant, handle=handle, window=window or "")
        reply, _ = yield from call(session, "Explain", request, Repeat.READ, timeout)
        return Explanation.from_wire(reply)

    timeout = session.timeout if timeout is None else timeout
    return (yield from with_handle(session, query, timeout, make_call))


def explain_text(
    session: Session, sql: str, parameters: Mapping[str, Scalar] | None, timeout: float | None
) -> Flow[Explanation]:
    request = pb.ExplainRequest(
        tenant=session.tenant,
        sql=sql,
        parameters={name: to_value(value) for name, value in (parameters or {}).items()},
    )
    timeout = session.timeout if timeout is None else timeout
    reply, _ = yield from call(session, "Explain", request, Repeat.READ, timeout)
    return Explanation.from_wire(reply)


def clock(session: Session, confirm: Sequence[int], timeout: float | None) -> Flow[StoreClock]:
    """Return the clocks of the store, after confirming the jumps with these numbers.

    Confirming a jump twice has the effect of confirming it once, so this is repeated as a read is.
    """
    request = pb.ClockRequest(confirm=confirm)
    reply, _ = yield from call(session, "Clock", request, Repeat.READ, timeout)
    return StoreClock.from_wire(reply)


def zones(session: Session, renew: Sequence[str], timeout: float | None) -> Flow[StoreZones]:
    """Return the zones of the store, after renewing the rules of those with these names. Renewing
    twice has the effect of renewing once, so this is repeated as a read is."""
    reply, _ = yield from call(session, "Zones", pb.ZonesRequest(renew=renew), Repeat.READ, timeout)
    return StoreZones.from_wire(reply)


def status(session: Session, timeout: float | None) -> Flow[StoreStatus]:
    reply, _ = yield from call(session, "Status", pb.StatusRequest(), Repeat.READ, timeout)
    return StoreStatus.from_wire(reply)


# ---- keys


def create_key(
    session: Session,
    owner: str,
    roles: Sequence[str],
    claims: Mapping[str, Any] | None,
    expires: datetime | None,
    tenant: str | None,
) -> Flow[NewKey]:
    if isinstance(roles, str):
        raise TypeError("roles are a list of names")
    request = pb.CreateKeyRequest(
        tenant=session.tenant if tenant is None else tenant,
        owner=owner,
        roles=roles,
        claims=json.dumps(dict(claims or {})),
        expires=None if expires is None else timestamp(expires),
    )
    reply, _ = yield from call(session, "CreateKey", request, Repeat.HARMFUL)
    session.wrote(reply.position)
    return NewKey(AccessKey.from_wire(reply.key), reply.secret)


def keys(session: Session, tenant: str | None) -> Flow[list[AccessKey]]:
    request = pb.ListKeysRequest(tenant=session.tenant if tenant is None else tenant)
    reply, _ = yield from call(session, "ListKeys", request, Repeat.READ)
    return [AccessKey.from_wire(message) for message in reply.keys]


def revoke_key(session: Session, id_: str, tenant: str | None) -> Flow[AccessKey]:
    request = pb.RevokeKeyRequest(tenant=session.tenant if tenant is None else tenant, id=id_)
    reply, _ = yield from call(session, "RevokeKey", request, Repeat.HARMFUL)
    session.wrote(reply.position)
    return AccessKey.from_wire(reply.key)


def own_name(session: Session, timeout: float | None = None) -> Flow[str]:
    """Return the owner that the client acts as. The store is asked if the client does not know."""
    if session.owner:
        return session.owner
    store = yield from status(session, timeout)
    return (store.security.owner if store.security else "") or "main"


def own_tenant(session: Session) -> Flow[str]:
    """Return the tenant that the client acts in. The store is asked if the client does not know."""
    if session.tenant:
        return session.tenant
    store = yield from status(session, None)
    return (store.security.tenant if store.security else "") or "main"
