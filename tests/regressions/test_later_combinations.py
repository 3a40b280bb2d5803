"""A server that had read the stored combinations of a join never saw those that came later: what it
had in memory was taken for all there is."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from psoup.server.calls.invoke import invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.answers.test_without_server import running
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc, received

# Legs are created in the order of their ids.
pytestmark = pytest.mark.usefixtures("counted_ids")


async def step(core: Core, engine: HandMadeEngine) -> None:
    """A row more on each leg, and all combinations stored."""
    for stream in ("l", "r"):
        rows = ipc(pa.table({"k": [1]}))
        await publish(core, new_call(), pb.PublishRequest(stream=stream, arrow=rows))
    engine.step()
    (composite,) = engine.state.composites.values()
    (registration,) = engine.state.registrations.values()
    highs = [engine.state.streams[leg].high for leg in composite.legs]
    admitted = [{leg.predicate_id} for leg in registration.legs]
    engine.compose(composite.id, 0, highs, admitted, random.Random(1))
    engine.step()


async def test_combinations_that_come_after_a_server_has_read_some(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        engine = HandMadeEngine(core.store)
        for name in ("l", "r"):
            statement = parse_statement(f"CREATE STREAM {name} (k BIGINT)")
            assert isinstance(statement, CreateStream)
            await core.appender.submit(Define("main", "main", statement.schema))
        sql = "SELECT l.row_id AS x, r.row_id AS y FROM l, r WHERE l.k = r.k"
        registered, *_ = await register(core, new_call(), pb.RegisterRequest(sql=sql))
        for number in range(1, 4):
            await step(core, engine)
            await core.follower.catch_up()
            request = pb.InvokeRequest(handle=registered.handles[0], wait_for_engine=True)
            header, *_ = await received(invoke(core, new_call(), request))
            assert header.header.joined_pairs == 0
            assert header.header.row_count == number * number
