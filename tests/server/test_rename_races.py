"""A column that is renamed or dropped while a statement about it is on its way, and texts that are
shown after a RENAME."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from psoup.server.calls.define import define
from psoup.server.calls.describe import describe_stream, list_views
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register, register_many
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from querystem.language import QueryError
from tests.server.test_keyed import answer_of
from tests.support.server.callers import new_call
from tests.support.server.process import ipc

ROWS = pa.table({"id": [1, 2], "a": ["x", "y"], "b": ["p", "q"]})
Action = Callable[[], Awaitable[Any]]


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Core]:
    core = Core(Store.open(folder, create=True, sync=False), Settings(folder))
    await core.start()
    try:
        yield core
    finally:
        await core.stop()


class Pair:
    """Two servers of a store. While the first is about to append, the second alters the stream."""

    def __init__(self, first: Core, second: Core, monkeypatch: pytest.MonkeyPatch) -> None:
        self.first, self.second = first, second
        self.between: list[str] = []
        submit = first.submit

        async def submit_late(call: Any, proposal: Any) -> Any:
            while self.between:
                await self.define(self.between.pop(), second)
            return await submit(call, proposal)

        monkeypatch.setattr(first, "submit", submit_late)

    async def define(self, sql: str, core: Core | None = None) -> pb.DefineResponse:
        return await define(core or self.first, new_call(), pb.DefineRequest(sql=sql))

    async def registered(self, sql: str) -> list[tuple[Any, ...]]:
        done, *_ = await register(self.first, new_call(), pb.RegisterRequest(sql=sql))
        return await self.invoked(done.handles[0])

    async def registered_many(self, sql: str) -> list[tuple[Any, ...]]:
        parameters = ipc(pa.table({"v": ["x"]}))
        request = pb.RegisterManyRequest(sql=sql, arrow=parameters)
        return await self.invoked((await register_many(self.first, new_call(), request)).handles[0])

    async def invoked(self, handle: bytes) -> list[tuple[Any, ...]]:
        request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW)
        return await answer_of(invoke(self.first, new_call(), request))

    async def asked(self, sql: str) -> list[tuple[Any, ...]]:
        request = pb.AskRequest(sql=sql, encoding=pb.ENCODING_ARROW)
        return await answer_of(ask(self.first, new_call(), request))

    async def published(self, table: pa.Table) -> None:
        await publish(self.first, new_call(), pb.PublishRequest(stream="s", arrow=ipc(table)))


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    async with opened(tmp_path / "store") as first, opened(tmp_path / "store") as second:
        pair = Pair(first, second, monkeypatch)
        await pair.define("CREATE STREAM s (id BIGINT, a TEXT, b TEXT)")
        await pair.published(ROWS)
        yield pair


STATEMENTS = {
    "register": lambda pair: pair.registered("SELECT id FROM s WHERE a = 'x'"),
    "star": lambda pair: pair.registered("SELECT * FROM s"),
    "join": lambda pair: pair.registered("SELECT t.id FROM s JOIN s AS t ON s.a = t.a"),
    "many": lambda pair: pair.registered_many("SELECT id FROM s WHERE a = :v"),
    "view": lambda pair: pair.define("CREATE VIEW v AS SELECT id FROM s WHERE a = 'x'"),
    "policy": lambda pair: pair.define("CREATE POLICY p ON s USING (a = claim('x'))"),
    "erase": lambda pair: pair.define("ERASE FROM s WHERE a = 'x'"),
}


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_column_that_is_dropped_meanwhile(pair: Pair, name: str) -> None:
    """As if the statement had come after the DROP: nothing reads a column that is not there."""
    pair.between = ["ALTER STREAM s DROP COLUMN a"]
    if name == "star":
        assert await pair.registered("SELECT * FROM s") == [(1, "p"), (2, "q")]
    else:
        with pytest.raises(QueryError, match="a"):
            await STATEMENTS[name](pair)
    assert not pair.between
    state = pair.first.follower.state
    assert len(state.registrations) == (name == "star")
    assert not state.views and not state.access.policies
    assert await pair.asked("SELECT * FROM s ORDER BY id") == [(1, "p"), (2, "q")]


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_column_that_is_renamed_meanwhile(pair: Pair, name: str) -> None:
    pair.between = ["ALTER STREAM s RENAME COLUMN a TO c"]
    if name == "star":
        assert await pair.registered("SELECT * FROM s") == [(1, "x", "p"), (2, "y", "q")]
        return
    with pytest.raises(QueryError) as refused:
        await STATEMENTS[name](pair)
    assert refused.value.hint == "a was renamed to c"


@pytest.mark.parametrize("change", ["RENAME COLUMN a TO c", "DROP COLUMN a", "ADD COLUMN d TEXT"])
async def test_a_batch_on_its_way(pair: Pair, change: str) -> None:
    pair.between = [f"ALTER STREAM s {change}"]
    await pair.published(pa.table({"id": [3], "a": ["z"], "b": ["r"]}))
    rows = {
        "RENAME COLUMN a TO c": [(1, "x", "p"), (2, "y", "q"), (3, "z", "r")],
        "DROP COLUMN a": [(1, "p"), (2, "q"), (3, "r")],
        "ADD COLUMN d TEXT": [(1, "x", "p", None), (2, "y", "q", None), (3, "z", "r", None)],
    }
    assert await pair.asked("SELECT * FROM s ORDER BY id") == rows[change]


# ---- texts that are shown

POLICIES = {
    "a = claim('region')": "c = claim('region')",
    "a = 'a' AND (s.a <> b OR \"a\" LIKE 'a%')": "c = 'a' AND (s.c <> b OR c LIKE 'a%')",
    "/* a */ lower(A) IN ('a', b)": "/* a */ lower(c) IN ('a', b)",
    "a || b = claim('a') AND id > claim('a')": "c || b = claim('a') AND id > claim('a')",
    "b = 'a'": "b = 'a'",
    "own(a) = 'x'": "c || '!' = 'x'",
    "own(a) = claim('x y')": "c || '!' = CAST(claim('x y') AS TEXT)",
}


@pytest.mark.parametrize("condition", POLICIES)
async def test_policies_have_the_names_of_today(pair: Pair, condition: str) -> None:
    await pair.define("CREATE FUNCTION own(t TEXT) AS t || '!'")
    await pair.define(f"CREATE POLICY p ON s USING ({condition})")

    async def shown() -> str:
        request = pb.DescribeStreamRequest(name="s")
        (text,) = (await describe_stream(pair.first, new_call(), request)).policies
        return str(text)

    assert await shown() == f"CREATE POLICY p ON s USING ({condition})"
    form = next(iter(pair.first.follower.state.access.policies.values())).form
    await pair.define("ALTER STREAM s RENAME COLUMN a TO temporary")
    await pair.define("ALTER STREAM s RENAME COLUMN temporary TO c ACCEPT OLD NAME FOR 0 DAYS")
    text = await shown()
    assert text == f"CREATE POLICY p ON s USING ({POLICIES[condition]})"
    # What is shown makes the policy again.
    await pair.define("DROP POLICY p ON s")
    await pair.define(text)
    (policy,) = pair.first.follower.state.access.policies.values()
    assert policy.form == form and await shown() == text


async def test_a_name_that_another_column_has_by_now(pair: Pair) -> None:
    await pair.define("CREATE POLICY p ON s USING (a = 'x' OR a = b)")
    await pair.define("ALTER STREAM s RENAME COLUMN a TO c ACCEPT OLD NAME FOR 0 DAYS")
    await pair.define("ALTER STREAM s RENAME COLUMN b TO a ACCEPT OLD NAME FOR 0 DAYS")
    request = pb.DescribeStreamRequest(name="s")
    (text,) = (await describe_stream(pair.first, new_call(), request)).policies
    assert text == "CREATE POLICY p ON s USING (c = 'x' OR c = a)"


async def test_views_say_what_was_renamed(pair: Pair) -> None:
    await pair.define("CREATE FUNCTION own(a TEXT) AS a || '!'")
    await pair.define("CREATE VIEW v AS SELECT id, own(a) AS a FROM s WHERE a <> 'no'")
    await pair.define("CREATE VIEW w AS SELECT a FROM v")
    await pair.define("CREATE VIEW x AS SELECT b FROM s")
    await pair.define("ALTER STREAM s RENAME COLUMN a TO c")
    await pair.define("CREATE VIEW y AS SELECT c FROM s")
    views = (await list_views(pair.first, new_call(), pb.ListViewsRequest())).views
    texts = {view.name: view.sql for view in views}
    assert texts["v"].endswith("WHERE a <> 'no' /* renamed since: s.a is c */")
    assert texts["w"] == "CREATE VIEW w AS SELECT a FROM v"
    assert texts["x"] == "CREATE VIEW x AS SELECT b FROM s"
    assert texts["y"] == "CREATE VIEW y AS SELECT c FROM s"
    assert await pair.asked("SELECT * FROM w") == [("x!",), ("y!",)]
