"""A server in this process behind the SDK's transport, over a line that can be cut anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from datetime import datetime
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from client_sdk import Client, ConnectionFailed, PsoupError, Retry, ServerError
from client_sdk._grpc.channels import detail_from, error_for
from datastem.instants import SECOND, from_micros
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.sync import sync
from psoup.server.core import Core
from psoup.server.services import HANDLERS
from psoup.server.settings import Settings
from psoup.server.status_codes import FAMILIES, code_of, detail_of
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.callers import new_call
from tests.support.server.process import received

START = 1_700_000_000 * SECOND

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Note = Callable[[pb.SyncItem, pb.SyncPart], None]


class InsideStore:
    """A store with a server in this process, and a clock that stands until it is set."""

    def __init__(self, folder: Path, *, sync_bytes: int = 200) -> None:
        self.clock = START
        self._loop = asyncio.new_event_loop()
        store = Store.open(folder / "store", create=True, sync=False)
        chosen = Settings(folder / "store", sync_bytes=sync_bytes)
        self.core = Core(store, chosen, lambda: self.clock)
        self.run(self.core.start())
        self.line = InsideTransport(self.core, self.run)
        self.client = Client(transport=self.line, retry=Retry(attempts=3, first=0.0))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    def now(self) -> datetime:
        return from_micros(self.clock)

    def wait(self, seconds: float) -> None:
        self.clock += int(seconds * SECOND)

    def close(self) -> None:
        self.run(self.core.stop())
        self._loop.close()


class InsideTransport:
    """`cuts` says of each call after how many parts the line breaks; None, or none left: never."""

    def __init__(self, core: Core, run: Run, note: Note = lambda item, part: None) -> None:
        self.core = core
        self.cuts: list[int | None] = []
        self.lose_ends = False
        self.calls: list[tuple[str, Any]] = []
        self.bytes_sent = 0
        self._run = run
        self._note = note

    def unary(self, method: str, request: Message, timeout: float | None) -> Any:
        self.calls.append((method, request))
        try:
            reply = self._run(HANDLERS[method](self.core, new_call(), _sent(request)))
        except FAMILIES as error:
            raise _refusal(error, self.core.store.id) from None
        return _sent(reply)

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        self.calls.append((method, request))
        if method == "Sync":
            return self._parts(_sent(request), self.cuts.pop(0) if self.cuts else None)
        assert isinstance(request, pb.InvokeRequest | pb.AskRequest)
        return self._answer(request)

    def _answer(
        self, request: pb.InvokeRequest | pb.AskRequest
    ) -> Generator[pb.InvokeResponse, None, None]:
        if isinstance(request, pb.InvokeRequest):
            answer = invoke(self.core, new_call(), request)
        else:
            answer = ask(self.core, new_call(), request)
        try:
            yield from self._run(received(answer))
        except FAMILIES as error:
            raise _refusal(error, self.core.store.id) from None

    def _parts(
        self, request: pb.SyncRequest, cut: int | None
    ) -> Generator[pb.SyncPart, None, None]:
        parts = sync(self.core, new_call(), request)
        count = 0
        try:
            while True:
                part = self._next(parts)
                if part is None:
                    return
                if count == cut or (self.lose_ends and part.HasField("end")):
                    raise ConnectionFailed("the line was cut")
                count += 1
                self.bytes_sent += part.ByteSize() + 5
                self._note(request.items[part.item], part)
                yield part
        finally:
            self._run(parts.aclose())

    def _next(self, parts: Any) -> pb.SyncPart | None:
        try:
            part: pb.SyncPart | None = self._run(_anext(parts))
        except FAMILIES as error:
            raise _refusal(error, self.core.store.id) from None
        return part and _sent(part)

    def duplex(self, method: str, timeout: float | None) -> Any:
        raise ServerError("nobody publishes here")

    def close(self) -> None:
        pass


async def _anext(parts: Any) -> Any:
    return await anext(parts, None)


def _sent(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


def _refusal(error: Exception, store_id: str) -> PsoupError:
    return error_for(code_of(error).name, str(error), detail_from(detail_of(error, store_id)))
