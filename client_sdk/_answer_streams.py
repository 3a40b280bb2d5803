"""Answers that are received batch by batch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from types import TracebackType

import pyarrow as pa

from client_sdk._session import Closing
from client_sdk._wire.answers import AnswerHeader, AnswerReader
from psoup.v1 import psoup_pb2 as pb


class AnswerStream(Closing):
    """An answer that is being received: its `header`, and Arrow batches as you iterate.

    The batches together are the answer. Raises ServerError if it ends too early. It may be closed
    before the last batch, which ends the transfer.
    """

    def __init__(
        self, first: pb.InvokeResponse, messages: Generator[pb.InvokeResponse, None, None]
    ) -> None:
        self._reader = AnswerReader()
        self._first = self._reader.feed(first)
        self._messages = messages
        self.header: AnswerHeader = self._reader.header

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        first, self._first = self._first, []
        yield from first
        for message in self._messages:
            yield from self._reader.feed(message)
        self._reader.finish()

    def close(self) -> None:
        self._messages.close()


class AsyncAnswerStream:
    """An answer that is being received: its `header`, and Arrow batches as you iterate.

    The batches together are the answer. Raises ServerError if it ends too early. It may be closed
    before the last batch, which ends the transfer.
    """

    def __init__(
        self, first: pb.InvokeResponse, messages: AsyncGenerator[pb.InvokeResponse, None]
    ) -> None:
        self._reader = AnswerReader()
        self._first = self._reader.feed(first)
        self._messages = messages
        self.header: AnswerHeader = self._reader.header

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        first, self._first = self._first, []
        for batch in first:
            yield batch
        async for message in self._messages:
            for batch in self._reader.feed(message):
                yield batch
        self._reader.finish()

    async def close(self) -> None:
        await self._messages.aclose()

    async def __aenter__(self) -> AsyncAnswerStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
