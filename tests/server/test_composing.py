"""Joins get their composite when they are registered."""

from __future__ import annotations

from pathlib import Path

from psoup.server.calls.register import register, register_many
from psoup.server.core import Core
from psoup.v1 import psoup_pb2 as pb
from tests.server.test_epochs import define, running
from tests.support.server.callers import new_call

JOIN = "SELECT x.a FROM s x, s y WHERE x.a = y.a AND x.a > {} RANGE 1 HOUR"
CROSS = "SELECT x.a FROM s x, s y WHERE x.a <> y.a RANGE 1 HOUR"
ONE = "SELECT a FROM s RANGE 1 HOUR"


def composites(core: Core, handles: list[bytes]) -> list[int]:
    """The composites of registrations, 0 for one that has none."""
    registrations = core.follower.state.registrations
    references = [registrations[handle].composite for handle in handles]
    return [0 if composite is None else composite.composite_id for composite in references]


async def test_a_join_is_registered_with_its_composite(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await define(core)
        handles = []
        for text in (JOIN.format(1), CROSS, ONE, JOIN.format(2)):
            handles += (await register(core, new_call(), pb.RegisterRequest(sql=text)))[0].handles
        values = [pb.Row(values=[pb.Value(bigint=number)]) for number in (1, 2, 5)]
        table = pb.Rows(columns=["low"], rows=values)
        many = pb.RegisterManyRequest(sql=JOIN.format(":low"), rows=table)
        handles += (await register_many(core, new_call(), many)).handles
        state = core.follower.state
        (shared_id,) = state.composites
        assert composites(core, handles) == [shared_id, 0, 0, *[shared_id] * 4]
        assert state.composites[shared_id].registrations == 5
        registered = [state.registrations[handle].composite for handle in handles]
        shared = {composite.predicate_id for composite in registered if composite is not None}
        assert len(shared) == 3, "equal queries share the predicate over the composite"
