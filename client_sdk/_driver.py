"""Carries out the effects of a flow, waiting for each."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, TypeVar

from client_sdk._answer import collect
from client_sdk._effects import (
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
from client_sdk._exceptions import PsoupError, ServerError
from client_sdk._transport import Duplex, Transport

T = TypeVar("T")


def drive(flow: Flow[T], transport: Transport) -> T:
    """The flow's result. What is still open when it ends, well or not, is cancelled."""
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
    """What the flow gives on its way, then its result. Closing it ends the flow and its calls."""
    hands = _Hands(transport)
    try:
        effect = next(flow)
        while True:
            if isinstance(effect, Give):
                yield effect.value
                effect = flow.send(None)
                continue
            try:
                result = hands.do(effect)
            except PsoupError as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        flow.close()
        hands.drop()


class _Hands:
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
