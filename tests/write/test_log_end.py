"""The end of the log is proved by a commit, shared by all calls that wait together."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from psoup.errors import Stopping
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.write import log_end


async def _running(folder: Path) -> Core:
    core = Core(Store.open(folder, create=True, sync=False), Settings(folder))
    await core.start()
    return core


async def test_calls_that_wait_together_share_a_proof(tmp_path: Path) -> None:
    core = await _running(tmp_path)
    await core.log_end.prove()
    assert core.follower.version == 1
    await asyncio.gather(*(core.log_end.prove() for _ in range(50)))
    # Those that come while one is under way need another: it began before them.
    assert core.follower.version <= 3
    await core.stop()


async def test_another_server_s_commit_is_read_before_a_proof(tmp_path: Path) -> None:
    core, second_core = await _running(tmp_path), await _running(tmp_path)
    await second_core.log_end.prove()
    await core.log_end.prove()
    assert core.follower.version == 2 and len(core.follower.state.writers) == 2
    await core.stop()
    await second_core.stop()


async def test_a_proof_that_fails_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_end, "PROOF_INTERVAL_SECONDS", 0.0)
    core = await _running(tmp_path)
    core.appender.stopping = True
    outcomes = await asyncio.gather(
        *(core.log_end.prove() for _ in range(3)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [Stopping] * 3
    core.appender.stopping = False
    await core.log_end.prove()
    assert core.follower.version == 1
    await core.stop()
