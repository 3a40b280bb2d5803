"""Sources that run in this process, over a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_sdk import AsyncClient, Client, MockTransport
from psoup.source.connectors.partition import Partition, Records
from psoup.source.feeding.piece import Mark, Piece
from psoup.source.lag import Lag
from psoup.source.runner import SourceRunner, run_sources
from psoup.source.settings import SourceSettings, StoreSettings
from psoup.source.status import StatusFile

_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class StoreInMemory(StoreSettings):
    transport: Any = None

    def client(self) -> AsyncClient:
        return AsyncClient(transport=self.transport)


@dataclass
class Running:
    """The sources of one test: what they say, and why they ended."""

    folder: Path
    transport: MockTransport

    def __post_init__(self) -> None:
        self.client = Client(transport=self.transport)
        self.notices: list[str] = []
        self.status = StatusFile(self.folder / "status")

    def settings(self, name: str, kind: str, place: dict[str, Any], **more: Any) -> SourceSettings:
        store = StoreInMemory(transport=self.transport)
        return SourceSettings(name, kind, place, "s", self.folder, store=store, **more)

    def run(
        self,
        *settings: SourceSettings,
        until: Callable[[], bool] = lambda: False,
        start: str = "",
    ) -> dict[str, Exception | None]:
        """Run sources until all have ended or `until` holds; return why each of them ended."""

        async def all_of_them() -> dict[str, Exception | None]:
            runners = [
                SourceRunner(source, self.status, self.notices.append, start) for source in settings
            ]
            task = asyncio.create_task(run_sources(runners))
            while not task.done() and not until():
                await asyncio.sleep(0.01)
            for runner in runners:
                runner.stopping.set()
            return await task

        return asyncio.run(asyncio.wait_for(all_of_them(), _WAIT_SECONDS))

    def numbers(self) -> list[int]:
        return [row["k"] for row in self.client.ask("SELECT k FROM s")]

    def marks(self) -> dict[str, bytes]:
        return {record.name: record.mark for record in self.client.publishers()}


class StubConnector:
    """A connector whose partitions are given: how to open each, by its name."""

    look_seconds = 0.0
    parallel = 10
    fresh_partitions = False

    def __init__(
        self, name: str, readers: Mapping[str, Callable[[Mark], Any]], begin: Callable[[str], Mark]
    ) -> None:
        self._parts = [
            Partition(f"{name}/{part}", opened, begin) for part, opened in readers.items()
        ]

    @property
    def left_out(self) -> Mapping[str, int]:
        return {}

    def partitions(self, records: Records) -> list[Partition]:
        return self._parts

    def check(self) -> list[str]:
        return []

    def sample(self, records: Records) -> Piece | None:
        return None

    def lag(self, records: Records) -> dict[str, Lag]:
        return {}

    def setup(self) -> str:
        return ""


class PieceReader:
    """A reader of given pieces; then it raises, or waits, or is at its end."""

    can_seek = True

    def __init__(self, pieces: list[Piece], error: Exception | None = None) -> None:
        self._pieces: Iterator[Piece] = iter(pieces)
        self._error = error
        self.at_end = False

    def poll(self, seconds: float) -> Piece | None:
        piece = next(self._pieces, None)
        if piece is None and self._error is not None:
            raise self._error
        self.at_end = piece is None
        return piece

    def acknowledge(self, mark: Mark) -> None:
        pass

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass
