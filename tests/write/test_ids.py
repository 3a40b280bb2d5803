"""Ids that clients see say nothing about how much others have created."""

from __future__ import annotations

from pathlib import Path

import pytest

from psoup.server.calls.define import define
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.ids import new_id
from tests.support.server.callers import new_call

TEXTS = (
    "CREATE STREAM a (x BIGINT) RETAIN 1 DAY",
    "CREATE STREAM b (x BIGINT) RETAIN 1 DAY",
    "CREATE VIEW v AS SELECT x FROM a",
    "CREATE POLICY p ON a USING (x > 1)",
)


async def test_ids_are_random_and_go_on_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        core = Core(Store.open(tmp_path, create=True, sync=False), Settings(tmp_path))
        await core.start()
        state = core.follower.state
        if not state.streams:
            for text in TEXTS:
                await define(core, new_call(), pb.DefineRequest(sql=text))
        numbers = [*state.streams, *state.views, *(int(number) for number in state.access.policies)]
        assert len(set(numbers)) == len(TEXTS) and all(0 < number < 2**63 for number in numbers)
        # Numbers of a counter are closer; two of four random ones are that close once in 2^29.
        gaps = [abs(a - b) for a in numbers for b in numbers if a != b]
        assert min(gaps) > 2**30
        assert all(map(state.has_id, numbers))
        await core.stop()


async def test_an_id_that_is_taken_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core(Store.open(tmp_path, create=True, sync=False), Settings(tmp_path))
    await core.start()
    state = core.follower.state
    for text in TEXTS:
        await define(core, new_call(), pb.DefineRequest(sql=text))
    used_ids = [*state.streams, *state.views, *(int(number) for number in state.access.policies)]
    drawn = iter([0, *used_ids, 7])
    monkeypatch.setattr("psoup.write.ids.secrets.randbits", lambda bits: next(drawn))
    assert new_id(state) == 7
    await core.stop()
