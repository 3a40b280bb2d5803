"""Keyed streams through a server: the current rows, whatever came late, was deleted, or is asked
about the past; with epochs and restarts in between."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from datastem.instants import SECOND, from_micros
from datastem.schema import StreamSchema
from psoup.answers.replicas import keyed_history as server_keyed
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.server.wire.values import from_instant
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, bind_query, parse_statement
from tests.oracle import naive_answer
from tests.oracle.keyed import Keyed
from tests.support.lengths import short_first
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ServerProcess, detail, ipc, rows_of

START = 1_700_000_000 * SECOND
SELECTS = (
    "SELECT place, free, row_id FROM s WHERE free > 2",
    "SELECT count(*) AS n, sum(free) AS total, last(place) AS newest FROM s",
    "SELECT zone, count(*) AS n, max(free) AS most FROM s WHERE free <> 5 GROUP BY zone",
    "SELECT row_id, ts FROM s ORDER BY free DESC NULLS LAST, row_id LIMIT 3",
)
WINDOWS = (
    "UNBOUNDED",
    "RANGE 5 SECONDS",
    "RANGE 20 SECONDS SLIDE 7 SECONDS",
    "BEGIN NOW - 30 SECONDS END NOW - 3 SECONDS",
    f"BEGIN '{from_micros(START):%Y-%m-%d %H:%M:%S}' END NOW",
    "ROWS 3",
    "ROWS 1 PARTITION BY zone",
    "BEGIN ROW LAST - 9 END ROW LAST",
    "BEGIN ROW 4 END ROW 20",
)
COLUMNS = [
    ("place", pa.string()),
    ("zone", pa.string()),
    ("free", pa.int64()),
    ("at", pa.timestamp("us", "UTC")),
]


class World:
    """A store, its clock, and all that was accepted."""

    def __init__(self, path: Path, options: str, seed: int) -> None:
        self.path = path
        columns = "place TEXT, zone TEXT, free BIGINT, at TIMESTAMP"
        self.sql = f"CREATE STREAM s ({columns}) KEY (place) {options}"
        statement = parse_statement(self.sql)
        assert isinstance(statement, CreateStream)
        self.schema: StreamSchema = statement.schema
        self.clock = START
        self.dice = random.Random(seed)
        self.rows: list[dict[str, Any]] = []
        self.engine: HandMadeEngine | None = None

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

    async def publish(self, core: Core) -> None:
        """A few rows, some late, some deletes, some at one instant."""
        self.clock += self.dice.choice((1, 1, SECOND, 4 * SECOND))
        sent = [self._row() for _ in range(self.dice.randrange(1, 6))]
        table = pa.Table.from_pylist(sent, pa.schema([*COLUMNS, ("_op", pa.string())]))
        done = await publish(core, new_call(), pb.PublishRequest(stream="s", arrow=ipc(table)))
        assert done.first_row_id == len(self.rows)
        for row in sent:
            ts = self.clock if self.schema.ordered_by is None else row["ts"]
            self.rows.append({**row, "ts": ts, "row_id": len(self.rows), "stamp": self.clock})

    def _row(self) -> dict[str, Any]:
        late = self.dice.choice((0, 0, 0, 1, 5, 30)) * SECOND
        ts = self.clock - self.clock % SECOND - late
        place = self.dice.choice("abcdef")
        if self.dice.random() < 0.15:
            blank = {"zone": None, "free": None}
            return {"place": place, **blank, "at": from_micros(ts), "ts": ts, "_op": "delete"}
        zone = self.dice.choice(("n", "s", None))
        values = {"zone": zone, "free": self.dice.choice((None, *range(9)))}
        op = self.dice.choice(("row", None))
        return {"place": place, **values, "at": from_micros(ts), "ts": ts, "_op": op}

    @property
    def reached(self) -> int:
        if self.schema.ordered_by is None:
            return self.clock
        return int(max(row["ts"] for row in self.rows))

    async def check(self, core: Core, handles: dict[str, bytes]) -> None:
        for select in SELECTS:
            window = self.dice.choice(WINDOWS)
            as_of = self.clock - self.dice.choice((0, 1, SECOND, 9 * SECOND, 50 * SECOND))
            await self.compare(core, handles[select], select, window, self.reached, None)
            await self.compare(core, handles[select], select, window, as_of, "then")
            await self.compare(core, handles[select], select, window, as_of, "today")

    async def compare(
        self, core: Core, handle: bytes, select: str, window: str, now: int, knowledge: str | None
    ) -> None:
        fields: dict[str, Any] = {} if knowledge is None else {"as_of": from_instant(now)}
        if knowledge == "today":
            fields["knowledge"] = pb.KNOWLEDGE_TODAY
        high = None
        if knowledge == "then":
            high = sum(1 for row in self.rows if row["stamp"] <= now)
        sql = f"{select} {window}"
        query = bind_query(sql, {"s": self.schema}.get)
        keyed = Keyed(("place",), high, self.reached)
        expected = naive_answer(query, self.rows, now, self.schema.retain, keyed)
        arrow = pb.ENCODING_ARROW
        request = pb.InvokeRequest(handle=handle, window=window, encoding=arrow, **fields)
        invoked = await answer_of(invoke(core, new_call(), request))
        answer = await answer_of(
            ask(core, new_call(), pb.AskRequest(sql=sql, encoding=arrow, **fields))
        )
        assert invoked == answer == expected, (sql, knowledge, now - START)


async def answer_of(parts: AsyncIterator[pb.InvokeResponse | bytes]) -> list[tuple[Any, ...]]:
    """Of messages as they are, or as they go on the wire."""
    messages = [
        pb.InvokeResponse.FromString(part) if isinstance(part, bytes) else part
        async for part in parts
    ]
    row_parts = messages[1:]
    table = pa.ipc.open_stream(b"".join(part.arrow for part in row_parts)).read_all()
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("options", ["", "ORDERED BY at", "ORDERED BY at RETAIN 20 SECONDS"])
@pytest.mark.parametrize("seed", short_first(range(2)))
async def test_oracle_current_rows(
    tmp_path: Path, options: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_keyed, "_PRUNE_SLACK_ROWS", 0)
    world = World(tmp_path / "store", options, seed)
    handles: dict[str, bytes] = {}
    for life in range(3):
        async with world.server() as core:
            if not life:
                await core.appender.submit(Define("main", "main", world.schema))
                for select in SELECTS:
                    done, *_ = await register(core, new_call(), pb.RegisterRequest(sql=select))
                    handles[select] = done.handles[0]
            for _ in range(5):
                await world.publish(core)
                await world.check(core, handles)
                if world.dice.random() < 0.3:
                    assert world.engine is not None
                    world.engine.step()
                    await core.follower.refresh()
                    await world.check(core, handles)


# ---- over the wire

PARKING = "CREATE STREAM parking (place TEXT, free BIGINT) KEY (place)"


def place(name: str, free: int | None, op: str | None = None) -> list[pb.Value]:
    value = pb.Value() if free is None else pb.Value(bigint=free)
    return [pb.Value(text=name), value, pb.Value() if op is None else pb.Value(text=op)]


def test_a_row_replaces_and_a_delete_ends(server: ServerProcess) -> None:
    stream = server.define(PARKING).stream
    assert list(stream.key) == ["place"]
    assert "KEY (place)" in stream.sql
    query = server.register("SELECT place, free FROM parking").handle
    names = ["place", "free", "_op"]
    server.publish("parking", rows=rows_of(names, place("a", 5), place("b", 7, "row")))
    assert server.values(query) == [["a", 5], ["b", 7]]
    server.publish("parking", rows=rows_of(names, place("a", 4)))
    assert server.values(query) == [["b", 7], ["a", 4]]
    server.publish("parking", pa.table({"place": ["b"], "_op": ["delete"]}))
    assert server.values(query) == [["a", 4]]
    server.publish("parking", pa.table({"place": ["b"], "free": [1]}))
    assert server.values(query) == [["a", 4], ["b", 1]]
    explained = server.stub.Explain(pb.ExplainRequest(handle=query, tenant=server.tenant))
    assert explained.run.current_rows == 2


@pytest.mark.parametrize(
    ("sent", "reason", "row"),
    [
        (
            rows_of(["place", "free", "_op"], place("a", 1), place("b", 1, "gone")),
            "BAD_OPERATION",
            1,
        ),
        (rows_of(["place", "free"], [pb.Value(), pb.Value(bigint=1)]), "NULL_KEY", 0),
        (rows_of(["free", "_op"], [pb.Value(), pb.Value(text="delete")]), "MISSING_COLUMN", -1),
        (rows_of(["place"], [pb.Value(text="a")]), "MISSING_COLUMN", -1),
        (
            rows_of(["place", "_op"], *[[pb.Value(text="a"), pb.Value(text=o)] for o in ("row",)]),
            "MISSING_COLUMN",
            -1,
        ),
    ],
)
def test_what_is_refused(server: ServerProcess, sent: pb.Rows, reason: str, row: int) -> None:
    server.define(PARKING)
    with pytest.raises(grpc.RpcError) as caught:
        server.publish("parking", rows=sent)
    assert (detail(caught.value).reason, detail(caught.value).row) == (reason, row)


def test_a_stream_without_a_key_takes_no_delete(server: ServerProcess) -> None:
    server.define("CREATE STREAM plain (place TEXT, free BIGINT)")
    names = ["place", "free", "_op"]
    server.publish("plain", rows=rows_of(names, place("a", 5, "row")))
    with pytest.raises(grpc.RpcError) as caught:
        server.publish("plain", rows=rows_of(names, place("a", 5, "delete")))
    problem = detail(caught.value)
    assert problem.reason == "DELETE_WITHOUT_KEY"
    assert "create one with KEY (column)" in problem.hint


def test_the_digest_covers_what_rows_do(server: ServerProcess) -> None:
    """A repeated sequence is the same batch only where it does the same."""
    server.define(PARKING)
    names = ["place", "free", "_op"]
    identity = {"publisher": server.tenant, "sequence": 1}
    server.publish("parking", rows=rows_of(names, place("a", 5)), **identity)
    again = server.publish("parking", rows=rows_of(names, place("a", 5, "row")), **identity)
    assert again.duplicate
    with pytest.raises(grpc.RpcError) as caught:
        server.publish("parking", rows=rows_of(names, place("a", 5, "delete")), **identity)
    assert detail(caught.value).reason == "SEQUENCE_REUSED"


def test_an_instant_before_the_retention_says_so(server: ServerProcess) -> None:
    server.define("CREATE STREAM k (a BIGINT, at TIMESTAMP) KEY (a) ORDERED BY at RETAIN 1 HOUR")
    hours = [from_micros(START + hour * 3600 * SECOND) for hour in range(4)]
    rows = [{"a": 1, "at": hours[0]}, {"a": 2, "at": hours[0]}, {"a": 1, "at": hours[3]}]
    schema = pa.schema([("a", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    server.publish("k", pa.Table.from_pylist(rows, schema))
    query = server.register("SELECT a, row_id FROM k BEGIN NOW - 1 DAY END NOW").handle
    header, table = server.invoke(query)
    assert (table["row_id"].to_pylist(), list(header.notes)) == ([1, 2], [])
    today = {"knowledge": pb.KNOWLEDGE_TODAY}
    header, table = server.invoke(query, as_of=from_instant(START + 9000 * SECOND), **today)
    assert (table["row_id"].to_pylist(), list(header.notes)) == ([0, 1], [])
    header, table = server.invoke(query, as_of=from_instant(START + 60 * SECOND), **today)
    assert table["row_id"].to_pylist() == [0, 1]
    assert "before the retention" in header.notes[0]
