"""Explain, over epochs made by hand: what is shared, stored, covered and computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from psoup.errors import UnknownHandle
from psoup.server.calls.explain import explain
from psoup.server.calls.register import register
from psoup.v1 import psoup_pb2 as pb
from tests.server.test_epochs import define, rows, running, send
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine


async def test_a_registration_is_explained(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await define(core)
        engine = HandMadeEngine(core.store)
        wheres = ["a % 7 = 3 AND a > 100", "a % 7 = 3", "a % 7 = 3 AND a > 100", "a > 5 OR a = 1"]
        handles = []
        for where in wheres:
            text = f"SELECT a FROM s WHERE {where} UNBOUNDED"
            registered, *_ = await register(core, new_call(), pb.RegisterRequest(sql=text))
            handles += registered.handles
        engine.step()
        await send(core, rows(0, 1000))
        engine.step()
        await send(core, rows(1000, 500))
        await core.follower.refresh()

        first = await explain(core, new_call(), pb.ExplainRequest(handle=handles[0]))
        values = np.arange(1500)
        matching = (values % 7 == 3) & (values > 100)
        assert first.registration_count == 2
        assert (first.other_predicates, first.compared_predicates) == (2, 2)
        factors = {factor.text: factor for factor in first.factors}
        assert {text: factor.shared_by for text, factor in factors.items()} == {
            "a % 7 = 3": 1,
            "a >= 101": 0,
        }
        assert {factor.access for factor in first.factors} == {pb.ACCESS_COMPARED}
        assert (factors["a >= 101"].operand, factors["a >= 101"].constant_count) == ("a", 4)
        assert (first.matched_rows, first.stream_rows, first.epoch) == (1000, 1500, 2)
        assert first.stored.row_count == matching[:1000].sum()
        assert (first.stored.file_count, first.stored.block_count) == (1, 1)
        assert first.stored.piece_count >= 1 and first.stored.byte_count > 0
        run = first.run
        assert (run.considered_rows, run.computed_rows) == (1500, 500)
        assert run.answer_rows == matching.sum()
        names = [stage.name for stage in run.stages]
        assert names == ["plan", "window", "match", "take", "shape", "encode"]

        again = await explain(
            core, new_call(), pb.ExplainRequest(handle=handles[0], window="ROWS 10")
        )
        assert 10 <= again.run.considered_rows <= 500 and again.run.computed_rows == 0


async def test_an_aggregate_reads_its_summaries(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await define(core)
        await send(core, rows(0, 1000))
        text = "SELECT count(*) AS n FROM s WHERE a > 10"
        registered, *_ = await register(core, new_call(), pb.RegisterRequest(sql=text))
        request = pb.ExplainRequest(handle=registered.handles[0])
        first, second = (
            await explain(core, new_call(), request),
            await explain(core, new_call(), request),
        )
        assert [stage.name for stage in first.run.stages][3] == "aggregate"
        assert (first.run.considered_rows, second.run.considered_rows) == (1000, 0)
        assert (second.epoch, second.stored.row_count, second.matched_rows) == (0, 0, 0)
        with pytest.raises(UnknownHandle):
            await explain(core, new_call(), pb.ExplainRequest(handle=b"x" * 16))
        with pytest.raises(UnknownHandle):
            await explain(
                core, new_call(), pb.ExplainRequest(tenant="other", handle=request.handle)
            )
