"""A store that has real streams; answers come from its folder, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from datastem.instants import to_micros
from datastem.memory import Memory
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.oracle.comparing import Values
from tests.support.real.streams import RealStream
from tests.support.server.callers import new_call
from tests.support.server.process import ipc

_EARLY = to_micros(datetime(2012, 1, 1, tzinfo=UTC))
_CLOCK = to_micros(datetime(2026, 1, 1, tzinfo=UTC))
_MEMORY = 256 << 20


@dataclass(frozen=True)
class FilledStore:
    """Streams, all of whose rows were published, at one moment."""

    streams: Sequence[RealStream]
    maker: AnswerMaker
    view: View

    @classmethod
    def of(cls, folder: Path, streams: Sequence[RealStream]) -> FilledStore:
        asyncio.run(_fill(folder, streams))
        store = Store.open(folder)
        view = View.at(Replica.open(store, Memory(_MEMORY)), _CLOCK)
        return cls(streams, AnswerMaker(store, _MEMORY), view)

    def answer(self, sql: str, as_of: datetime | None = None) -> list[Values]:
        """Return the answer now, or as of an instant with what is known today."""
        question = Question.of_text(sql, self.view.state)
        if as_of is not None:
            question = replace(question, as_of=to_micros(as_of), known_today=True)
        rows = self.maker.answer(self.view, question).table.to_pylist()
        return [tuple(row.values()) for row in rows]


async def _fill(folder: Path, streams: Sequence[RealStream]) -> None:
    """Rows that go by arrival time come before the others, and long ago: AS OF shows them too."""
    clock = [_EARLY]
    settings = Settings(folder, durability="none", memory=_MEMORY)
    core = Core(Store.open(folder, create=True, sync=False), settings, lambda: clock[-1])
    await core.start()
    for stream in sorted(streams, key=lambda real: real.ts is not None):
        if stream.ts is not None:
            clock.append(_CLOCK)
        statement = parse_statement(stream.definition)
        assert isinstance(statement, CreateStream)
        await core.appender.submit(Define("main", "main", statement.schema))
        await publish(
            core, new_call(), pb.PublishRequest(stream=stream.name, arrow=ipc(stream.rows))
        )
    await core.stop()
