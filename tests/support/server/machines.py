"""Servers of several machines, each with a clock of its own, over one store and one true time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datastem.instants import SECOND
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TIMESTAMP
from psoup.server.calls.invoke import ask
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Event, Jump, Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.draft import Chain, CommitDraft
from psoup.write.streams import Define
from psoup.write.timepiece import Timepiece
from tests.support.server.callers import new_call
from tests.support.server.process import received, rows_of

START = 1_700_000_000 * SECOND


@dataclass(slots=True)
class Machine:
    """`ahead` is how wrong its clock is; set it to step the clock. `synchronised`: it has NTP."""

    name: str
    ahead: int = 0
    synchronised: bool = False


class Machines:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "store"
        self.time = START

    def timepiece(self, machine: Machine) -> Timepiece:
        return Timepiece(
            machine.name,
            lambda: self.time + machine.ahead,
            lambda: self.time,
            lambda: machine.synchronised,
        )

    @contextlib.asynccontextmanager
    async def server(self, machine: Machine, **settings: Any) -> AsyncIterator[Core]:
        store = Store.open(self.path, create=True, sync=False)
        core = Core(store, Settings(self.path, wait=0.2, **settings), self.timepiece(machine))
        await core.start()
        try:
            yield core
        finally:
            await core.stop()


@dataclass(frozen=True, slots=True)
class Said:
    """A proposal of one event, whatever it is."""

    event: Event
    nbytes: int = 0
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> None:
        draft.append("", "", self.event)


def arrival(retain: int | None = None) -> StreamSchema:
    return StreamSchema("s", (Column("a", BIGINT),), retain=retain)


def timed(ahead: int) -> StreamSchema:
    columns = (Column("a", BIGINT), Column("at", TIMESTAMP))
    return StreamSchema("timed", columns, ordered_by="at", ahead=ahead)


async def define(core: Core, schema: StreamSchema) -> None:
    await core.appender.submit(Define("main", "main", schema))


async def put(core: Core, number: int) -> pb.PublishResponse:
    rows = rows_of(["a"], [pb.Value(bigint=number)])
    return await publish(core, new_call(), pb.PublishRequest(stream="s", rows=rows))


async def put_at(core: Core, number: int, ts: int, stream: str = "timed") -> pb.PublishResponse:
    at = pb.Value()
    at.timestamp.FromMicroseconds(ts)
    rows = rows_of(["a", "at"], [pb.Value(bigint=number), at])
    return await publish(core, new_call(), pb.PublishRequest(stream=stream, rows=rows))


async def answer(core: Core, sql: str = "SELECT a FROM s") -> list[int]:
    """Return the first column, as numbers."""
    await core.follower.catch_up()
    messages = await received(ask(core, new_call(), pb.AskRequest(sql=sql)))
    return [row.values[0].bigint for message in messages for row in message.rows.rows]


def jumps_of(core: Core) -> list[Jump]:
    versions = range(1, core.follower.version + 1)
    entries = [entry for version in versions for entry in core.store.log.read(version)]
    return [entry.event for entry in entries if isinstance(entry.event, Jump)]
