"""Admission: the way of every call from gRPC to its handler.

It identifies the caller, makes the `Call`, and checks its rule and quotas for each message. How
many calls are under way is bounded. gRPC queues what it has not handed over yet, and drops what the
queue can't hold with a bare CANCELLED, which is no help to a client. So the queue is given room for
everything, every call is taken from it at once, and a call too many is refused before a byte of its
message is read. So is a call without a credential, but for a health check.

A message is scanned within bounds before it is parsed, and nothing holds a refused one: a refusal
is a status, not an exception that gRPC would keep with its traceback.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from psoup.access.actions import Action
from psoup.access.principal import ANYONE, Principal
from psoup.errors import BadRequest
from psoup.server.call import Call
from psoup.server.call_trace import CallTrace
from psoup.server.core import Core
from psoup.server.permission import check_call, rule_of
from psoup.server.sharing.gate import Gate
from psoup.server.sharing.room import SMALL_BYTES
from psoup.server.status_codes import Context, code_of, reason_of, refuse
from psoup.server.wire.checksums import garbled, has_checksum, is_intact, is_promised
from psoup.server.wire.scanning import Malformed, scan, shape_of

log = logging.getLogger("psoup.server")

# Calls that gRPC holds until they are taken, some kilobytes each. By default it drops some beyond
# 1,000, all beyond 3,000, and those that wait for half a minute.
_MAX_QUEUED = 1 << 17
QUEUE_OPTIONS = [
    ("grpc.server.max_pending_requests", _MAX_QUEUED),
    ("grpc.server.max_pending_requests_hard_limit", _MAX_QUEUED),
    ("grpc.server_max_unrequested_time_in_server", 1 << 20),
]

_SERVICE = "/psoup.v1.Psoup/"
_WATCHES = frozenset({"/psoup.v1.Psoup/Watch"})
_ALWAYS = frozenset({"/grpc.health.v1.Health/Check"})
# Calls that need no credential. Those that stay have a gate of their own, so that they take no
# place of authenticated callers. Their messages are names of services.
_OPEN = "/grpc.health.v1.Health/"
_MAX_OPEN_CALLS = 100
_MAX_OPEN_CALLS_PER_CONNECTION = 4
_MAX_OPEN_BYTES = 1 << 10
# Calls that stay: they end with the credential of their caller, also if they had none.
_STAYING = frozenset({"/psoup.v1.Psoup/Watch", "/psoup.v1.Psoup/PublishStream"})

END_OF_MESSAGES = grpc.aio.EOF  # type: ignore[attr-defined]

Handler = Any  # grpc.RpcMethodHandler: its attributes depend on the kind of call
Find = Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]


# The code of a call that the client has given up, unless another one is known.
_CANCELLED = grpc.StatusCode.CANCELLED.name
_OK = grpc.StatusCode.OK.name


@dataclass(slots=True)
class _Ending:
    """How a call ends: its status code, and the reason if it was refused."""

    call: Call | None = None
    code: str = _CANCELLED
    reason: str = ""
    trace: CallTrace | None = None


class OtherDoor:
    """The context of a call that did not come by gRPC. It has the methods of gRPC's context that
    a server uses, but makes its message once the caller is known and counted."""

    async def message(self, call: Call) -> Any:
        """Return the next message as bytes, or `END_OF_MESSAGES`."""
        raise NotImplementedError


class Admission(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """An interceptor that admits calls through the gate of their kind, and reads their messages
    when there is room. A health check needs no gate, and no credential."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._room = core.room
        self._precedence = core.precedence
        self._store_id = core.store.id
        self._calls = Gate(core.settings.calls, "calls", "--calls", 1)
        self._watches = Gate(core.settings.watches, "watches", "--watches", 10)
        self._open_calls = Gate(
            _MAX_OPEN_CALLS, "calls without a credential", "", 10, _MAX_OPEN_CALLS_PER_CONNECTION
        )
        self._guarded: dict[str, Handler] = {}
        # Calls that take so long get a line of the log; None for none.
        self.slow_seconds = core.settings.log.call_seconds

    async def intercept_service(
        self, continuation: Find, details: grpc.HandlerCallDetails
    ) -> Handler:
        # First, before anything is awaited: crowding tenants wait while gRPC still hands over
        # calls.
        self._precedence.arrived()
        handler = await continuation(details)
        return None if handler is None else self.guarded(details.method, handler)

    def guarded(self, method: str, handler: Handler) -> Handler:
        """Return a handler that admits calls of a method before `handler` gets them: also for
        doors other than gRPC, whose calls count together with gRPC's."""
        # The cache is bounded: a method without a handler never gets here.
        if method not in self._guarded:
            guard = self._streaming if handler.response_streaming else self._single
            self._guarded[method] = guard(handler, method)
        return self._guarded[method]

    async def _call(self, method: str, context: Context, trace: CallTrace | None) -> Call:
        """Identify the caller, and make the call. Raise Unauthenticated."""
        principal = ANYONE if method.startswith(_OPEN) else await self.identify(context)
        call = Call(principal, context.peer(), context.time_remaining())
        call.trace = trace
        return call

    async def identify(self, context: Context) -> Principal:
        """Return the caller. Raise Unauthenticated."""
        # First: whether a key was revoked is in the log too.
        await self._core.follower.attend()
        return await self._core.authenticator.principal(context)

    def _entered(self, method: str, call: Call) -> AbstractContextManager[None]:
        """Count a call at the gate of its kind. Raise Overloaded."""
        if method in _ALWAYS:
            return nullcontext()
        if method.startswith(_OPEN):
            return self._open_calls.entered(call.peer)
        gate = self._watches if method in _WATCHES else self._calls
        return self._attended(gate.entered(call.shown_tenant))

    @contextmanager
    def _attended(self, entered: AbstractContextManager[None]) -> Iterator[None]:
        with entered, self._core.follower.attending():
            yield

    def _check(self, method: str, call: Call, request: Any) -> None:
        """Refuse a message that the rule of its RPC or a quota refuses, whatever it is about. Raise
        PermissionDenied, QuotaExceeded, BadRequest."""
        rpc, quotas = method.removeprefix(_SERVICE), self._core.quotas
        rule, acting = rule_of(rpc), call.acting(request)
        check_call(rpc, self._core.follower.state, acting)
        if rule.counts_events:
            quotas.take_event(acting.tenant, call.owner)
        # A watch waits for its quota instead.
        if Action.READ in rule.actions and method not in _WATCHES:
            quotas.check_work(acting.tenant, call.owner)

    @property
    def under_way(self) -> tuple[int, int]:
        """How many calls are under way, and how many watches."""
        return self._calls.under_way, self._watches.under_way

    @contextmanager
    def _measured(self, method: str, context: Context) -> Iterator[_Ending]:
        """Measure a call, whose end is noted in what is yielded."""
        ending, began = _Ending(), time.monotonic()
        tracing = self._core.tracing
        if tracing is not None and method.startswith(_SERVICE):
            rpc = method.removeprefix(_SERVICE)
            ending.trace = CallTrace(tracing, rpc, context.invocation_metadata() or ())
        try:
            yield ending
        finally:
            if method.startswith(_SERVICE):
                door = "http" if isinstance(context, OtherDoor) else "grpc"
                self._end(method, door, ending, time.monotonic() - began)

    def _end(self, method: str, door: str, ending: _Ending, seconds: float) -> None:
        rpc, call = method.removeprefix(_SERVICE), ending.call
        queued = 0.0 if call is None else call.queued_seconds
        tenant, owner = ("", "") if call is None else (call.tenant, call.owner)
        trace_fields = {}
        if ending.trace is not None:
            ending.trace.end(ending.code, ending.reason)
            trace_fields["trace_id"] = ending.trace.trace_id
        self._core.metrics.end_call(rpc, door, ending.code, ending.reason, seconds, queued, tenant)
        # A watch is open for as long as its client likes.
        is_slow = self.slow_seconds is not None and seconds >= self.slow_seconds
        if is_slow and method not in _WATCHES:
            log.info(
                "%s %s: %s in %.3f s, %.3f s of it queued; tenant %s, owner %s, by %s",
                "slow" if self.slow_seconds else "call",
                rpc,
                ending.reason or ending.code,
                seconds,
                queued,
                tenant,
                owner,
                door,
                extra={
                    "fields": {
                        "method": rpc,
                        "code": ending.code,
                        "reason": ending.reason,
                        "duration": round(seconds, 6),
                        "queue": round(queued, 6),
                        "tenant": tenant,
                        "owner": owner,
                        "rows": 0 if call is None else call.row_count,
                        "bytes": 0 if call is None else call.byte_count,
                        "computed": 0 if call is None else call.computed_rows,
                        "door": door,
                        **trace_fields,
                    }
                },
            )

    def _refuse(self, context: Context, ending: _Ending, method: str, error: Exception) -> None:
        principal = None if ending.call is None else ending.call.principal
        self._core.security.note(context, principal, method, error)
        ending.code, ending.reason = code_of(error).name, reason_of(error)
        trace_id = "" if ending.trace is None else ending.trace.trace_id
        refuse(context, error, self._store_id, trace_id)

    # A handler of streams is called before a message is read, so a call counts from its first
    # moment to its last, and one that is refused costs no more than its headers. It gets messages
    # as bytes, so that they are parsed when there is room. They are read from the context: the
    # iterator that gRPC gives holds the last one, and itself, until a garbage collection.

    def _single(self, handler: Handler, method: str) -> Handler:
        async def respond(messages: AsyncIterator[bytes], context: Context) -> Any:
            with self._measured(method, context) as ending:
                try:
                    call = ending.call = await self._call(method, context, ending.trace)
                    with self._entered(method, call):
                        async with aclosing(
                            self._requests(method, handler, call, context)
                        ) as requests:
                            response = await handler.unary_unary(
                                await anext(requests), _second(method, call, context)
                            )
                            ending.code = _OK
                            return _counted(response, call, method, context)
                except grpc.aio.BaseError:
                    raise
                except Exception as error:
                    self._refuse(context, ending, method, error)

        return grpc.stream_unary_rpc_method_handler(respond, None, handler.response_serializer)

    def _streaming(self, handler: Handler, method: str) -> Handler:
        async def respond(messages: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
            with self._measured(method, context) as ending:
                try:
                    call = ending.call = await self._call(method, context, ending.trace)
                    responses = self._responses(method, handler, call, context)
                    async with aclosing(responses):
                        async for response in responses:
                            yield _counted(response, call, method, context)
                    ending.code = _OK
                except grpc.aio.BaseError:
                    raise
                except Exception as error:
                    self._refuse(context, ending, method, error)

        return grpc.stream_stream_rpc_method_handler(respond, None, handler.response_serializer)

    async def _responses(
        self, method: str, handler: Handler, call: Call, context: Context
    ) -> AsyncGenerator[Any, None]:
        """Yield the responses of a call that is counted at its gate."""
        second = _second(method, call, context)
        with self._entered(method, call):
            async with aclosing(self._requests(method, handler, call, context)) as requests:
                if handler.stream_stream is not None:
                    responses = handler.stream_stream(requests, second)
                else:
                    responses = handler.unary_stream(await anext(requests), second)
                if inspect.isawaitable(responses):
                    # A handler that writes to the context by itself: Health/Watch.
                    await responses
                    return
                # They end before the requests, which they may be reading.
                async with (
                    aclosing(responses),
                    aclosing(self._until_ended(call, method, responses)) as until_ended,
                ):
                    async for response in until_ended:
                        yield response
                        if handler.stream_stream is None:
                            # With many requests the turn is that of a later one.
                            call.end_long_turn()

    def _until_ended(
        self, call: Call, method: str, responses: AsyncGenerator[Any, None]
    ) -> AsyncGenerator[Any, None]:
        """Return the responses, which end when the caller's credential does."""
        if call.principal.anyone and method not in _STAYING:
            return responses
        return self._core.endings.until_ended(call.principal, responses)

    async def _requests(
        self, method: str, handler: Handler, call: Call, context: Context
    ) -> AsyncGenerator[Any, None]:
        """Yield the requests of a call that may be answered, each with a hold until the next one is
        read, or the call ends. Those that wait have turns by tenant, or by connection if the caller
        is not authenticated. Raise Overloaded, BadRequest, Garbled, and what `_check` raises."""
        promised = is_promised(context.invocation_metadata())
        count = 0
        while (message := await _next_message(context, call)) is not END_OF_MESSAGES:
            request = None
            hold = call.hold = self._room.hold(call.shown_tenant or call.peer)
            call.byte_count += len(message)
            try:
                hold.arrive(len(message))
                if method not in _ALWAYS:
                    with call.queuing():
                        turn = await self._precedence.turn(
                            call.shown_tenant, call.peer, len(message)
                        )
                    # The appender may retain the hold after the handler is done. The turn ends with
                    # the last of them.
                    hold.released = turn.end
                    call.turn = turn
                intact = await is_intact(message)
                if promised and not intact:
                    raise garbled()
                opened = await open_message(method, message)
                # Small requests reserve nothing here: the room counts on their number being bounded
                # by the gates.
                if opened.parsing_bytes > SMALL_BYTES:
                    with call.queuing():
                        await hold.reserve(opened.parsing_bytes)
                request = _parsed(handler, opened.envelope)
                # A call that promised nothing may send checksums too, and then they must hold.
                if has_checksum(request) and not intact:
                    raise garbled()
                call.arrow = opened.arrow
                hold.shrink(opened.parsed_bytes)
                # Let go of the message: a request that does not need it any more frees it.
                del message, opened
                if method.startswith(_SERVICE):
                    # A call takes its place when its first message is read, not when it was opened.
                    if not count:
                        call.renew_ticket()
                    self._check(method, call, request)
                count += 1
                # A watch mostly sleeps from here on, and must not count as a message that is worked
                # on.
                if method in _WATCHES:
                    call.end_turn()
                yield request
            finally:
                # Both go before the room does: the next request may fill that room at once.
                request = call.arrow = None
                hold.release()
        # A client that promises checksums never sends an empty call, so its message was lost.
        if not count and not handler.request_streaming:
            if promised:
                raise garbled()
            raise BadRequest("the call came without a request")


def _counted(response: Any, call: Call, method: str, context: Context) -> Any:
    """Return a response of this service, whose bytes are counted for its call: for gRPC encoded,
    which `serialize` does not do again."""
    if not method.startswith(_SERVICE):
        return response
    content = response if isinstance(response, bytes) else response.SerializeToString()
    call.byte_count += len(content)
    return response if isinstance(context, OtherDoor) else content


async def _next_message(context: Context, call: Call) -> Any:
    return await (context.message(call) if isinstance(context, OtherDoor) else context.read())


def _parsed(handler: Handler, message: bytes) -> Any:
    try:
        return handler.request_deserializer(message)
    except DecodeError:
        raise _unknown_message() from None


def _unknown_message() -> BadRequest:
    return BadRequest("not a message of psoup.v1")


def _second(method: str, call: Call, context: Context) -> Call | Context:
    """Return what a handler gets beside its request: this service's the call, gRPC's own the
    context."""
    return call if method.startswith(_SERVICE) else context


# ---- how large a message may be, and how much memory it will take

# What a message may have besides Arrow. To parse that takes some milliseconds of the event loop.
MAX_TYPED_BYTES = 1 << 20
MAX_FIELDS = 50_000
# Fields that are counted on the event loop; more are counted in a thread.
_MAX_LOOP_FIELDS = 500

# A typed value takes two bytes and more on the wire, and a hundred as an object on its way to a
# column. Other requests, once they are parsed, are about as large as the message.
TYPED_FACTOR = 40
_PLAIN_FACTOR = 4


@dataclass(frozen=True, slots=True)
class OpenedMessage:
    """A message that may be parsed: all of it but an Arrow batch, that batch, and the bytes both
    take while the envelope is parsed, and once it is."""

    envelope: bytes
    arrow: memoryview | None
    parsing_bytes: int
    parsed_bytes: int


async def open_message(method: str, message: bytes) -> OpenedMessage:
    """Scan a message within bounds. Raise BadRequest for one that would take the parser long.

    An Arrow batch weighs its own bytes here, and is weighed again when it is unpacked.
    """
    shape = shape_of(method)
    try:
        scanned = scan(message, shape, _MAX_LOOP_FIELDS)
        typed = len(message) - scanned.arrow_bytes
        most = _MAX_OPEN_BYTES if method.startswith(_OPEN) else MAX_TYPED_BYTES
        if typed > most:
            raise _too_large(method, f"{typed:,} bytes", f"at most {most} bytes")
        # The scan on the event loop stopped at its bound. Scan from the beginning again, in a
        # thread.
        if not scanned.complete:
            scanned = await asyncio.to_thread(scan, message, shape, MAX_FIELDS)
    except Malformed:
        raise _unknown_message() from None
    if not scanned.complete:
        more = f"more than {MAX_FIELDS:,} rows and values"
        raise _too_large(method, more, f"at most {MAX_FIELDS} rows, values and names")
    # Only requests with a table keep typed values after parsing, on their way to columns.
    parsed_factor = TYPED_FACTOR if shape.arrow_tag else _PLAIN_FACTOR
    weights = (scanned.arrow_bytes + factor * typed for factor in (TYPED_FACTOR, parsed_factor))
    return OpenedMessage(*scanned.split(message, shape), *weights)


def _too_large(method: str, got: str, expected: str) -> BadRequest:
    """Make the error. It sends publishers to Arrow, whose size does not matter to the parser."""
    rows = bool(shape_of(method).arrow_tag)
    return BadRequest(
        f"a message with {got} besides Arrow" if rows else f"a message with {got}",
        reason="BATCH_TOO_LARGE" if rows else "MESSAGE_TOO_LARGE",
        expected=expected,
        got=got,
        hint="send that many rows as an Arrow IPC stream, or in several batches"
        if rows
        else "ask for less in one call",
    )
