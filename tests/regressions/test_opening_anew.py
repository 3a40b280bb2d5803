"""A server that opened its store anew answered with nothing meanwhile, and some of it for good.

It emptied its stems before it read the files again. Answers planned in between had no rows, and a
batch that was accepted in between claimed all row ids up to its own, so that the files' rows before
it were never read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from psoup.answers.replicas.stem_files import StemFiles
from psoup.server.calls.invoke import ask
from psoup.server.calls.register import register
from psoup.server.calls.sync import sync
from psoup.server.core import Core
from psoup.store import Store
from psoup.store.log.log import Log
from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.server.test_epochs import ask as invoke
from tests.server.test_epochs import define, rows, running, send, until
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import received

pytestmark = pytest.mark.usefixtures("counted_ids")

SELECT = "SELECT a FROM s"


class Gate:
    """Holds back the threads that come to it while it is shut."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self._somebody_waits = threading.Event()

    def pass_through(self) -> None:
        if not self._open.is_set():
            self._somebody_waits.set()
            assert self._open.wait(60)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._somebody_waits.wait, 60)

    def open(self) -> None:
        self._open.set()

    @contextmanager
    def shut(self) -> Iterator[None]:
        self._somebody_waits.clear()
        self._open.clear()
        try:
            yield
        finally:
            self.open()


def gated(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> Gate:
    """A gate before a method that runs in a thread."""
    gate, method = Gate(), getattr(owner, name)

    def wait_first(*args: Any, **named: Any) -> Any:
        gate.pass_through()
        return method(*args, **named)

    monkeypatch.setattr(owner, name, wait_first)
    return gate


async def rows_asked(core: Core) -> int:
    request = pb.AskRequest(sql=SELECT, encoding=pb.ENCODING_ARROW)
    header, *_ = await received(ask(core, new_call(), request))
    return int(header.header.row_count)


async def rows_synced(core: Core, handle: bytes) -> int:
    copy = Copy()
    async for part in sync(core, new_call(), pb.SyncRequest(items=[pb.SyncItem(handle=handle)])):
        copy.take(pb.SyncPart.FromString(part.SerializeToString()))
    assert copy.sound()
    return len(copy.answer(copy.now))


async def rows_found(core: Core, handle: bytes) -> list[int]:
    """How many rows each kind of answer has."""
    _, invoked = await invoke(core, handle)
    return [len(invoked), await rows_asked(core), await rows_synced(core, handle)]


async def prepared(core: Core, engine: HandMadeEngine) -> bytes:
    """500 rows in files, 100 that are only in the log."""
    await define(core)
    handle = (await register(core, new_call(), pb.RegisterRequest(sql=SELECT)))[0].handles[0]
    await send(core, rows(0, 500))
    engine.step()
    await send(core, rows(500, 100))
    await core.follower.refresh()
    return handle


@pytest.mark.parametrize("tail", [0, 3])
async def test_answers_while_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: int
) -> None:
    gate = gated(monkeypatch, StemFiles, "segments")
    async with running(tmp_path / "store") as core:
        handle = await prepared(core, HandMadeEngine(core.store))
        position = core.follower.state.position
        with gate.shut():
            opening = asyncio.create_task(core.follower.refresh())
            await gate.reached()
            assert core.follower.state.position == position, "never behind itself"
            async with asyncio.timeout(240):
                for sent in range(tail):
                    assert await rows_found(core, handle) == [600 + sent] * 3
                    await send(core, rows(600 + sent, 1))
                assert await rows_found(core, handle) == [600 + tail] * 3
        await opening
        assert await rows_found(core, handle) == [600 + tail] * 3


@pytest.mark.parametrize("when", ["before the files are read", "after the store was opened"])
async def test_a_batch_in_flight_hides_no_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    reading = gated(monkeypatch, StemFiles, "segments")
    appending = gated(monkeypatch, Log, "append")
    async with running(tmp_path / "store", poll=3600) as core:
        engine = HandMadeEngine(core.store)
        await define(core)
        handle = (await register(core, new_call(), pb.RegisterRequest(sql=SELECT)))[0].handles[0]
        await send(core, rows(0, 9_100))
        engine.step()
        with appending.shut():
            publishing = asyncio.create_task(send(core, rows(9_100, 1)))
            await appending.reached()
            with reading.shut():
                opening = asyncio.create_task(core.follower.refresh())
                await reading.reached()
                if when == "before the files are read":
                    appending.open()
                    await publishing
            await opening
        await publishing
        assert await rows_found(core, handle) == [9_101] * 3
        await core.follower.refresh()
        assert await rows_found(core, handle) == [9_101] * 3


async def test_an_epoch_shown_while_opening_stays_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of an older epoch than answers were made of already may be gone."""
    gate = gated(monkeypatch, Store, "state")
    async with running(tmp_path / "store") as core:
        engine = HandMadeEngine(core.store)
        handle = await prepared(core, engine)
        with gate.shut():
            opening = asyncio.create_task(core.follower.refresh())
            await gate.reached()
            engine.step()
            engine.rewrite(1)
            await until(core, lambda: core.follower.view.epoch.number == 3)
        await opening
        assert core.follower.view.epoch.number == 3
        assert core.follower.behind() == (0, 0)
        assert await rows_found(core, handle) == [600] * 3


async def test_an_opening_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "store") as core:
        handle = await prepared(core, HandMadeEngine(core.store))
        used = core.follower.memory.used
        with monkeypatch.context() as failing:
            failing.setattr(Log, "read", _fail)
            with pytest.raises(OSError, match="no disk"):
                await core.follower.refresh()
        assert core.follower.memory.used == used
        assert await rows_found(core, handle) == [600] * 3


def _fail(*_: Any, **__: Any) -> None:
    raise OSError("no disk")
