"""A transport without a network, for the tests of programs that use this SDK."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa
from google.protobuf.message import Message

from client_sdk._exceptions import PsoupError, ServerError
from client_sdk._wire.ipc import to_ipc
from client_sdk._wire.values import Column, schema_of, timestamp
from psoup.v1 import psoup_pb2 as pb

# A function of the request, or a script: one item for each call, errors raised.
Handler: TypeAlias = Callable[[Any], Any] | Iterable[Any]


class MockTransport:
    """A transport that answers calls with handlers instead of a server, for `Client` and
    `AsyncClient`.

            def status(request):
                return psoup_pb2.StatusResponse(store_id="test", epoch=3)

            client = Client(transport=MockTransport({"Status": status}))

    A handler is a function from the request message to the response message, or a list with one
    response for each call. If the function raises a PsoupError, or the list has one, the client
    gets it, and retries as usual. Handlers of `Invoke` and `Ask` return an iterable of
    InvokeResponse, which `answer()` makes; those of `Sync` and `Watch` one of SyncPart. Batches of
    a PublishStream go to the handler of `Publish`, one by one. `calls` has every request so far, as
    (method, request).

    `store_id` is the id of the simulated store: `Status` returns it unless there is a handler for
    that, and errors with a reason carry it as those of a store do.
    """

    def __init__(self, handlers: Mapping[str, Handler], *, store_id: str = "mock") -> None:
        self.store_id = store_id
        all_handlers = {"Status": self._status, **handlers}
        self._handlers = {name: _function(name, handler) for name, handler in all_handlers.items()}
        self.calls: list[tuple[str, Any]] = []
        self.closed = False

    def requests(self, method: str) -> list[Any]:
        """Return the requests made to one method, in order."""
        return [request for name, request in self.calls if name == method]

    def _handle(self, method: str, request: Message) -> Any:
        self.calls.append((method, request))
        handler = self._handlers.get("Publish" if method == "PublishStream" else method)
        if handler is None:
            raise ServerError(f"MockTransport has no handler for {method}", code="UNIMPLEMENTED")
        try:
            return handler(request)
        except PsoupError as error:
            if error.reason and not error.detail.store_id:
                error.detail = replace(error.detail, store_id=self.store_id)
            raise

    def _status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        return pb.StatusResponse(store_id=self.store_id)

    def unary(self, method: str, request: Message, timeout: float | None) -> Any:
        return self._handle(method, request)

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        yield from self._handle(method, request)

    def duplex(self, method: str, timeout: float | None) -> MockDuplex:
        return MockDuplex(self, method)

    def close(self) -> None:
        self.closed = True

    async def async_unary(self, method: str, request: Message, timeout: float | None) -> Any:
        return self._handle(method, request)

    async def async_stream(
        self, method: str, request: Message, timeout: float | None
    ) -> AsyncGenerator[Any, None]:
        for message in self._handle(method, request):
            yield message

    async def async_duplex(self, method: str, timeout: float | None) -> AsyncMockDuplex:
        return AsyncMockDuplex(MockDuplex(self, method))

    async def async_close(self) -> None:
        self.closed = True


class MockDuplex:
    """A duplex that ends with its first refused request, as on a server: later requests are not
    handled.
    """

    def __init__(self, transport: MockTransport, method: str) -> None:
        self._transport = transport
        self._method = method
        self._replies: deque[Any] = deque()
        self._failure: PsoupError | None = None

    def write(self, request: Message) -> None:
        if self._failure is None:
            try:
                self._replies.append(self._transport._handle(self._method, request))
            except PsoupError as error:
                self._failure = error

    def read(self) -> Any:
        if self._replies:
            return self._replies.popleft()
        raise self._failure or ServerError("nothing was sent that could be answered")

    def finish(self) -> None:
        if self._failure is not None:
            raise self._failure

    def cancel(self) -> None:
        self._replies.clear()


class AsyncMockDuplex:
    def __init__(self, duplex: MockDuplex) -> None:
        self._duplex = duplex

    async def write(self, request: Message) -> None:
        self._duplex.write(request)

    async def read(self) -> Any:
        return self._duplex.read()

    async def finish(self) -> None:
        self._duplex.finish()

    async def cancel(self) -> None:
        self._duplex.cancel()


def answer(
    columns: Mapping[str, str],
    rows: Iterable[Mapping[str, Any]] = (),
    *,
    position: bytes = b"mock",
    now: datetime | None = None,
    **header: Any,
) -> list[pb.InvokeResponse]:
    """Return the messages of an answer. `columns` are names and SQL types, `rows` Python values.

    Other fields of AnswerHeader, such as `epoch`, may be given as keywords.
    """
    described = tuple(Column(name, type_) for name, type_ in columns.items())
    table = pa.Table.from_pylist(list(rows), schema=schema_of(described))
    first = pb.AnswerHeader(
        position=position,
        now=None if now is None else timestamp(now),
        row_count=table.num_rows,
        columns=[pb.Column(name=column.name, type=column.type) for column in described],
        **header,
    )
    return [pb.InvokeResponse(header=first), pb.InvokeResponse(arrow=to_ipc(table))]


def _function(method: str, handler: Handler) -> Callable[[Any], Any]:
    if callable(handler):
        return handler
    script = iter(handler)

    def scripted(request: Any) -> Any:
        for item in script:
            if isinstance(item, Exception):
                raise item
            return item
        raise ServerError(f"MockTransport: the script for {method} is at its end")

    return scripted
