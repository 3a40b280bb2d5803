"""A commit that is made while a server looks for it is read, not taken for one that was trimmed.

Found by registering from 32 callers at once: the server's own commit came between its two looks at
the log, and it opened the whole store anew, up to several times a second.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT
from psoup.server.follower import Follower
from psoup.server.settings import Settings
from psoup.store import Entry, Position, Store, StreamCreated

ENTRY = Entry(
    Position(1, 0), 5, "main", "main", StreamCreated(1, StreamSchema("s", (Column("a", BIGINT),)))
)


async def test_a_commit_between_the_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(tmp_path / "store", create=True)
    follower = Follower(store, Settings(tmp_path / "store"))
    await follower.start()
    opened = follower.state
    latest = store.log.latest_version

    def latest_after_a_commit(version: int = 0) -> int:
        if latest() == 0:
            store.log.append(1, [ENTRY])
        return latest(version)

    monkeypatch.setattr(store.log, "latest_version", latest_after_a_commit)
    await follower.catch_up()
    follower.stop()
    assert follower.state is opened, "nothing was opened anew"
    assert follower.state.find_stream("main", "s") is not None
