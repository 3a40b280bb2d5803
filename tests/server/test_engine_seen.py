"""Status says whether an engine lives; answers never depend on it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from psoup.engine.ownership.lock import EngineLock
from psoup.store import presence
from psoup.v1 import psoup_pb2 as pb
from tests.server.conftest import Start
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process


def engine_of(server: ServerProcess, running: bool) -> pb.EngineStatus:
    """What Status says of the engine, once it says that one runs or that none does."""
    deadline = time.monotonic() + 60
    while True:
        engine: pb.EngineStatus = server.stub.Status(pb.StatusRequest()).engine
        if engine.running == running:
            return engine
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_engine_comes_and_goes(start: Start, tmp_path: Path) -> None:
    server = start()
    assert engine_of(server, running=False) == pb.EngineStatus()
    lock = EngineLock(tmp_path / "store")
    lock.acquire()
    engine = engine_of(server, running=True)
    assert (engine.pid, bool(engine.host), engine.HasField("seen_at")) == (os.getpid(), True, True)
    lock.release()
    assert engine_of(server, running=False) == pb.EngineStatus()


def test_an_engine_that_was_killed_long_ago(start: Start, tmp_path: Path) -> None:
    start().stop()
    file = tmp_path / "store" / presence.ENGINE_LOCK
    with file.open("wb") as stream:
        presence.Pulse("far", 7, 3).write(stream.fileno())
    os.utime(file, (1_000_000_000, 1_000_000_000))
    engine = engine_of(start(), running=False)
    assert (engine.host, engine.pid) == ("far", 7)
    assert abs(engine.seen_at.seconds - 1_000_000_000) < 60
