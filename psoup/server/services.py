"""The RPCs of proto/psoup/v1: each a few lines over the parts, with errors made statuses."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc

from psoup.lookup import find_registration, find_stream, find_view
from psoup.server.calls.define import define
from psoup.server.calls.explain import explain
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.publish import publish, publish_stream
from psoup.server.calls.register import register, register_many
from psoup.server.calls.sync import sync
from psoup.server.calls.watch import watch
from psoup.server.core import Core
from psoup.server.fair_queue import CALLER, Caller, next_ticket
from psoup.server.identity import PRINCIPAL
from psoup.server.settings import check_text, default_name
from psoup.server.status_codes import Context, abort
from psoup.server.wire.arrow import Message, serialize
from psoup.server.wire.describing import (
    clock_message,
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


def _caller(request: Any, context: Context) -> Caller:
    """The caller that a call computes for. The batches of a PublishStream name their own
    tenants."""
    asked = request.sync if isinstance(request, pb.WatchRequest) else request
    left = context.time_remaining()
    until = None if left is None else time.monotonic() + left
    return Caller(getattr(asked, "tenant", ""), context.peer(), next_ticket(), until)


def unary(
    method: Callable[[Any, Request], Awaitable[Response]],
) -> Callable[[Any, Request, Context], Awaitable[Response]]:
    @functools.wraps(method)
    async def call(self: Any, request: Request, context: Context) -> Response:
        try:
            PRINCIPAL.set(self._core.authenticator.principal(context))
            CALLER.set(_caller(request, context))
            return await method(self, request)
        except Exception as error:
            await abort(context, error, self._core.store.id)
            raise

    return call


def streaming(
    method: Callable[[Any, Request, Context], AsyncIterator[Response]],
) -> Callable[[Any, Request, Context], AsyncIterator[Response]]:
    @functools.wraps(method)
    async def call(self: Any, request: Request, context: Context) -> AsyncIterator[Response]:
        try:
            PRINCIPAL.set(self._core.authenticator.principal(context))
            CALLER.set(_caller(request, context))
            async for response in method(self, request, context):
                yield response
        except (GeneratorExit, asyncio.CancelledError):
            raise
        except Exception as error:
            await abort(context, error, self._core.store.id)

    return call


class PsoupService(psoup_pb2_grpc.PsoupServicer):
    def __init__(self, core: Core) -> None:
        self._core = core

    @unary
    async def Define(self, request: pb.DefineRequest) -> pb.DefineResponse:
        core, settings = self._core, self._core.settings
        tenant = default_name(request.tenant, "tenant", settings)
        owner = default_name(request.owner, "owner", settings)
        check_text(request.sql, core.settings)
        limits = {"max_columns": settings.columns, "max_text": settings.query_bytes}
        statement = await core.in_thread(functools.partial(parse_statement, request.sql, **limits))
        defined, position = await define(core, tenant, owner, request.sql, statement)
        response = pb.DefineResponse(
            position=core.store.positions.encode(position),
            notes=statement.notes if isinstance(statement, CreateStream) else (),
        )
        if isinstance(defined, StreamState):
            response.stream.CopyFrom(stream_message(core.follower.view, defined, PRINCIPAL.get()))
        else:
            response.view.CopyFrom(view_message(core.follower.state, defined))
        return response

    @unary
    async def ListStreams(self, request: pb.ListStreamsRequest) -> pb.ListStreamsResponse:
        core = self._core
        tenant = default_name(request.tenant, "tenant", core.settings)
        await core.follower.catch_up()
        names = sorted(key for key in core.follower.state.stream_names if key[0] == tenant)
        streams = [find_stream(core.follower.state, *key) for key in names]
        return pb.ListStreamsResponse(
            streams=[stream_message(core.follower.view, one, PRINCIPAL.get()) for one in streams]
        )

    @unary
    async def DescribeStream(self, request: pb.DescribeStreamRequest) -> pb.Stream:
        core = self._core
        tenant = default_name(request.tenant, "tenant", core.settings)
        await core.follower.catch_up()
        stream = find_stream(core.follower.state, tenant, request.name)
        return stream_message(core.follower.view, stream, PRINCIPAL.get())

    @unary
    async def ListViews(self, request: pb.ListViewsRequest) -> pb.ListViewsResponse:
        core = self._core
        tenant = default_name(request.tenant, "tenant", core.settings)
        await core.follower.catch_up()
        state = core.follower.state
        names = sorted(key for key in state.view_names if key[0] == tenant)
        views = [find_view(state, *key) for key in names]
        return pb.ListViewsResponse(views=[view_message(state, view) for view in views])

    @unary
    async def Register(self, request: pb.RegisterRequest) -> pb.RegisterResponse:
        core = self._core
        registered, query, streams = await register(core, request)
        return pb.RegisterResponse(
            handle=registered.handles[0],
            position=core.store.positions.encode(registered.position),
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
            position=core.store.positions.encode(registered.position),
            created_count=registered.created,
            replaced_count=registered.replaced,
        )

    @unary
    async def Unregister(self, request: pb.UnregisterRequest) -> pb.UnregisterResponse:
        core = self._core
        tenant = default_name(request.tenant, "tenant", core.settings)
        position = await core.appender.submit(UnregisterOne(tenant, request.handle))
        return pb.UnregisterResponse(position=core.store.positions.encode(position))

    @unary
    async def ListRegistrations(
        self, request: pb.ListRegistrationsRequest
    ) -> pb.ListRegistrationsResponse:
        core = self._core
        tenant = default_name(request.tenant, "tenant", core.settings)
        await core.follower.catch_up()
        page, token = page_of(core.follower.state, tenant, request)
        messages = await registration_messages(core, page, PRINCIPAL.get())
        return pb.ListRegistrationsResponse(registrations=messages, next_page_token=token)

    @unary
    async def DescribeRegistration(
        self, request: pb.DescribeRegistrationRequest
    ) -> pb.Registration:
        core = self._core
        tenant = default_name(request.tenant, "tenant", core.settings)
        await core.follower.catch_up()
        found = find_registration(core.follower.state, tenant, request.handle)
        (message,) = await registration_messages(core, [found], PRINCIPAL.get())
        return message

    @unary
    async def Publish(self, request: pb.PublishRequest) -> pb.PublishResponse:
        return await publish(self._core, request)

    @streaming
    async def PublishStream(
        self, requests: AsyncIterator[pb.PublishRequest], context: Context
    ) -> AsyncIterator[pb.PublishResponse]:
        async for response in publish_stream(self._core, requests):
            yield response

    @streaming
    async def Invoke(self, request: pb.InvokeRequest, context: Context) -> AsyncIterator[Message]:
        async for response in invoke(self._core, request, context.time_remaining()):
            yield response

    @streaming
    async def Ask(self, request: pb.AskRequest, context: Context) -> AsyncIterator[Message]:
        async for response in ask(self._core, request, context.time_remaining()):
            yield response

    @unary
    async def Explain(self, request: pb.ExplainRequest) -> pb.Explanation:
        return await explain(self._core, request)

    @streaming
    async def Sync(self, request: pb.SyncRequest, context: Context) -> AsyncIterator[pb.SyncPart]:
        async for part in sync(self._core, request, context.time_remaining()):
            yield part

    @streaming
    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.SyncPart]:
        async for part in watch(self._core, request):
            yield part

    @unary
    async def Status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        await self._core.follower.catch_up()
        return status_message(self._core)

    @unary
    async def Clock(self, request: pb.ClockRequest) -> pb.ClockState:
        core = self._core
        await core.follower.catch_up()
        if request.confirm:
            await core.appender.submit(ConfirmJumps(tuple(request.confirm)))
        return clock_message(core.guard, core.follower.state)


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
