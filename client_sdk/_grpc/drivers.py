"""Drivers, which carry out the effects of a flow: one waits for each, one runs on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from typing import Any, TypeVar

from client_sdk._exceptions import PsoupError, ServerError
from client_sdk._grpc.effects import (
    Begin,
    Collect,
    Effect,
    Finish,
    Flow,
    Give,
    Hear,
    Listen,
    Open,
    Pause,
    Read,
    Unary,
    Write,
)
from client_sdk._grpc.transports import AsyncDuplex, AsyncTransport, Duplex, Transport
from client_sdk._wire.answers import collect

T = TypeVar("T")


def drive(flow: Flow[T], transport: Transport) -> T:
    """Run a flow and return its result. Calls that are open at its end are cancelled."""
    steps = drive_each(flow, transport)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()


def drive_each(flow: Flow[T], transport: Transport) -> Generator[Any, None, T]:
    """Run a flow, yield each value of its Give effects, and return its result.

    Closing the generator ends the flow and cancels its calls.
    """
    calls = _OpenCalls(transport)
    try:
        effect = next(flow)
        while True:
            if isinstance(effect, Give):
                yield effect.value
                effect = flow.send(None)
                continue
            try:
                result = calls.do(effect)
            except PsoupError as error:
                # The flow decides: it yields another effect, such as a pause, or lets the error
                # out.
                effect = flow.throw(error)
            else:
                effect = flow.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        flow.close()
        calls.drop()


class _OpenCalls:
    """The calls that a flow has open: at most one PublishStream and one stream of messages."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._line: Duplex | None = None
        self._heard: Generator[Any, None, None] | None = None

    def do(self, effect: Effect) -> Any:
        match effect:
            case Unary(method, request, timeout):
                return self._transport.unary(method, request, timeout)
            case Collect(method, request, timeout):
                return collect(self._transport.stream(method, request, timeout))
            case Begin(method, request, timeout):
                return self._begin(method, request, timeout)
            case Listen(method, request, timeout):
                self.drop()
                self._heard = self._transport.stream(method, request, timeout)
            case Hear():
                assert self._heard is not None, "a flow listens first"
                return next(self._heard, None)
            case Pause(seconds):
                time.sleep(seconds)
            case _:
                return self._publish(effect)

    def _begin(self, method: str, request: Any, timeout: float | None) -> Any:
        messages = self._transport.stream(method, request, timeout)
        for first in messages:
            return first, messages
        raise ServerError("the answer came without its header")

    def _publish(self, effect: Effect) -> Any:
        if isinstance(effect, Open):
            self.drop()
            self._line = self._transport.duplex("PublishStream", effect.timeout)
            return None
        assert self._line is not None, "a flow opens the line first"
        match effect:
            case Write(request):
                self._line.write(request)
            case Read():
                return self._line.read()
            case Finish():
                self._line.finish()
                self._line = None

    def drop(self) -> None:
        if self._line is not None:
            self._line.cancel()
            self._line = None
        if self._heard is not None:
            self._heard.close()
            self._heard = None


async def async_drive(flow: Flow[T], transport: AsyncTransport) -> T:
    """Run a flow and return its result. Calls that are open at its end are cancelled."""
    # An async generator can't return a value, so the result comes in a list.
    outcome: list[T] = []
    steps = async_drive_each(flow, transport, outcome)
    try:
        async for _ in steps:
            pass
    finally:
        await steps.aclose()
    return outcome[0]


async def async_drive_each(
    flow: Flow[T], transport: AsyncTransport, outcome: list[T]
) -> AsyncGenerator[Any, None]:
    """Run a flow, yield each value of its Give effects, and append its result to `outcome`."""
    calls = _AsyncOpenCalls(transport)
    try:
        effect = next(flow)
        while True:
            if isinstance(effect, Give):
                yield effect.value
                effect = flow.send(None)
                continue
            try:
                result = await calls.do(effect)
            except PsoupError as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(result)
    except StopIteration as end:
        outcome.append(end.value)
    finally:
        flow.close()
        await calls.drop()


class _AsyncOpenCalls:
    """The calls that a flow has open, on an event loop."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._line: AsyncDuplex | None = None
        self._heard: AsyncGenerator[Any, None] | None = None

    async def do(self, effect: Effect) -> Any:
        match effect:
            case Unary(method, request, timeout):
                return await self._transport.async_unary(method, request, timeout)
            case Collect(method, request, timeout):
                stream = self._transport.async_stream(method, request, timeout)
                return collect([message async for message in stream])
            case Begin(method, request, timeout):
                return await self._begin(method, request, timeout)
            case Listen(method, request, timeout):
                await self.drop()
                self._heard = self._transport.async_stream(method, request, timeout)
            case Hear():
                assert self._heard is not None, "a flow listens first"
                return await anext(self._heard, None)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case _:
                return await self._publish(effect)

    async def _begin(self, method: str, request: Any, timeout: float | None) -> Any:
        messages = self._transport.async_stream(method, request, timeout)
        async for first in messages:
            return first, messages
        raise ServerError("the answer came without its header")

    async def _publish(self, effect: Effect) -> Any:
        if isinstance(effect, Open):
            await self.drop()
            self._line = await self._transport.async_duplex("PublishStream", effect.timeout)
            return None
        assert self._line is not None, "a flow opens the line first"
        match effect:
            case Write(request):
                await self._line.write(request)
            case Read():
                return await self._line.read()
            case Finish():
                await self._line.finish()
                self._line = None

    async def drop(self) -> None:
        if self._line is not None:
            await self._line.cancel()
            self._line = None
        if self._heard is not None:
            await self._heard.aclose()
            self._heard = None
