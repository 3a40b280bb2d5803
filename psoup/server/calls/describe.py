"""The calls that list and describe: streams, views, registrations, the server and its clock."""

from __future__ import annotations

from collections.abc import Mapping

from psoup.lookup import find_object, find_stream
from psoup.server.call import Call
from psoup.server.calls.administer import quotas_on
from psoup.server.calls.binding import readable
from psoup.server.core import Core
from psoup.server.permission import demand_operator
from psoup.server.wire.describing import (
    page_of,
    registration_messages,
    stream_message,
    stream_stats,
    view_message,
)
from psoup.server.wire.status import clock_message, status_message
from psoup.v1 import psoup_pb2 as pb
from psoup.write.clock import ConfirmJumps

# ---- streams and views


async def list_streams(
    core: Core, call: Call, request: pb.ListStreamsRequest
) -> pb.ListStreamsResponse:
    """Return the streams that the caller may know of, by name."""
    acting = call.acting(request)
    await core.follower.catch_up()
    view = core.follower.view
    visible, ids = acting.visible(view.state), _sorted(view.state.stream_names, acting.tenant)
    streams = [view.state.streams[id_] for id_ in ids if visible(id_)]
    return pb.ListStreamsResponse(
        streams=[stream_message(view, stream, acting) for stream in streams]
    )


async def describe_stream(core: Core, call: Call, request: pb.DescribeStreamRequest) -> pb.Stream:
    """Raise NoSuchStream, NotAStream, ForeignPosition."""
    acting = call.acting(request)
    await core.follower.catch_up()
    state = core.follower.state
    stream = find_stream(state, acting.tenant, request.name, acting.visible(state))
    as_of = core.positions.decode(request.as_of).position if request.as_of else None
    message = stream_message(core.follower.view, stream, acting, as_of)
    stats = stream_stats(core, stream, acting)
    if stats is not None:
        message.stats.CopyFrom(stats)
    return message


async def list_views(core: Core, call: Call, request: pb.ListViewsRequest) -> pb.ListViewsResponse:
    """Return the views and the functions that the caller may know of, by name."""
    acting = call.acting(request)
    await core.follower.catch_up()
    state = core.follower.state
    visible, ids = acting.visible(state), _sorted(state.view_names, acting.tenant)
    views = [state.views[id_] for id_ in ids if visible(id_)]
    messages = [view_message(state, view, acting) for view in views]
    return pb.ListViewsResponse(
        views=[message for message in messages if isinstance(message, pb.View)],
        functions=[message for message in messages if isinstance(message, pb.Function)],
    )


def _sorted(names: Mapping[tuple[str, str], int], tenant: str) -> list[int]:
    """Return the ids of a tenant's streams or views, by name."""
    return [id_ for key, id_ in sorted(names.items()) if key[0] == tenant]


# ---- registrations


async def list_registrations(
    core: Core, call: Call, request: pb.ListRegistrationsRequest
) -> pb.ListRegistrationsResponse:
    """Return a page of registrations. Raise PermissionDenied, BadRequest, NoSuchStream."""
    acting = call.acting(request)
    await core.follower.catch_up()
    state = core.follower.state
    acting.check_owner(state)
    owner = request.owner or acting.own(state) or ""
    stream_id = None
    if request.stream:
        stream_id = find_object(state, acting.tenant, request.stream, acting.visible(state)).id
    page, token = page_of(state, acting.tenant, owner, request, stream_id)
    messages = await registration_messages(core, call, acting, page)
    return pb.ListRegistrationsResponse(registrations=messages, next_page_token=token)


async def describe_registration(
    core: Core, call: Call, request: pb.DescribeRegistrationRequest
) -> pb.Registration:
    """Raise UnknownHandle, RegistrationExpired, PermissionDenied."""
    acting = call.acting(request)
    await core.follower.catch_up()
    registration = acting.registration(core.follower.state, request.handle)
    await readable(core, call, acting, request.handle, "", False)
    (message,) = await registration_messages(core, call, acting, [registration])
    return message


# ---- the server


async def status(core: Core, call: Call, request: pb.StatusRequest) -> pb.StatusResponse:
    """Return how the store is, as far as the caller may know."""
    await core.follower.catch_up()
    acting = call.acting(request)
    message = status_message(core, acting)
    message.quotas.extend(quotas_on(core, acting))
    return message


async def clock(core: Core, call: Call, request: pb.ClockRequest) -> pb.ClockState:
    """Return the state of the clocks, after jumps were confirmed that the request names. Raise
    PermissionDenied."""
    acting = call.acting(request)
    await core.follower.catch_up()
    if request.confirm:
        demand_operator(acting, "confirm jumps of the store's time")
        confirmation = ConfirmJumps(tuple(request.confirm), call.principal.tenant, acting.owner)
        await core.submit(call, confirmation)
    return clock_message(core.guard, core.follower.state, acting)
