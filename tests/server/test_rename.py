"""RENAME COLUMN and DROP COLUMN through a server: a stream whose columns were renamed, dropped and
added answers as one that never changed; what was registered before goes on."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from datastem.instants import DAY, SECOND
from psoup.server.calls.define import define
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from tests.server.conftest import Start
from tests.server.test_keyed import answer_of
from tests.support.lengths import short_first
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ServerProcess, detail, ipc, rows_of

START = 1_700_000_000 * SECOND


class World:
    """Streams with the same rows: the columns of `changed` are renamed, dropped and added; `same`
    has a column for each of them from the beginning. `labels` are those of `changed` now, by the
    column of `same`; `former` has labels that batches may use still."""

    def __init__(self, path: Path, options: str, seed: int) -> None:
        self.path, self.options, self.dice = path, options, random.Random(seed)
        self.clock = START
        self.labels = {"c0": "c0", "c1": "c1", "c2": "c2"}
        self.former: dict[str, list[str]] = {}
        self.count, self.sequence = 3, 0
        self.handles: list[tuple[bytes, bytes, set[str]]] = []
        self.engine: HandMadeEngine | None = None
        self.sent: list[tuple[int, pa.Table]] = []

    @asynccontextmanager
    async def server(self) -> AsyncIterator[Core]:
        store = Store.open(self.path, create=True, sync=False)
        core = Core(store, Settings(self.path), clock=lambda: self.clock)
        await core.start()
        self.engine = self.engine or HandMadeEngine(store)
        try:
            yield core
        finally:
            await core.stop()

    async def define(self, core: Core, sql: str) -> pb.DefineResponse:
        return await define(core, new_call(), pb.DefineRequest(sql=sql))

    async def create(self, core: Core) -> None:
        columns = "id BIGINT, c0 BIGINT, c1 BIGINT, c2 BIGINT"
        await self.define(core, f"CREATE STREAM changed ({columns}) {self.options}")
        more = ", ".join(f"c{number} BIGINT" for number in range(3, 20))
        await self.define(core, f"CREATE STREAM same ({columns}, {more}) {self.options}")

    async def alter(self, core: Core) -> None:
        kind, self.count = self.dice.choice(("rename", "rename", "add", "drop")), self.count + 1
        name = self.dice.choice(sorted(self.labels))
        label = f"n{self.count}"
        if kind == "rename":
            await self.define(
                core, f"ALTER STREAM changed RENAME COLUMN {self.labels[name]} TO {label}"
            )
            self.former.setdefault(name, []).append(self.labels[name])
            self.labels[name] = label
        elif kind == "add" and self.count < 20:
            column = f"c{self.count - 1}"
            await self.define(core, f"ALTER STREAM changed ADD COLUMN {label} BIGINT")
            self.labels[column] = label
        elif len(self.labels) > 1:
            await self.define(core, f"ALTER STREAM changed DROP COLUMN {self.labels[name]} CASCADE")
            del self.labels[name]
            self.handles = [entry for entry in self.handles if name not in entry[2]]

    async def publish(self, core: Core) -> None:
        self.clock += self.dice.choice((1, SECOND))
        rows = self.dice.randrange(1, 5)
        ids = pa.array([self.dice.randrange(5) for _ in range(rows)])
        values = {
            name: pa.array([self.dice.choice((None, 1, 2, 3)) for _ in range(rows)], pa.int64())
            for name in self.labels
        }
        names = [
            self.dice.choice([self.labels[name], *self.former.get(name, ())]) for name in values
        ]
        table = pa.table([ids, *values.values()], names=["id", *names])
        blank = pa.nulls(rows, pa.int64())
        whole = {"id": ids} | {f"c{n}": values.get(f"c{n}", blank) for n in range(20)}
        self.sequence += 1
        self.sent.append((self.sequence, table))
        await self.send(core, "changed", self.sequence, table)
        await self.send(core, "same", self.sequence, pa.table(whole))
        # Any of the last batches again, under the names that it had then.
        sequence, table = self.dice.choice(self.sent[-20:])
        again = await self.send(core, "changed", sequence, table)
        assert again.duplicate

    async def send(
        self, core: Core, stream: str, sequence: int, table: pa.Table
    ) -> pb.PublishResponse:
        request = pb.PublishRequest(
            stream=stream, publisher=stream, sequence=sequence, arrow=ipc(table)
        )
        return await publish(core, new_call(), request)

    async def register(self, core: Core) -> None:
        name, other = self.dice.choice(sorted(self.labels)), self.dice.choice(sorted(self.labels))
        sql = self.dice.choice(
            (
                "SELECT id, {0} AS x FROM {2} WHERE {1} > 1",
                "SELECT {0} AS x, count(*) AS n FROM {2} WHERE id > 1 GROUP BY {0}",
                "SELECT id, {1} AS x, row_id FROM {2} ROWS 3 PARTITION BY {0}",
            )
        )
        pair = []
        for stream in ("changed", "same"):
            labels = self.labels if stream == "changed" else {name: name, other: other}
            text = sql.format(labels[name], labels[other], stream)
            registered, *_ = await register(core, new_call(), pb.RegisterRequest(sql=text))
            pair.append(registered.handles[0])
        self.handles.append((pair[0], pair[1], {name, other}))

    async def check(self, core: Core) -> None:
        for changed, same, _ in self.handles:
            assert repr(await invoked(core, changed)) == repr(await invoked(core, same))
        columns = ", ".join(f"{label} AS {name}" for name, label in self.labels.items())
        plain = ", ".join(self.labels)
        one = await asked(core, f"SELECT id, {columns}, row_id FROM changed")
        assert one == await asked(core, f"SELECT id, {plain}, row_id FROM same")


async def invoked(core: Core, handle: bytes) -> list[tuple[Any, ...]]:
    request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW)
    return await answer_of(invoke(core, new_call(), request))


async def asked(core: Core, sql: str) -> list[tuple[Any, ...]]:
    request = pb.AskRequest(sql=sql, encoding=pb.ENCODING_ARROW)
    return await answer_of(ask(core, new_call(), request))


@pytest.mark.parametrize("options", ["", "KEY (id)"])
@pytest.mark.parametrize("seed", short_first(range(8)))
async def test_oracle_a_stream_that_changed_is_one_that_did_not(
    tmp_path: Path, options: str, seed: int
) -> None:
    world = World(tmp_path / "store", options, seed)
    for life in range(4):
        async with world.server() as core:
            if not life:
                await world.create(core)
            for _ in range(6):
                if world.dice.random() < 0.6:
                    await world.alter(core)
                if world.dice.random() < 0.5:
                    await world.register(core)
                if world.dice.random() < 0.3:
                    assert world.engine is not None
                    world.engine.step()
                    await core.follower.refresh()
                await world.publish(core)
                await world.check(core)


def refused(server: ServerProcess, sql: str) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as problem:
        server.define(sql)
    return detail(problem.value).reason, str(problem.value.details())


def test_what_was_registered_goes_on(server: ServerProcess) -> None:
    server.define("CREATE STREAM s (id BIGINT, a TEXT) KEY (id)")
    server.define("CREATE VIEW v AS SELECT id, a FROM s WHERE a <> 'no'")
    server.publish("s", pa.table({"id": [1], "a": ["x"]}))
    text = "SELECT * FROM s WHERE a LIKE 'x%'"
    mine = server.register(text, client_key="mine")
    over_view = server.register("SELECT a FROM v").handle
    answer = server.define("ALTER STREAM s RENAME COLUMN a TO b")
    assert [column.name for column in answer.stream.columns] == ["id", "b"]
    assert "b TEXT" in answer.stream.sql
    assert answer.notes[0].startswith("batches may use a for b until")
    server.publish("s", pa.table({"id": [2], "b": ["xy"]}))
    server.publish("s", rows=rows_of(["id", "a"], [pb.Value(bigint=3), pb.Value(text="xz")]))
    rows = [{"id": 1, "a": "x"}, {"id": 2, "a": "xy"}, {"id": 3, "a": "xz"}]
    assert server.invoke(mine.handle)[1].to_pylist() == rows
    assert server.invoke(over_view)[1].to_pylist() == [{"a": row["a"]} for row in rows]
    assert server.ask("SELECT * FROM v")[1].to_pylist() == rows
    assert server.ask("SELECT b FROM s WHERE b = 'x'")[1].to_pylist() == [{"b": "x"}]
    # The same text and client key is the same registration, also to replace.
    for replace in (False, True):
        again = server.register(text, client_key="mine", replace=replace)
        assert again.handle == mine.handle and not again.created
    with pytest.raises(grpc.RpcError) as unknown:
        server.register(text, client_key="another")
    assert detail(unknown.value).hint == "a was renamed to b"
    # Explain and the registration's windows use the name of today.
    window = server.register("SELECT id FROM s ROWS 1 PARTITION BY b").handle
    request = pb.DescribeRegistrationRequest(tenant=server.tenant, handle=window)
    registration = server.stub.DescribeRegistration(request)
    assert "PARTITION BY b" in registration.legs[0].window
    explained = server.stub.Explain(pb.ExplainRequest(tenant=server.tenant, handle=mine.handle))
    assert "b" in explained.legs[0].factors[0].text
    assert explained.operator.inputs[0].detail.endswith("WHERE b LIKE 'x%'")


def test_names_in_use_and_former_ones(server: ServerProcess) -> None:
    server.define("CREATE STREAM s (id BIGINT, a TEXT, x TEXT) KEY (id)")
    assert refused(server, "ALTER STREAM s RENAME COLUMN a TO x")[0] == "COLUMN_EXISTS"
    assert refused(server, "ALTER STREAM s RENAME COLUMN a TO a")[0] == "COLUMN_EXISTS"
    assert refused(server, "ALTER STREAM s RENAME COLUMN no TO b")[0] == "UNKNOWN_COLUMN"
    assert refused(server, "ALTER STREAM s DROP COLUMN no")[0] == "UNKNOWN_COLUMN"
    assert refused(server, "ALTER STREAM s DROP COLUMN id")[0] == "NOT_SUPPORTED"
    server.define("ALTER STREAM s RENAME COLUMN id TO key")
    server.define("ALTER STREAM s RENAME COLUMN a TO b")
    reason, text = refused(server, "ALTER STREAM s ADD COLUMN a BIGINT")
    assert reason == "COLUMN_EXISTS" and "batches may use the name until" in text
    assert refused(server, "ALTER STREAM s RENAME COLUMN x TO a")[0] == "COLUMN_EXISTS"
    with pytest.raises(grpc.RpcError) as problem:
        server.publish("s", pa.table({"key": [1], "a": ["p"], "b": ["q"], "x": ["r"]}))
    assert detail(problem.value).reason == "DUPLICATE_COLUMN"
    # Back to what it was, and on.
    server.define("ALTER STREAM s RENAME COLUMN b TO a")
    server.publish("s", pa.table({"id": [1], "b": ["p"], "x": ["r"]}))
    server.define("ALTER STREAM s DROP COLUMN a ACCEPT OLD NAME FOR 0 DAYS")
    server.define("ALTER STREAM s ADD COLUMN a BIGINT DEFAULT 7")
    answer = server.ask("SELECT * FROM s")[1].to_pylist()
    assert answer == [{"key": 1, "x": "r", "a": 7}]
    server.publish("s", pa.table({"key": [2], "x": ["r"], "a": [8]}))
    assert server.ask("SELECT a FROM s WHERE a > 7")[1].to_pylist() == [{"a": 8}]


def test_a_column_in_use_is_not_dropped(server: ServerProcess) -> None:
    server.define("CREATE STREAM s (id BIGINT, a TEXT, b TEXT, c TEXT) KEY (id)")
    server.define("CREATE STREAM t (name TEXT)")
    server.publish("s", pa.table({"id": [1], "a": ["x"], "b": ["y"], "c": ["z"]}))
    by_where = server.register("SELECT id FROM s WHERE a = 'x'", client_key="where").handle
    star = server.register("SELECT * FROM s", client_key="star").handle
    join = "SELECT t.name FROM s JOIN t ON s.a = t.name"
    joined = server.register(join, client_key="join").handle
    apart = server.register("SELECT b FROM s ROWS 1 PARTITION BY a", client_key="part").handle
    other = server.register("SELECT b FROM s WHERE b = 'y'", client_key="other").handle
    server.define("CREATE VIEW inner_view AS SELECT id, b FROM s WHERE a IS NOT NULL")
    server.define("CREATE VIEW outer_view AS SELECT id FROM inner_view")
    server.define("CREATE VIEW shows AS SELECT id, a FROM s")
    server.define("CREATE VIEW over_shows AS SELECT id FROM shows")
    server.define("CREATE VIEW unrelated AS SELECT id, b FROM s")
    server.define("CREATE POLICY p ON s USING (a <> claim('tenant') AND c = c)")
    reason, text = refused(server, "ALTER STREAM s DROP COLUMN a")
    assert reason == "IN_USE"
    for name in ("where", "star", "join", "part", "inner_view", "outer_view", "policy p"):
        assert name in text
    assert "other" not in text and "unrelated" not in text
    ended = server.define("ALTER STREAM s DROP COLUMN a CASCADE").ended
    assert ended.registration_count == 4 and ended.policies == ["p"]
    assert sorted(ended.views) == ["inner_view", "outer_view", "over_shows", "shows"]
    for handle in (by_where, star, joined, apart):
        with pytest.raises(grpc.RpcError) as problem:
            server.invoke(handle)
        assert detail(problem.value).reason == "UNKNOWN_HANDLE"
    assert server.invoke(other)[1].to_pylist() == [{"b": "y"}]
    # Whoever brings it is not refused; what is brought is left out.
    first = server.publish(
        "s", pa.table({"id": [2], "a": ["q"], "b": ["y"], "c": ["z"]}), publisher="p", sequence=1
    )
    assert first.row_count == 1
    server.publish("s", rows=rows_of(["id", "b", "c"], [pb.Value(bigint=3)] + [pb.Value()] * 2))
    assert [row["id"] for row in server.ask("SELECT * FROM s")[1].to_pylist()] == [1, 2, 3]
    with pytest.raises(grpc.RpcError) as problem:
        server.publish("s", pa.table({"id": [2], "a": [1], "b": ["y"], "c": ["z"]}))
    assert detail(problem.value).reason == "WRONG_TYPE"
    with pytest.raises(grpc.RpcError) as problem:
        server.ask("SELECT a FROM s")
    assert detail(problem.value).hint == "a was dropped from s"


def test_repeats_patches_and_deletes_on_both_sides_of_a_drop(server: ServerProcess) -> None:
    server.define("CREATE STREAM s (id BIGINT, a TEXT, b TEXT) KEY (id)")
    batches: list[dict[str, Any]] = [
        {"id": [1], "a": ["x"], "b": ["y"]},
        {"id": [1], "a": ["z"], "_op": ["patch"]},
        {"id": [1], "a": ["w"], "b": ["y"], "_expected": [1]},
        {"id": [1], "_op": ["delete"]},
        {"id": [2], "a": pa.nulls(1, pa.string()), "b": ["y"]},
    ]
    tables = [pa.table(batch) for batch in batches]
    for number, table in enumerate(tables, 1):
        server.publish("s", table, publisher="p", sequence=number)
    server.define("ALTER STREAM s RENAME COLUMN b TO c")
    server.define("ALTER STREAM s DROP COLUMN a")
    for number, table in enumerate(tables, 1):
        assert server.publish("s", table, publisher="p", sequence=number).duplicate
    with pytest.raises(grpc.RpcError) as problem:
        server.publish("s", tables[0].set_column(1, "a", [["X"]]), publisher="p", sequence=1)
    assert detail(problem.value).reason == "SEQUENCE_REUSED"
    server.publish("s", pa.table({"id": [2], "b": ["new"], "_op": ["patch"]}))
    assert server.ask("SELECT * FROM s")[1].to_pylist() == [{"id": 2, "c": "new"}]


async def test_former_names_end(tmp_path: Path) -> None:
    world = World(tmp_path / "store", "", 0)
    async with world.server() as core:
        await world.create(core)
        await world.define(
            core, "ALTER STREAM changed RENAME COLUMN c0 TO n ACCEPT OLD NAME FOR 2 DAYS"
        )
        table = pa.table({name: [1] for name in ("id", "c0", "c1", "c2")})
        await world.send(core, "changed", 1, table)
        world.clock += 2 * DAY
        with pytest.raises(Exception, match="is missing"):
            await world.send(core, "changed", 2, table)
        await world.define(core, "ALTER STREAM changed ADD COLUMN c0 TEXT")
        assert await asked(core, "SELECT n, c0 FROM changed") == [(1, None)]


def test_rows_in_files_and_after_a_restart(start: Start) -> None:
    server = start()
    server.define("CREATE STREAM s (id BIGINT, a TEXT)")
    server.publish("s", pa.table({"id": [1], "a": ["x"]}))
    server.define("ALTER STREAM s RENAME COLUMN a TO b")
    server.define("ALTER STREAM s DROP COLUMN id")
    server.publish("s", pa.table({"b": ["y"]}))
    server.kill()
    server = start()
    assert server.ask("SELECT * FROM s")[1].to_pylist() == [{"b": "x"}, {"b": "y"}]
