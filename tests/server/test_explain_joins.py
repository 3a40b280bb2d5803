"""Explain of a query over several streams: its legs, its joins, and its tree."""

from __future__ import annotations

from pathlib import Path

from datastem.types import BIGINT, BOOLEAN
from psoup.server.calls.explain import explain
from psoup.server.core import Core
from psoup.v1 import psoup_pb2 as pb
from psoup.write.registrations import Prepared, RegisterAll
from querystem.expressions import TRUE, Call, ColumnRef, Literal, Op
from querystem.legs import Leg
from querystem.query import Output, Query
from querystem.sources import From, SetOperation, SetOperator
from results.window import UNBOUNDED
from tests.server.test_epochs import define, rows, running, send
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine


def call(op: Op, column: str, value: int | str) -> Call:
    operand = Literal(value, BIGINT) if isinstance(value, int) else ColumnRef(value, BIGINT)
    return Call(op, (ColumnRef(column, BIGINT), operand), BOOLEAN)


SEVENTHS = Leg("s", call(Op.LE, "a", 99), UNBOUNDED)
LATE = Leg("s", call(Op.GE, "a", 50), UNBOUNDED)
ALL = Leg("s", TRUE, UNBOUNDED)


async def register(core: Core, query: Query) -> bytes:
    """Registers a query that is made by hand."""
    streams = {"s": core.follower.state.stream_names["main", "s"]}
    prepared = Prepared("", "{}", query)
    registered = await core.appender.submit(
        RegisterAll("main", "main", streams, "", 10**12, [prepared])
    )
    return bytes(registered.handles[0])


async def test_a_join_is_explained(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await define(core)
        on = Call(Op.AND, (call(Op.EQ, "0.a", "1.a"), call(Op.EQ, "1.a", "2.a")), BOOLEAN)
        query = Query(From((ALL, SEVENTHS, LATE), on), (Output("a", ColumnRef("0.a", BIGINT)),))
        handle = await register(core, query)
        engine = HandMadeEngine(core.store)
        engine.step()
        await send(core, rows(0, 1000))
        engine.step()
        await send(core, rows(1000, 500))
        await core.follower.refresh()

        plan = await explain(core, new_call(), pb.ExplainRequest(handle=handle))
        assert [leg.stream for leg in plan.legs] == ["s"] * 3
        assert [leg.row_count for leg in plan.legs] == [1500, 100, 1450]
        assert [leg.considered_rows for leg in plan.legs] == [1500] * 3
        assert [leg.stored.row_count for leg in plan.legs] == [1000, 100, 950]
        assert {leg.matched_rows for leg in plan.legs} == {1000}
        assert {leg.other_predicates for leg in plan.legs} == {2}
        assert [[factor.text for factor in leg.factors] for leg in plan.legs] == [
            [],
            ["a < 100"],
            ["a >= 50"],
        ]
        assert plan.stream_rows == plan.legs[0].stream_rows == 1500
        join = plan.operator.inputs[0]
        assert (join.name, join.pattern, join.first_input) == ("join", pb.UPDATE_PATTERN_MON, 1)
        assert {step.method for step in join.steps} == {pb.JOIN_METHOD_EQUALITY}
        assert {step.input for step in join.steps} == {0, 2}
        assert [step.joined_rows for step in join.steps][0] == 100
        assert join.steps[-1].kept_pairs == plan.run.answer_rows == 50
        assert [leaf.leg for leaf in join.inputs] == [0, 1, 2]
        names = [stage.name for stage in plan.run.stages]
        assert names == ["plan", "window", "match", "take", "join", "shape", "encode"]
        assert plan.composite


async def test_a_union_speaks_of_no_join(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await define(core)
        await send(core, rows(0, 200))
        output = Output("a", ColumnRef("a", BIGINT))
        branches = Query(SEVENTHS, (output,)), Query(LATE, (output,))
        union = SetOperation(SetOperator.UNION_ALL, branches)
        query = Query(From((union,)), (Output("a", ColumnRef("0.a", BIGINT)),))
        explanation = await explain(
            core, new_call(), pb.ExplainRequest(handle=await register(core, query))
        )
        assert explanation.run.answer_rows == 250
        assert explanation.composite == ""
        assert explanation.operator.inputs[0].name == "union all"
        stages = [stage.name for stage in explanation.run.stages]
        assert stages == ["plan", "window", "match", "take", "combine", "shape", "encode"]


async def test_one_stream_is_a_leg_too(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await define(core)
        await send(core, rows(0, 100))
        handle = await register(core, Query(LATE, (Output("a", ColumnRef("a", BIGINT)),)))
        plan = await explain(core, new_call(), pb.ExplainRequest(handle=handle))
        (leg,) = plan.legs
        assert (leg.row_count, leg.factors[0], leg.stored) == (50, plan.factors[0], plan.stored)
        assert plan.operator.inputs[0].leg == 0
