"""An AsyncClient used from a test that waits, so that one contract suite serves both clients."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from client_sdk import AsyncAnswerStream, AsyncClient, AsyncPublisher

_WRAPPED = (AsyncPublisher, AsyncAnswerStream)


class Blocking:
    """Runs what `target` gives back until it is there; everything else passes through."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target = target
        self._runner = runner

    @classmethod
    def client(cls, address: str, runner: asyncio.Runner) -> Blocking:
        async def connect() -> AsyncClient:
            return AsyncClient(address)

        return cls(runner.run(connect()), runner)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if not inspect.ismethod(attribute):
            return attribute
        return lambda *arguments, **options: self._resolve(attribute(*arguments, **options))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._collect(self._target))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _resolve(self, result: Any) -> Any:
        if inspect.isawaitable(result):
            result = self._runner.run(_await_result(result))
        if inspect.isasyncgen(result):
            return self._collect(result)
        return Blocking(result, self._runner) if isinstance(result, _WRAPPED) else result

    def _collect(self, source: Any) -> list[Any]:
        async def collect() -> list[Any]:
            return [item async for item in source]

        return self._runner.run(collect())


async def _await_result(result: Any) -> Any:
    return await result
