"""The ports a client talks through. Everything they raise is a PsoupError."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any, Protocol

from google.protobuf.message import Message


class Duplex(Protocol):
    """A PublishStream under way."""

    def write(self, request: Message) -> None: ...

    def read(self) -> Any:
        """The next response. Raises ServerError where the server ended the call instead."""

    def finish(self) -> None:
        """No more requests; returns when the server has ended the call."""

    def cancel(self) -> None:
        """Ends the call now, whatever is under way; never fails, may be called twice."""


class AsyncDuplex(Protocol):
    async def write(self, request: Message) -> None: ...

    async def read(self) -> Any: ...

    async def finish(self) -> None: ...

    async def cancel(self) -> None: ...


class Transport(Protocol):
    """What `Client` needs. `method` is a name of service psoup.v1.Psoup; timeouts are seconds."""

    def unary(self, method: str, request: Message, timeout: float | None) -> Any: ...

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        """The responses in order. Closing the generator cancels the call."""

    def duplex(self, method: str, timeout: float | None) -> Duplex: ...

    def close(self) -> None: ...


class AsyncTransport(Protocol):
    """The same for `AsyncClient`."""

    async def async_unary(self, method: str, request: Message, timeout: float | None) -> Any: ...

    def async_stream(
        self, method: str, request: Message, timeout: float | None
    ) -> AsyncGenerator[Any, None]: ...

    async def async_duplex(self, method: str, timeout: float | None) -> AsyncDuplex: ...

    async def async_close(self) -> None: ...
