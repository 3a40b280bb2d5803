"""Carries out the effects of a flow on an event loop."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from client_sdk._answer import collect
from client_sdk._effects import (
    Begin,
    Collect,
    Effect,
    Finish,
    Flow,
    Open,
    Pause,
    Read,
    Unary,
    Write,
)
from client_sdk._exceptions import PsoupError, ServerError
from client_sdk._transport import AsyncDuplex, AsyncTransport

T = TypeVar("T")


async def async_drive(flow: Flow[T], transport: AsyncTransport) -> T:
    """The flow's result. What is still open when it ends, well or not, is cancelled."""
    hands = _AsyncHands(transport)
    try:
        effect = next(flow)
        while True:
            try:
                result = await hands.do(effect)
            except PsoupError as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        flow.close()
        await hands.drop()


class _AsyncHands:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._line: AsyncDuplex | None = None

    async def do(self, effect: Effect) -> Any:
        match effect:
            case Unary(method, request, timeout):
                return await self._transport.async_unary(method, request, timeout)
            case Collect(method, request, timeout):
                stream = self._transport.async_stream(method, request, timeout)
                return collect([message async for message in stream])
            case Begin(method, request, timeout):
                return await self._begin(method, request, timeout)
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
