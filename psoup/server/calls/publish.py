"""Publish and PublishStream: from requests to batches that can be appended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from datastem.accept import Limits, accept, check_ahead
from datastem.codec import encode
from datastem.equality import heartbeat_digest
from datastem.errors import RowError
from datastem.schema import StreamSchema
from datastem.types import Kind
from psoup.access.actions import Action
from psoup.errors import (
    AfterFailure,
    BadRequest,
    ConflictRow,
    LogFull,
    NoSuchStream,
    NotAStream,
    Overloaded,
    PermissionDenied,
)
from psoup.lookup import find_stream
from psoup.server.call import BatchForm, Call
from psoup.server.calls.conditions import prepared, shown
from psoup.server.calls.patches import completed
from psoup.server.core import Core
from psoup.server.follower import Follower
from psoup.server.permission import Acting
from psoup.server.settings import check_name, lease_micros
from psoup.server.wire.arrow import BatchMeasures, Buffer, measure, read_table
from psoup.server.wire.values import BadValue, to_instant, to_table
from psoup.store import StreamState
from psoup.store.log.position import PositionCodec
from psoup.v1 import psoup_pb2 as pb
from psoup.write.conditions import Conditions
from psoup.write.draft import Chain, Stale
from psoup.write.erased_keys import check_keys
from psoup.write.patches import Outdated
from psoup.write.streams import PublishBatch, Published

_ATTEMPTS = 3
# A batch of this size is read quicker than it is handed to a thread.
_SMALL_BYTES = 8 << 10
_MAX_MARK_BYTES = 4096
# How often the values of a batch are in memory at once: as sent, in the stream's types, encoded,
# and in the file that is written.
_COPIES = 4
_MAX_IN_FLIGHT = 64
_LOG_FULL_RETRY = timedelta(seconds=30)
_PATCH_ATTEMPTS = 1000
_PATCH_RETRY = timedelta(seconds=1)


# Reads the rows of a request for a stream.
_Read: TypeAlias = Callable[[StreamSchema, Limits], pa.Table]
_Item = asyncio.Future[Published] | Exception | None


async def publish(core: Core, call: Call, request: pb.PublishRequest) -> pb.PublishResponse:
    """Append a batch, durably. Raise RowError, ServerError."""
    for _ in range(_ATTEMPTS):
        batch = await accepted(core, call, request, None)
        try:
            return response(core.positions, await _submitted(core, call, request, batch))
        except ConflictRow as conflict:
            raise await shown(core, call, call.principal, conflict) from None
        except Stale:
            await core.follower.catch_up()
    raise BadRequest("the stream was dropped and created again, over and over")


async def _submitted(
    core: Core, call: Call, request: pb.PublishRequest, batch: PublishBatch
) -> Published:
    """Append a batch. One with patches is completed first, and again if other rows are current by
    then. Raise what it is refused with."""
    if batch.sent is None:
        return await core.submit(call, batch)
    acting = call.acting(request)
    # Of the batches that patch a row at once, one is accepted in each commit.
    for _ in range(_PATCH_ATTEMPTS):
        whole = await completed(core, call, acting, batch)
        if call.hold is not None:
            await call.hold.reserve(batch.sent.nbytes + _COPIES * len(whole.payload))
        try:
            return await core.submit(call, whole)
        except Outdated:
            continue
    raise Overloaded(
        "the row that a patch is for is replaced all the time",
        retry_after=_PATCH_RETRY,
        hint="send it again, with the same sequence",
    )


async def accepted(
    core: Core, call: Call, request: pb.PublishRequest, chain: Chain | None
) -> PublishBatch:
    """Return the batch that a request brings. Refuse only by the newest state: another server may
    just have made the stream."""
    version = core.follower.version
    try:
        return await _accepted(core, call, request, chain)
    except (NoSuchStream, NotAStream, PermissionDenied, RowError):
        await core.follower.catch_up()
        # The state is the one that refused the batch, so the refusal stands.
        if core.follower.version == version:
            raise
        return await _accepted(core, call, request, chain)


async def _accepted(
    core: Core, call: Call, request: pb.PublishRequest, chain: Chain | None
) -> PublishBatch:
    _check_identity(request)
    acting, state = call.acting(request), core.follower.state
    acting.check_owner(state)
    stream = find_stream(state, acting.tenant, request.stream, acting.visible(state))
    # All that can refuse the batch without its rows comes before they are unpacked.
    acting.demand(state, [stream.id])
    _check_source(stream.schema, acting.owner, request.publisher)
    _check_backlog(core.follower.backlog_bytes, core.settings.log_bytes, request)
    core.quotas.check_rows(acting.tenant, acting.owner)
    arrow = call.batch_of(request) if request.HasField("arrow") else None
    table = partial(_table, request, arrow, call.batch_form)
    arguments = core.follower, core.settings.batch, request, table, acting, stream, chain
    size, batches = await _reserve(core, call, request, arrow, stream.schema)
    if size <= _SMALL_BYTES:
        batch = _accept(*arguments)
    else:
        batch = await core.in_thread(call, _accept, *arguments)
    # Record batches without rows take work too, so they count as rows.
    core.quotas.charge_rows(acting.tenant, acting.owner, max(batch.rows, batches))
    call.row_count += batch.rows
    if batch.sent is not None:
        acting.demand(core.follower.state, [stream.id], (Action.READ,))
    if batch.conditions is None:
        return batch
    return replace(batch, conditions=await prepared(core, call, acting, stream, batch.conditions))


async def _reserve(
    core: Core, call: Call, request: pb.PublishRequest, arrow: Buffer | None, schema: StreamSchema
) -> tuple[int, int]:
    """Return the size of a request in the stream's types, for which there is room from here on, and
    its record batches.

    Typed values have had theirs since they were parsed. Raise Overloaded, RowError.
    """
    if arrow is None:
        return request.ByteSize(), 0
    if (form := call.batch_form) is not None:
        if call.hold is not None:
            await call.hold.reserve(form.memory_factor * len(arrow))
        return len(arrow), 0
    measures = await measured(core, call, arrow)
    limit = core.settings.batch.batch_bytes
    decoded = (
        # What dictionaries unpack to is unknown here, so they count as the largest batch allowed.
        limit if measures.dictionaries else measures.nbytes + measures.rows * _row_bytes(schema)
    )
    if call.hold is not None:
        await call.hold.reserve(len(arrow) + _COPIES * min(decoded, limit))
    return max(len(arrow), decoded), measures.batches


async def measured(core: Core, call: Call, arrow: Buffer) -> BatchMeasures:
    """Measure an Arrow batch by what it says of itself. Raise RowError."""
    limits = core.settings.batch
    if len(arrow) <= _SMALL_BYTES:
        return measure(arrow, limits)
    return await core.in_thread(call, measure, arrow, limits)


def _check_source(schema: StreamSchema, owner: str, publisher: str) -> None:
    """Raise PermissionDenied if a stream has a source, and the publisher does not belong to it."""
    if not schema.source:
        return
    belongs = publisher == schema.source or publisher.startswith(f"{schema.source}/")
    if owner != schema.source_owner or not belongs:
        raise PermissionDenied(
            f"only the source {schema.source} of its owner publishes to {schema.name}",
            field="publisher",
            expected=f"{schema.source} or {schema.source}/…",
            got=publisher[:100],
            hint="publish to a stream of your own",
        )


def _row_bytes(schema: StreamSchema) -> int:
    """Return the bytes of a row without its texts. Columns may come in types that take less, or
    nothing."""
    return sum(_WIDTHS.get(column.type.kind, 8) for column in schema.columns)


_WIDTHS = {Kind.DECIMAL: 16, Kind.BOOLEAN: 1}


def _check_backlog(behind: int, most: int, request: pb.PublishRequest) -> None:
    """Raise LogFull; heartbeats are taken whatever the size of the log."""
    if behind <= most or request.HasField("heartbeat"):
        return
    # The exact size stays secret: it is the traffic of all tenants.
    raise LogFull(
        f"the engine has more than {most:,} bytes of the log yet to consume, and no rows are taken "
        "until it has fewer",
        retry_after=_LOG_FULL_RETRY,
        expected=f"at most {most} bytes (--backlog)",
        got="more",
        hint="see that the engine runs: `psoup status` shows how far behind it is",
    )


def response(positions: PositionCodec, published: Published) -> pb.PublishResponse:
    return pb.PublishResponse(
        position=positions.encode(published.position),
        row_count=published.rows,
        first_row_id=published.first_row_id,
        duplicate=published.duplicate,
        unverified=published.unverified,
    )


def _check_identity(request: pb.PublishRequest) -> None:
    check_name(request.publisher, "publisher")
    if request.mark or request.HasField("publisher_lease"):
        _check_mark(request)
    if bool(request.publisher) == (request.sequence >= 1) and request.sequence >= 0:
        return
    raise BadRequest(
        "a batch has a publisher and a sequence from 1 on, or neither",
        field="sequence",
        expected="1 or more" if request.publisher else "0 without a publisher",
        got=str(request.sequence),
    )


def _check_mark(request: pb.PublishRequest) -> None:
    """Raise BadRequest for a mark or lease without a publisher, or a mark that is too long."""
    field = "mark" if request.mark else "publisher_lease"
    if not request.publisher:
        raise BadRequest(f"a {field} needs a publisher to belong to", field=field)
    if len(request.mark) > _MAX_MARK_BYTES:
        raise BadRequest(
            f"a mark of {len(request.mark):,} bytes; at most {_MAX_MARK_BYTES:,} are taken",
            field="mark",
            expected=f"at most {_MAX_MARK_BYTES} bytes",
            got=f"{len(request.mark)} bytes",
        )


def _accept(
    follower: Follower,
    limits: Limits,
    request: pb.PublishRequest,
    read: _Read,
    acting: Acting,
    stream: StreamState,
    chain: Chain | None,
) -> PublishBatch:
    # Batches get a stamp of `now` at least. AHEAD is checked by it here, so that the error can name
    # the row, and by the vouched stamps when the batch is appended.
    kind = request.WhichOneof("batch")
    if kind is None:
        raise BadRequest(
            "a publish needs rows, an Arrow batch or a heartbeat", field="batch", got="nothing"
        )
    schema, now, erasures = stream.schema, follower.now, follower.state.erased(stream.id)
    lease = None
    if request.HasField("publisher_lease"):
        lease = lease_micros(request.publisher_lease, "publisher_lease")
    batch = partial(
        PublishBatch,
        acting.tenant,
        acting.owner,
        stream.id,
        request.publisher,
        request.sequence,
        chain=chain,
        mark=request.mark,
        lease=lease,
    )
    if kind == "heartbeat":
        ts = _heartbeat_ts(request, schema, now)
        digest = heartbeat_digest(schema.name, ts)
        return batch(
            rows=0, min_ts=None, max_ts=ts, digest=digest, request_digest=digest, payload=b""
        )
    rows = accept(read(schema, limits), schema, now, limits)
    conditions = None
    if rows.expected is not None:
        conditions = Conditions.of(rows.batch, rows.expected, schema)
    if rows.has_patches:
        return batch(
            rows=rows.batch.num_rows,
            min_ts=None,
            max_ts=None,
            digest=b"",
            request_digest=rows.request_digest,
            payload=b"",
            conditions=conditions,
            erased=check_keys(rows.batch, schema, erasures, now),
            sent=rows.batch,
        )
    return batch(
        rows=rows.batch.num_rows,
        min_ts=rows.min_ts,
        max_ts=rows.max_ts,
        digest=rows.digest,
        request_digest=rows.request_digest,
        payload=encode(rows.batch),
        conditions=conditions,
        erased=check_keys(rows.batch, schema, erasures, now),
    )


def _table(
    request: pb.PublishRequest,
    arrow: Buffer | None,
    form: BatchForm | None,
    schema: StreamSchema,
    limits: Limits,
) -> pa.Table:
    """Return the rows of a request, whatever form they have. Raise RowError."""
    if arrow is None:
        return to_table(request.rows, schema)
    return read_table(arrow, limits) if form is None else form.read(arrow, schema, limits)


def _heartbeat_ts(request: pb.PublishRequest, schema: StreamSchema, now: int) -> int:
    if schema.now_is_clock:
        raise BadRequest(
            f"NOW of stream {schema.name} is the clock: it needs no heartbeat",
            field="heartbeat",
        )
    try:
        ts = to_instant(request.heartbeat)
    except BadValue as bad:
        raise RowError(bad.reason, f"the heartbeat {bad}", field="heartbeat") from None
    check_ahead(ts, schema, now)
    return ts


# ---- many batches in flight


async def publish_stream(
    core: Core, call: Call, requests: AsyncIterator[pb.PublishRequest]
) -> AsyncGenerator[pb.PublishResponse, None]:
    """Yield a response for each batch. Raise the error of the first that is refused; no later one
    is accepted."""
    # Responses keep the order of the requests. A full queue stops the reader, and so the client.
    queue: asyncio.Queue[_Item] = asyncio.Queue(_MAX_IN_FLIGHT)
    reader = asyncio.create_task(_enqueue(core, call, requests, queue))
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            try:
                yield response(core.positions, await item)
            except ConflictRow as conflict:
                raise await shown(core, call, call.principal, conflict) from None
            except Stale:
                raise NoSuchStream(
                    "the stream was dropped during the call", hint="publish to another stream"
                ) from None
    finally:
        # The reader is awaited before the queue is emptied: until then it may still add to it.
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        _forget(queue)


async def _enqueue(
    core: Core,
    call: Call,
    requests: AsyncIterator[pb.PublishRequest],
    queue: asyncio.Queue[_Item],
) -> None:
    chain = Chain()
    in_flight: asyncio.Future[Published] | None = None
    try:
        async for request in requests:
            batch = await accepted(core, call, request, chain)
            if batch.sent is None:
                in_flight = core.enqueue(call, batch)
            else:
                # A patch may be one of a row that an earlier batch of the call sets.
                if in_flight is not None:
                    await asyncio.wait([in_flight])
                in_flight = await _patched(core, call, request, batch, chain)
            await queue.put(in_flight)
    except Exception as error:
        await queue.put(error)
    await queue.put(None)


async def _patched(
    core: Core, call: Call, request: pb.PublishRequest, batch: PublishBatch, chain: Chain
) -> asyncio.Future[Published]:
    """Append a batch with patches of a call of which none is in flight, and return its outcome."""
    if chain.broken:
        raise AfterFailure("an earlier batch of this call was refused; this one was not accepted")
    # Without the chain, which would be broken by a batch that has to be completed again.
    submitted = _submitted(core, call, request, replace(batch, chain=None))
    outcome = asyncio.ensure_future(submitted)
    try:
        await asyncio.wait([outcome])
    except asyncio.CancelledError:
        outcome.cancel()
        raise
    chain.broken = outcome.cancelled() or outcome.exception() is not None
    return outcome


def _forget(queue: asyncio.Queue[_Item]) -> None:
    """Take the errors of batches that no caller awaits, so that asyncio does not report them."""
    while not queue.empty():
        item = queue.get_nowait()
        if isinstance(item, asyncio.Future):
            item.add_done_callback(lambda done: done.cancelled() or done.exception())
