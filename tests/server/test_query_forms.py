"""Queries of many references, through a server in this process: answers and copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.copy import Copy
from tests.support.server.callers import tenant_server


@pytest.mark.parametrize("count", [3, 33, 64])
async def test_copies_of_many_references(count: int, tmp_path: Path) -> None:
    """Up to 32 references a copy slides; with more it is synced as a result."""
    names = [f"t{number}" for number in range(count)]
    links = [f"{one}.a = {other}.b" for one, other in zip(names, names[1:], strict=False)]
    listed = ", ".join(f"t AS {name}" for name in names)
    text = f"SELECT t0.a FROM {listed} WHERE {' AND '.join(links)}"
    async with tenant_server(tmp_path) as server:
        caller, copy = server.administrator, Copy()
        await caller.define("CREATE STREAM t (a BIGINT, b BIGINT)")
        await caller.publish("t", a=[1, 2], b=[1, 3])
        handle = await caller.register(text)
        for values in ([1], [1, 2, 3, 4]):
            await caller.sync(handle, copy)
            assert copy.slides == (count <= 32)
            assert sorted(copy.answer(copy.now)) == [(value,) for value in values]
            assert sorted((await caller.invoke(handle))[1]) == values
            await caller.publish("t", a=[3, 4], b=[2, 4])
