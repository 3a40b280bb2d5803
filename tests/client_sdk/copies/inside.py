"""A server in this process behind the SDK's transport, over a line that can be cut anywhere."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from google.protobuf.message import Message

from client_sdk import ConnectionFailed, PsoupError, ServerError
from client_sdk._failures import detail_from, error_for
from psoup.server.core import Core
from psoup.server.errors import FAMILIES, code_of, detail_of
from psoup.server.services import PsoupService
from psoup.server.sync.call import sync
from psoup.v1 import psoup_pb2 as pb

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Note = Callable[[pb.SyncItem, pb.SyncPart], None]


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
        work = getattr(PsoupService, method).__wrapped__
        try:
            reply = self._run(work(PsoupService(self.core), _sent(request)))
        except FAMILIES as error:
            raise _refusal(error) from None
        return _sent(reply)

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        assert method == "Sync"
        self.calls.append((method, request))
        return self._parts(_sent(request), self.cuts.pop(0) if self.cuts else None)

    def _parts(
        self, request: pb.SyncRequest, cut: int | None
    ) -> Generator[pb.SyncPart, None, None]:
        parts = sync(self.core, request, None)
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
            self._run(parts.aclose())  # type: ignore[attr-defined]

    def _next(self, parts: Any) -> pb.SyncPart | None:
        try:
            found: pb.SyncPart | None = self._run(_anext(parts))
        except FAMILIES as error:
            raise _refusal(error) from None
        return found and _sent(found)

    def duplex(self, method: str, timeout: float | None) -> Any:
        raise ServerError("nobody publishes here")

    def close(self) -> None:
        pass


async def _anext(parts: Any) -> Any:
    return await anext(parts, None)


def _sent(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


def _refusal(error: Exception) -> PsoupError:
    return error_for(code_of(error).name, str(error), detail_from(detail_of(error)))
