"""A transfer that had to wait for its turn, with one position and a small budget, forgot its rows.

Items that the budget does not reach get a token that holds the position. For one of which some rows
had been sent in an earlier call it said that none had, so they were sent again; with a budget that
the first items spend, the last one never came to its end.
"""

from __future__ import annotations

from pathlib import Path

from psoup.server.calls.sync import sync
from psoup.v1 import psoup_pb2 as pb
from tests.support.client_sdk.inside import InsideStore
from tests.support.server.callers import new_call


def test_a_held_transfer_keeps_what_was_sent(tmp_path: Path) -> None:
    store = InsideStore(tmp_path)
    store.client.define("CREATE STREAM s (a BIGINT)")
    store.client.publish("s", [{"a": number} for number in range(100)])
    partial_handle, all_ = (
        store.client.register(f"SELECT a FROM s {text} UNBOUNDED").handle
        for text in ("WHERE a = 1", "")
    )

    def call(tokens: tuple[bytes, bytes], budget: int) -> list[pb.SyncPart]:
        items = [
            pb.SyncItem(handle=handle, token=token, priority=priority)
            for handle, token, priority in zip((partial_handle, all_), tokens, (1, 0), strict=True)
        ]
        request = pb.SyncRequest(items=items, byte_budget=budget, one_position=True)

        async def parts() -> list[pb.SyncPart]:
            return [part async for part in sync(store.core, new_call(), request)]

        parts_sent: list[pb.SyncPart] = store.run(parts())
        return parts_sent

    first = call((b"", b""), 600)
    done = next(part.end.token for part in first if part.HasField("end"))
    staged = first[-1].resume
    assert staged and any(part.HasField("rows") for part in first if part.item == 1)
    second = call((done, staged), 1)
    assert second[-1].item == 1 and second[-1].resume == staged
    third = call((done, staged), 0)
    assert third[-1].HasField("end")
    assert next(part.begin for part in third if part.item == 1).continued
    store.close()
