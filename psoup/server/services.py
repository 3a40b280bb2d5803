"""The RPCs of proto/psoup/v1: each a few lines over the parts. Admission makes errors statuses."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message as ProtoMessage

from psoup.access.actions import Action
from psoup.lookup import find_stream
from psoup.server.calls.administer import audit, list_grants, list_quotas, quotas_on, set_quota
from psoup.server.calls.define import define
from psoup.server.calls.explain import explain
from psoup.server.calls.invoke import ask, invoke, readable
from psoup.server.calls.keys import create_key, list_keys, revoke_key
from psoup.server.calls.publish import publish, publish_stream
from psoup.server.calls.publishers import forget_publishers, list_publishers
from psoup.server.calls.register import register, register_many
from psoup.server.calls.sync import sync
from psoup.server.calls.watch import watch
from psoup.server.core import Core
from psoup.server.fair_queue import CALLER, Caller, next_ticket
from psoup.server.identity import identify
from psoup.server.permission import Acting, check_call, demand_operator, rule_of
from psoup.server.settings import check_text
from psoup.server.status_codes import Context
from psoup.server.wire.arrow import Message, serialize
from psoup.server.wire.describing import (
    clock_message,
    ended_message,
    lease_until,
    page_of,
    registration_messages,
    status_message,
    stream_message,
    view_message,
)
from psoup.server.wire.values import columns_message, pattern_message
from psoup.store import StreamState
from psoup.v1 import psoup_pb2 as pb
from psoup.v1 import psoup_pb2_grpc
from psoup.write.clock import ConfirmJumps
from psoup.write.registrations import UnregisterOne
from querystem.language import CreateStream, parse_statement

log = logging.getLogger("psoup.server")

Request = TypeVar("Request")
Response = TypeVar("Response")
SERVICE = pb.DESCRIPTOR.services_by_name["Psoup"].full_name


async def _begin(core: Core, rpc: str, request: Any, context: Context) -> None:
    """Finds out who calls and for whom, and refuses what the rule of the RPC refuses. The batches
    of a PublishStream name their own tenants. Raises Unauthenticated, PermissionDenied."""
    principal = await identify(core.authenticator, context)
    rule = rule_of(rpc)
    tenant = principal.tenant
    if isinstance(request, ProtoMessage):
        acting = Acting.of(request, core.settings)
        tenant = acting.tenant
        check_call(rpc, core.follower.state, acting)
        if rule.counts_events:
            core.quotas.take_event(tenant, principal.owner)
        if Action.READ in rule.actions and rpc != "Watch":
            core.quotas.check_work(tenant, principal.owner)
    left = context.time_remaining()
    until = None if left is None else time.monotonic() + left
    CALLER.set(Caller(tenant, context.peer(), next_ticket(), until, principal.owner))


def unary(
    method: Callable[[Any, Request], Awaitable[Response]],
) -> Callable[[Any, Request, Context], Awaitable[Response]]:
    @functools.wraps(method)
    async def call(self: Any, request: Request, context: Context) -> Response:
        await _begin(self._core, method.__name__, request, context)
        return await method(self, request)

    return call


def streaming(
    method: Callable[[Any, Request, Context], AsyncGenerator[Response, None]],
) -> Callable[[Any, Request, Context], AsyncGenerator[Response, None]]:
    @functools.wraps(method)
    async def call(self: Any, request: Request, context: Context) -> AsyncGenerator[Response, None]:
        await _begin(self._core, method.__name__, request, context)
        async with aclosing(method(self, request, context)) as responses:
            async for response in responses:
                yield response

    return call


class PsoupService(psoup_pb2_grpc.PsoupServicer):
    def __init__(self, core: Core) -> None:
        self._core = core

    @unary
    async def Define(self, request: pb.DefineRequest) -> pb.DefineResponse:
        core, settings = self._core, self._core.settings
        acting = Acting.of(request, settings)
        check_text(request.sql, core.settings)
        limits = {"max_columns": settings.columns, "max_text": settings.query_bytes}
        statement = await core.in_thread(functools.partial(parse_statement, request.sql, **limits))
        defined = await define(core, acting, request.sql, statement)
        response = pb.DefineResponse(
            position=core.positions.encode(defined.position),
            notes=statement.notes if isinstance(statement, CreateStream) else (),
        )
        if isinstance(defined.object, StreamState):
            response.stream.CopyFrom(stream_message(core.follower.view, defined.object, acting))
        elif defined.object is not None:
            response.view.CopyFrom(view_message(core.follower.state, defined.object, acting))
        if defined.object is not None and defined.ended is not None:
            ended = ended_message(core.follower.state, defined.object, defined.ended, acting)
            response.ended.CopyFrom(ended)
        return response

    @unary
    async def ListStreams(self, request: pb.ListStreamsRequest) -> pb.ListStreamsResponse:
        core = self._core
        acting = Acting.of(request, core.settings)
        await core.follower.catch_up()
        view = core.follower.view
        visible, ids = acting.visible(view.state), _sorted(view.state.stream_names, acting.tenant)
        streams = [view.state.streams[id_] for id_ in ids if visible(id_)]
        return pb.ListStreamsResponse(
            streams=[stream_message(view, one, acting) for one in streams]
        )

    @unary
    async def DescribeStream(self, request: pb.DescribeStreamRequest) -> pb.Stream:
        core = self._core
        acting = Acting.of(request, core.settings)
        await core.follower.catch_up()
        state = core.follower.state
        stream = find_stream(state, acting.tenant, request.name, acting.visible(state))
        return stream_message(core.follower.view, stream, acting)

    @unary
    async def ListViews(self, request: pb.ListViewsRequest) -> pb.ListViewsResponse:
        core = self._core
        acting = Acting.of(request, core.settings)
        await core.follower.catch_up()
        state = core.follower.state
        visible, ids = acting.visible(state), _sorted(state.view_names, acting.tenant)
        views = [state.views[id_] for id_ in ids if visible(id_)]
        return pb.ListViewsResponse(views=[view_message(state, view, acting) for view in views])

    @unary
    async def Register(self, request: pb.RegisterRequest) -> pb.RegisterResponse:
        core = self._core
        registered, query, streams = await register(core, request)
        return pb.RegisterResponse(
            handle=registered.handles[0],
            position=core.positions.encode(registered.position),
            created=bool(registered.created),
            columns=columns_message(query.columns),
            pattern=pattern_message(query, streams.schema),
            lease_until=lease_until(core.leases, registered.handles[0]),
            replaced=bool(registered.replaced),
        )

    @unary
    async def RegisterMany(self, request: pb.RegisterManyRequest) -> pb.RegisterManyResponse:
        core = self._core
        registered = await register_many(core, request)
        return pb.RegisterManyResponse(
            handles=registered.handles,
            position=core.positions.encode(registered.position),
            created_count=registered.created,
            replaced_count=registered.replaced,
        )

    @unary
    async def Unregister(self, request: pb.UnregisterRequest) -> pb.UnregisterResponse:
        core = self._core
        acting = Acting.of(request, core.settings)
        await core.follower.catch_up()
        own = acting.own(core.follower.state)
        position = await core.appender.submit(UnregisterOne(acting.tenant, request.handle, own))
        return pb.UnregisterResponse(position=core.positions.encode(position))

    @unary
    async def ListRegistrations(
        self, request: pb.ListRegistrationsRequest
    ) -> pb.ListRegistrationsResponse:
        core = self._core
        acting = Acting.of(request, core.settings)
        await core.follower.catch_up()
        state = core.follower.state
        acting.check_owner(state)
        owner = request.owner or acting.own(state) or ""
        page, token = page_of(state, acting.tenant, owner, request)
        messages = await registration_messages(core, acting, page)
        return pb.ListRegistrationsResponse(registrations=messages, next_page_token=token)

    @unary
    async def DescribeRegistration(
        self, request: pb.DescribeRegistrationRequest
    ) -> pb.Registration:
        core = self._core
        acting = Acting.of(request, core.settings)
        await core.follower.catch_up()
        found = acting.registration(core.follower.state, request.handle)
        await readable(core, acting, request.handle, "", False)
        (message,) = await registration_messages(core, acting, [found])
        return message

    @unary
    async def Publish(self, request: pb.PublishRequest) -> pb.PublishResponse:
        return await publish(self._core, request)

    @streaming
    def PublishStream(
        self, requests: AsyncIterator[pb.PublishRequest], context: Context
    ) -> AsyncGenerator[pb.PublishResponse, None]:
        return publish_stream(self._core, requests)

    @streaming
    def Invoke(self, request: pb.InvokeRequest, context: Context) -> AsyncGenerator[Message, None]:
        return invoke(self._core, request, context.time_remaining())

    @streaming
    def Ask(self, request: pb.AskRequest, context: Context) -> AsyncGenerator[Message, None]:
        return ask(self._core, request, context.time_remaining())

    @unary
    async def Explain(self, request: pb.ExplainRequest) -> pb.Explanation:
        return await explain(self._core, request)

    @streaming
    def Sync(self, request: pb.SyncRequest, context: Context) -> AsyncGenerator[pb.SyncPart, None]:
        return sync(self._core, request, context.time_remaining())

    @streaming
    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncGenerator[pb.SyncPart, None]:
        acting = Acting.of(request, self._core.settings)
        with self._core.quotas.watching(acting.tenant, acting.owner):
            async with aclosing(watch(self._core, request)) as parts:
                async for part in parts:
                    yield part

    @unary
    async def Status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        await self._core.follower.catch_up()
        acting = Acting.of(request, self._core.settings)
        message = status_message(self._core, acting)
        message.quotas.extend(quotas_on(self._core, acting))
        return message

    @unary
    async def Clock(self, request: pb.ClockRequest) -> pb.ClockState:
        core = self._core
        acting = Acting.of(request, core.settings)
        await core.follower.catch_up()
        if request.confirm:
            demand_operator(acting, "confirm jumps of the store's time")
            whose = acting.principal.tenant, acting.owner
            await core.appender.submit(ConfirmJumps(tuple(request.confirm), *whose))
        return clock_message(core.guard, core.follower.state, acting)

    @unary
    async def ListPublishers(self, request: pb.ListPublishersRequest) -> pb.ListPublishersResponse:
        return await list_publishers(self._core, request)

    @unary
    async def ForgetPublishers(
        self, request: pb.ForgetPublishersRequest
    ) -> pb.ForgetPublishersResponse:
        return await forget_publishers(self._core, request)

    @unary
    async def CreateKey(self, request: pb.CreateKeyRequest) -> pb.CreateKeyResponse:
        return await create_key(self._core, request)

    @unary
    async def ListKeys(self, request: pb.ListKeysRequest) -> pb.ListKeysResponse:
        return await list_keys(self._core, request)

    @unary
    async def RevokeKey(self, request: pb.RevokeKeyRequest) -> pb.RevokeKeyResponse:
        return await revoke_key(self._core, request)

    @unary
    async def ListGrants(self, request: pb.ListGrantsRequest) -> pb.ListGrantsResponse:
        return await list_grants(self._core, request)

    @unary
    async def SetQuota(self, request: pb.SetQuotaRequest) -> pb.Quota:
        return await set_quota(self._core, request)

    @unary
    async def ListQuotas(self, request: pb.ListQuotasRequest) -> pb.ListQuotasResponse:
        return await list_quotas(self._core, request)

    @unary
    async def Audit(self, request: pb.AuditRequest) -> pb.AuditResponse:
        return await audit(self._core, request)


def _sorted(names: Mapping[tuple[str, str], int], tenant: str) -> list[int]:
    """The ids of a tenant's streams or views, by name."""
    return [id_ for key, id_ in sorted(names.items()) if key[0] == tenant]


def add_service(service: PsoupService, server: Any) -> None:
    """Adds the service to a gRPC server, with answers that may be messages or their bytes."""
    psoup_pb2_grpc.add_PsoupServicer_to_server(service, server)
    answers: dict[str, tuple[Callable[..., Any], Callable[[bytes], Any]]] = {
        "Invoke": (service.Invoke, pb.InvokeRequest.FromString),
        "Ask": (service.Ask, pb.AskRequest.FromString),
    }
    handlers = {
        name: grpc.unary_stream_rpc_method_handler(method, read, serialize)
        for name, (method, read) in answers.items()
    }
    server.add_registered_method_handlers(SERVICE, handlers)
