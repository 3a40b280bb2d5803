"""An edit whose sequence a clone of the file had used was taken for sent, and deleted.

The file was copied while a batch waited, and noted as tried though it never left. The other copy
sent on; a server that no longer knew what that sequence held called the batch a duplicate.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from client_sdk import Client, ConnectionFailed, Copies, Retry
from psoup.write.draft import RecentBatches
from tests.support.client_sdk.inside import InsideStore


class Cut:
    """A line over which nothing ever leaves."""

    def unary(self, method: str, request: object, timeout: float | None) -> None:
        raise ConnectionFailed("cut")


def test_an_edit_is_not_deleted_because_a_clone_used_its_number(tmp_path: Path) -> None:
    store = InsideStore(tmp_path)
    store.core.follower.recent = RecentBatches(capacity=0)
    store.client.define("CREATE STREAM s (a BIGINT)")
    phone, clone = tmp_path / "phone.db", tmp_path / "clone.db"
    with Copies(phone) as copies:
        copies.publish("s", [{"a": 0}])
        copies.send(store.client)
    shutil.copy(phone, clone)
    with Copies(phone) as copies:
        for value in (1, 2):
            copies.publish("s", [{"a": value}])
        copies.send(store.client)
    with Copies(clone) as copies:
        copies.publish("s", [{"a": 3}])
        cut = Client(transport=Cut(), retry=Retry(attempts=1))  # type: ignore[arg-type]
        with pytest.raises(ConnectionFailed):
            copies.send(cut)
        copies.send(store.client)
        [doubtful] = copies.doubtful
        assert doubtful.content.to_pylist() == [{"a": 3}]
        copies.resend()
        assert copies.send(store.client).rows == 1
    rows = store.client.invoke(store.client.register("SELECT a FROM s"))
    assert [row["a"] for row in rows] == [0, 1, 2, 3]
    store.close()
