"""ALTER STREAM through a server: a stream whose columns were added one by one is that which was
made whole; what exists stays as it was; RETAIN and AHEAD hold from then on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from datastem.instants import SECOND
from psoup.server.calls.define import define
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.server.conftest import Start
from tests.server.test_keyed import answer_of
from tests.support.lengths import short_first
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ServerProcess, detail, ipc, rows_of
from tests.support.server.syncing import begin_of, recharge

START = 1_700_000_000 * SECOND
# Name, type, default as written, default as a value, other values.
ADDED: tuple[tuple[str, str, str, Any, tuple[Any, ...]], ...] = (
    ("venue", "TEXT", "", None, ("xetra", "lse", "")),
    ("fee", "DOUBLE", "DEFAULT 0", 0.0, (1.5, -0.0, None)),
    ("lots", "BIGINT", "DEFAULT -3", -3, (7, None)),
    ("firm", "BOOLEAN", "DEFAULT TRUE", True, (False, None)),
    ("tick", "DECIMAL(6,2)", "DEFAULT 0.25", Decimal("0.25"), (Decimal("1.00"), None)),
    ("day", "DATE", "DEFAULT DATE '2026-01-02'", date(2026, 1, 2), (date(1999, 9, 9),)),
    ("seen", "TIMESTAMP", "", None, (datetime(2026, 1, 2, 3, tzinfo=UTC),)),
)
FIELDS = {
    "TEXT": pa.string(),
    "DOUBLE": pa.float64(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DECIMAL(6,2)": pa.decimal128(6, 2),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
CONDITIONS = {
    "venue": ("venue IS NULL", "venue = 'xetra'", "venue LIKE 'x%'"),
    "fee": ("fee = 0", "fee > 1", "fee IS NULL"),
    "lots": ("lots = -3", "lots > 0"),
    "firm": ("firm", "NOT firm"),
    "tick": ("tick < 1", "tick = 0.25"),
    "day": ("day = DATE '2026-01-02'", "day < DATE '2000-01-01'"),
    "seen": ("seen IS NULL", "seen > TIMESTAMP '2026-01-01'"),
}


class World:
    """Two streams with the same rows: `grown` gets its columns one by one, `made` has them all."""

    def __init__(self, path: Path, options: str, seed: int) -> None:
        self.path, self.options = path, options
        self.dice = random.Random(seed)
        self.clock = START
        self.added: list[str] = []
        self.handles: list[tuple[bytes, bytes]] = []
        self.queries: list[str] = []
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

    async def define(self, core: Core, sql: str) -> pb.DefineResponse:
        return await define(core, new_call(), pb.DefineRequest(sql=sql))

    async def create(self, core: Core) -> None:
        columns = "id BIGINT, price DOUBLE"
        whole = "".join(f", {name} {type_}" for name, type_, *_ in ADDED)
        await self.define(core, f"CREATE STREAM grown ({columns}) {self.options}")
        await self.define(core, f"CREATE STREAM made ({columns}{whole}) {self.options}")

    async def alter(self, core: Core) -> None:
        if len(self.added) == len(ADDED):
            return
        name, type_, default, _, _ = ADDED[len(self.added)]
        stream = (
            await self.define(core, f"ALTER STREAM grown ADD COLUMN {name} {type_} {default}")
        ).stream
        self.added.append(name)
        assert [column.name for column in stream.columns][2:] == self.added
        assert all(column.optional for column in stream.columns[2:])

    async def publish(self, core: Core) -> None:
        self.clock += self.dice.choice((1, SECOND))
        count = self.dice.randrange(1, 5)
        column_count = len(self.added)
        rows = []
        for _ in range(count):
            row: dict[str, Any] = {
                "id": self.dice.randrange(6), "price": self.dice.choice((1.0, 2.5, None))
            }  # fmt: skip
            for place, (name, _, _, default, values) in enumerate(ADDED):
                changed = place < column_count and self.dice.random() < 0.4
                row[name] = self.dice.choice(values) if changed else default
            rows.append(row)
        schema = [("id", pa.int64()), ("price", pa.float64())]
        schema += [(name, FIELDS[type_]) for name, type_, *_ in ADDED]
        whole = pa.Table.from_pylist(rows, pa.schema(schema))
        sent = whole.select([0, 1, *range(2, 2 + column_count)])
        # A publisher that does not know a column leaves it out, if all its rows have the default.
        for name, _, _, default, _ in ADDED[:column_count]:
            same = all(repr(row[name]) == repr(default) for row in rows)
            if same and self.dice.random() < 0.7:
                sent = sent.drop_columns([name])
        ids = [
            (
                await publish(core, new_call(), pb.PublishRequest(stream=stream, arrow=ipc(table)))
            ).first_row_id
            for stream, table in (("grown", sent), ("made", whole))
        ]
        assert ids[0] == ids[1]

    def question(self) -> str:
        """A query over all columns that `grown` has by now; `{}` is for the stream's name."""
        names = ["id", "price", *self.added]
        conditions = [condition for name in self.added for condition in CONDITIONS[name]]
        where = f"WHERE {self.dice.choice(conditions)}" if conditions else "WHERE price > 1"
        if self.dice.random() < 0.3:
            group = self.dice.choice(names)
            return f"SELECT {group}, count(*) AS n FROM {{}} {where} GROUP BY {group}"
        window = self.dice.choice(("", "RANGE 5 SECONDS", "ROWS 4"))
        return f"SELECT {', '.join(names)}, row_id FROM {{}} {where} {window}"

    async def register(self, core: Core) -> None:
        sql = self.question()
        pair = []
        for stream in ("grown", "made"):
            request = pb.RegisterRequest(sql=sql.format(stream))
            done, *_ = await register(core, new_call(), request)
            pair.append(done.handles[0])
        self.handles.append((pair[0], pair[1]))

    async def check(self, core: Core) -> None:
        sql = self.question()
        answers = [
            await answer_of(
                ask(
                    core,
                    new_call(),
                    pb.AskRequest(sql=sql.format(stream), encoding=pb.ENCODING_ARROW),
                )
            )
            for stream in ("grown", "made")
        ]
        # Groups come in the order of their first rows, which are the same.
        assert repr(answers[0]) == repr(answers[1]), sql
        for pair in self.handles:
            answers = [
                await answer_of(
                    invoke(
                        core,
                        new_call(),
                        pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW),
                    )
                )
                for handle in pair
            ]
            assert repr(answers[0]) == repr(answers[1])


@pytest.mark.parametrize("options", ["", "KEY (id)"])
@pytest.mark.parametrize("seed", short_first(range(6)))
async def test_oracle_a_stream_that_grew_is_that_which_was_made_whole(
    tmp_path: Path, options: str, seed: int
) -> None:
    world = World(tmp_path / "store", options, seed)
    for life in range(4):
        async with world.server() as core:
            if not life:
                await world.create(core)
            for _ in range(8):
                step = world.dice.random()
                if step < 0.35:
                    await world.alter(core)
                elif step < 0.5:
                    await world.register(core)
                elif step < 0.65:
                    assert world.engine is not None
                    world.engine.step()
                    await core.follower.refresh()
                await world.publish(core)
                await world.check(core)
    assert len(world.added) > 2


# ---- publishing


def test_a_publish_is_repeated_after_an_alter(server: ServerProcess) -> None:
    """Publish, lose the answer, ALTER, publish again: a duplicate, whichever side knows the new
    column."""
    server.define("CREATE STREAM s (a BIGINT)")
    identity = {"publisher": "p", "sequence": 1}
    first = server.publish("s", pa.table({"a": [1, 2]}), **identity)
    server.define("ALTER STREAM s ADD COLUMN fee DOUBLE DEFAULT 0")
    with_column = pa.table({"a": [1, 2], "fee": [0.0, 0.0]})
    for table in (pa.table({"a": [1, 2]}), with_column):
        again = server.publish("s", table, **identity)
        assert again.duplicate and not again.unverified
        assert (again.position, again.first_row_id) == (first.position, 0)
    with pytest.raises(grpc.RpcError) as refused:
        server.publish("s", pa.table({"a": [1, 2], "fee": [0.0, 1.0]}), **identity)
    assert detail(refused.value).reason == "SEQUENCE_REUSED"
    # The other way: the first has the column, the repeat does not.
    server.publish("s", with_column, publisher="p", sequence=2)
    assert server.publish("s", pa.table({"a": [1, 2]}), publisher="p", sequence=2).duplicate
    assert server.ask("SELECT count(*) AS n FROM s")[1].to_pylist() == [{"n": 4}]


def test_typed_rows_may_leave_the_column_out(server: ServerProcess) -> None:
    server.define("CREATE STREAM s (a BIGINT)")
    server.publish("s", rows=rows_of(["a"], [pb.Value(bigint=1)]))
    server.define("ALTER STREAM s ADD COLUMN b TEXT DEFAULT 'old'")
    server.publish("s", rows=rows_of(["a"], [pb.Value(bigint=2)]))
    value = [pb.Value(text="new"), pb.Value(bigint=3)]
    server.publish("s", rows=rows_of(["b", "a"], value, [pb.Value(), pb.Value(bigint=4)]))
    query = server.register("SELECT a, b FROM s").handle
    assert server.values(query) == [[1, "old"], [2, "old"], [3, "new"], [4, None]]
    with pytest.raises(grpc.RpcError) as refused:
        server.publish("s", rows=rows_of(["b"], [pb.Value(text="x")]))
    assert detail(refused.value).reason == "MISSING_COLUMN"


async def test_batches_under_way_survive_an_alter(tmp_path: Path) -> None:
    """A stream of batches goes on while the column is added in between."""
    world = World(tmp_path / "store", "", 0)
    async with world.server() as core:
        await world.create(core)
        table = ipc(pa.table({"id": [1], "price": [2.0]}))

        async def many() -> None:
            for _ in range(30):
                request = pb.PublishRequest(stream="grown", arrow=table)
                await publish(core, new_call(), request)

        async def alter() -> None:
            for _ in ADDED:
                await world.alter(core)
                await asyncio.sleep(0)

        await asyncio.gather(many(), many(), alter())
        sql = "SELECT count(*) AS n, count(fee) AS fees, sum(lots) AS lots FROM grown"
        request = pb.AskRequest(sql=sql, encoding=pb.ENCODING_ARROW)
        assert await answer_of(ask(core, new_call(), request)) == [(60, 60, -180)]


# ---- what exists stays


def test_registrations_views_and_policies_stay_as_they_were_bound(server: ServerProcess) -> None:
    server.define("CREATE STREAM s (a BIGINT)")
    server.define("CREATE STREAM other (venue TEXT)")
    server.define("CREATE VIEW v AS SELECT *, a + 1 AS fee FROM s")
    server.define("CREATE VIEW both AS SELECT a, venue FROM s JOIN other ON length(venue) = a")
    server.define("CREATE VIEW united AS SELECT * FROM s UNION ALL SELECT 7 AS a FROM s")
    server.publish("s", pa.table({"a": [1]}))
    server.publish("other", pa.table({"venue": ["x"]}))
    star = server.register("SELECT * FROM s", client_key="mine").handle
    copy = Copy()
    recharge(server, star, copy)
    server.define("ALTER STREAM s ADD COLUMN fee DOUBLE DEFAULT 9")
    server.define("ALTER STREAM s ADD COLUMN venue TEXT DEFAULT 'v'")
    server.publish("s", pa.table({"a": [2], "venue": ["w"]}))
    assert server.invoke(star)[1].to_pylist() == [{"a": 1}, {"a": 2}]
    # The difference has one row: nothing is sent again.
    parts = recharge(server, star, copy)
    assert begin_of(parts).mode == pb.SYNC_MODE_UNSPECIFIED
    assert sum(len(part.rows.rows) for part in parts) == 1 and len(copy.rows) == 2
    # The same client key and text is the old registration.
    again = server.register("SELECT * FROM s", client_key="mine")
    assert again.handle == star
    # A view has the columns it was made with, for old queries and new ones.
    assert server.ask("SELECT * FROM v")[1].to_pylist() == [{"a": 1, "fee": 2}, {"a": 2, "fee": 3}]
    assert server.ask("SELECT * FROM both")[1].to_pylist() == [{"a": 1, "venue": "x"}]
    assert sorted(row["a"] for row in server.ask("SELECT * FROM united")[1].to_pylist()) == [
        1, 2, 7, 7,
    ]  # fmt: skip
    with pytest.raises(grpc.RpcError) as unknown:
        server.ask("SELECT venue FROM v")
    assert detail(unknown.value).reason == "UNKNOWN_COLUMN"
    whole = {"a": 1, "fee": 9.0, "venue": "v"}, {"a": 2, "fee": 9.0, "venue": "w"}
    assert server.ask("SELECT * FROM s")[1].to_pylist() == [*whole]
    # A view that is made now sees the columns, and none that come later.
    server.define("CREATE VIEW later AS SELECT * FROM s")
    server.define("ALTER STREAM s ADD COLUMN more TEXT")
    assert server.ask("SELECT * FROM later")[1].to_pylist() == [*whole]
    # With `replace` the text is bound again, and copies come whole.
    server.register("SELECT * FROM s", client_key="mine", replace=True)
    parts = recharge(server, star, copy)
    assert begin_of(parts).reason == pb.SYNC_REASON_REPLACED
    assert [column.name for column in begin_of(parts).columns] == ["a", "fee", "venue", "more"]


def test_a_thousandth_column_and_no_more(server: ServerProcess) -> None:
    columns = ", ".join(f"c{number} BIGINT" for number in range(998))
    server.define(f"CREATE STREAM s ({columns})")
    row = {f"c{number}": [number] for number in range(998)}
    server.publish("s", pa.table(row))
    server.define("ALTER STREAM s ADD COLUMN c998 BIGINT DEFAULT 5")
    server.define("ALTER STREAM s ADD COLUMN c999 BIGINT")
    server.publish("s", pa.table({**row, "c999": [1]}))
    answer = server.ask("SELECT c0, c998, c999 FROM s")[1].to_pylist()
    assert answer == [{"c0": 0, "c998": 5, "c999": None}, {"c0": 0, "c998": 5, "c999": 1}]
    with pytest.raises(grpc.RpcError) as refused:
        server.define("ALTER STREAM s ADD COLUMN c1000 BIGINT")
    assert detail(refused.value).reason == "TOO_MANY_COLUMNS"


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("ALTER STREAM s ADD COLUMN a BIGINT", "COLUMN_EXISTS"),
        ("ALTER STREAM s ADD COLUMN b BIGINT NOT NULL", "NOT_SUPPORTED"),
        ("ALTER STREAM s ADD COLUMN b BIGINT DEFAULT now()", "BAD_OPTION"),
        ("ALTER STREAM s SET RETAIN 0 DAYS", "BAD_OPTION"),
        ("ALTER STREAM none ADD COLUMN b BIGINT", "UNKNOWN_STREAM"),
        ("ALTER STREAM v ADD COLUMN b BIGINT", "NOT_A_STREAM"),
    ],
)
def test_what_is_refused(server: ServerProcess, sql: str, reason: str) -> None:
    server.define("CREATE STREAM s (a BIGINT)")
    server.define("CREATE VIEW v AS SELECT a FROM s")
    with pytest.raises(grpc.RpcError) as refused:
        server.define(sql)
    assert detail(refused.value).reason == reason


# ---- RETAIN and AHEAD

EVENTS = "CREATE STREAM e (n BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 10 SECONDS"


def events(*seconds: int) -> pa.Table:
    at = pa.array([START + second * SECOND for second in seconds], pa.timestamp("us", "UTC"))
    return pa.table({"n": pa.array(seconds, pa.int64()), "at": at})


def numbers(server: ServerProcess, sql: str = "SELECT n FROM e") -> list[int]:
    return [row["n"] for row in server.ask(sql)[1].to_pylist()]


def test_a_longer_retain_brings_nothing_back(server: ServerProcess) -> None:
    server.define(EVENTS)
    server.publish("e", events(0, 8, 20))
    assert numbers(server) == [20]
    with pytest.raises(grpc.RpcError) as past:
        server.register("SELECT n FROM e RANGE 30 SECONDS")
    assert detail(past.value).reason == "WINDOW_PAST_RETENTION"
    longer = server.define("ALTER STREAM e SET RETAIN 30 SECONDS")
    assert "older ones are gone" in longer.notes[0]
    # Rows of 10 s and before had left: they stay away, also for an earlier instant.
    assert numbers(server) == [20]
    server.publish("e", events(12, 35))
    assert numbers(server) == [20, 12, 35] or numbers(server) == [12, 20, 35]
    query = server.register("SELECT n FROM e RANGE 30 SECONDS").handle
    header, answer = server.invoke(query)
    assert sorted(answer.column("n").to_pylist()) == [12, 20, 35]
    assert [note for note in header.notes if "whole from 2023-11-14 22:13:30" in note]
    # When the window has passed that instant, the answer is whole.
    server.publish("e", events(41))
    header, answer = server.invoke(query)
    assert sorted(answer.column("n").to_pylist()) == [12, 20, 35, 41]
    assert not list(header.notes)


def test_a_shorter_retain_needs_cascade(server: ServerProcess) -> None:
    server.define(EVENTS)
    server.publish("e", events(0, 5, 9))
    near = server.register("SELECT n FROM e RANGE 3 SECONDS", client_key="near").handle
    far = server.register("SELECT n FROM e RANGE 8 SECONDS", client_key="far").handle
    slow = server.register(
        "SELECT n FROM e RANGE 3 SECONDS REFRESH EVERY 4 SECONDS", client_key="slow"
    ).handle
    with pytest.raises(grpc.RpcError) as refused:
        server.define("ALTER STREAM e SET RETAIN 5 SECONDS")
    problem = detail(refused.value)
    assert problem.reason == "IN_USE"
    message = refused.value.details() or ""
    assert "far of" in message and "slow of" in message and "near" not in message
    assert server.values(far) == [[5], [9]]
    done = server.define("ALTER STREAM e SET RETAIN 5 SECONDS CASCADE")
    assert {ended.client_key for ended in done.ended.registrations} == {"far", "slow"}
    assert done.ended.registration_count == 2
    assert server.values(near) == [[9]]
    for handle in (far, slow):
        with pytest.raises(grpc.RpcError) as ended_call:
            server.values(handle)
        assert detail(ended_call.value).reason == "UNKNOWN_HANDLE"
    assert numbers(server) == [5, 9]


@pytest.mark.parametrize("seconds", [5, 60])
def test_copies_come_whole_after_another_retain(server: ServerProcess, seconds: int) -> None:
    server.define(EVENTS)
    server.publish("e", events(0, 5, 9))
    query = server.register("SELECT n FROM e").handle
    copy = Copy()
    recharge(server, query, copy)
    server.define(f"ALTER STREAM e SET RETAIN {seconds} SECONDS")
    parts = recharge(server, query, copy)
    assert begin_of(parts).reason == pb.SYNC_REASON_RETENTION
    server.publish("e", events(12))
    parts = recharge(server, query, copy)
    assert begin_of(parts).mode == pb.SYNC_MODE_UNSPECIFIED
    visible = {row.values[0] for row in copy.rows.values() if row.visible(START + 12 * SECOND)}
    assert visible == set(numbers(server))
    # AHEAD and a column change no copy.
    server.define("ALTER STREAM e SET AHEAD 2 HOURS")
    server.define("ALTER STREAM e ADD COLUMN b TEXT")
    assert begin_of(recharge(server, query, copy)).mode == pb.SYNC_MODE_UNSPECIFIED


def test_a_watch_goes_on(server: ServerProcess) -> None:
    """A new column sends nothing; another RETAIN sends the answer whole."""
    server.define(EVENTS)
    server.publish("e", events(0, 5, 9))
    handle = server.register("SELECT n FROM e WHERE n >= 0").handle
    sync = pb.SyncRequest(tenant=server.tenant, items=[pb.SyncItem(handle=handle)])
    call = server.stub.Watch(pb.WatchRequest(sync=sync), timeout=60)
    copy = Copy()

    def begin() -> pb.SyncBegin:
        """Take the next round, and return how it began."""
        parts: list[pb.SyncPart] = []
        while not (parts and parts[-1].HasField("end")):
            part = next(call)
            if not part.HasField("beat"):
                copy.take(part)
                parts.append(part)
        first: pb.SyncBegin = parts[0].begin
        return first

    assert begin().reason == pb.SYNC_REASON_FIRST
    server.define("ALTER STREAM e ADD COLUMN fee DOUBLE DEFAULT 1")
    server.publish("e", events(10))
    server.publish("e", events(11).append_column("fee", pa.array([2.0])))
    while (11,) not in [row.values for row in copy.rows.values()]:
        assert begin().mode == pb.SYNC_MODE_UNSPECIFIED
    server.define("ALTER STREAM e SET RETAIN 3 SECONDS")
    assert begin().reason == pb.SYNC_REASON_RETENTION
    assert sorted(row.values for row in copy.rows.values()) == [(9,), (10,), (11,)]
    call.cancel()


def test_ahead_holds_from_then_on(server: ServerProcess) -> None:
    server.define("CREATE STREAM e (n BIGINT, at TIMESTAMP) ORDERED BY at AHEAD 1 SECOND")
    soon = pa.array([datetime.now(UTC).timestamp() * 1e6 + 600e6], pa.float64()).cast(pa.int64())
    table = pa.table({"n": [1], "at": soon.cast(pa.timestamp("us", "UTC"))})
    with pytest.raises(grpc.RpcError) as refused:
        server.publish("e", table)
    assert detail(refused.value).reason == "TOO_FAR_AHEAD"
    server.define("ALTER STREAM e SET AHEAD 1 HOUR")
    assert server.publish("e", table).row_count == 1


def test_slack_and_lead_hold_from_then_on(server: ServerProcess) -> None:
    """With rows that wait, a copy by stream key is made in another way, and comes whole once."""
    server.define("CREATE STREAM e (id BIGINT, n BIGINT, at TIMESTAMP) KEY (id) ORDERED BY at")

    def publish(second: int, n: int) -> None:
        at = pa.array([START + second * SECOND], pa.int64()).cast(pa.timestamp("us", "UTC"))
        server.publish("e", pa.table({"id": [1], "n": [n], "at": at}))

    publish(0, 0)
    query, copy = server.register("SELECT n FROM e").handle, Copy()
    recharge(server, query, copy)
    altered = server.define("ALTER STREAM e SET SLACK 5 SECONDS")
    assert "copies are sent again whole" in altered.notes[0]
    publish(4, 1)
    assert begin_of(recharge(server, query, copy)).reason == pb.SYNC_REASON_RETENTION
    assert numbers(server) == [0] == [row.values[0] for row in copy.rows.values()]
    publish(9, 2)
    recharge(server, query, copy)
    assert numbers(server) == [1] == [row.values[0] for row in copy.rows.values()]
    assert not server.define("ALTER STREAM e SET SLACK 1 SECOND").notes
    publish(10, 3)
    assert numbers(server) == [2]
    server.define("ALTER STREAM e SET LEAD 1 MINUTE")
    request = pb.DescribeStreamRequest(tenant=server.tenant, name="e")
    text = server.stub.DescribeStream(request).sql
    assert "SLACK 1 SECOND" in text and "LEAD 1 MINUTE" in text
    server.define("ALTER STREAM e SET SLACK 0 SECONDS")


def test_that_rows_wait_can_t_be_taken_back(server: ServerProcess) -> None:
    server.define(
        "CREATE STREAM e (n BIGINT, at TIMESTAMP) ORDERED BY at SLACK 1 SECOND AHEAD 1 DAY"
    )
    server.define("CREATE STREAM c (n BIGINT, at TIMESTAMP) ORDERED BY at CLOCK")
    for text, words in (
        ("ALTER STREAM e SET SLACK 0 SECONDS", "can't be taken away"),
        ("ALTER STREAM c SET SLACK 1 SECOND", "is the clock"),
        ("ALTER STREAM c SET LEAD 1 SECOND", "is the clock"),
    ):
        with pytest.raises(grpc.RpcError, match=words) as refused:
            server.define(text)
        assert detail(refused.value).reason == "BAD_OPTION"
    with pytest.raises(grpc.RpcError, match="create another stream"):
        server.define("ALTER STREAM e SET CLOCK")


def test_another_server_learns_of_the_alter(start: Start) -> None:
    first, second = start(), start()
    first.define("CREATE STREAM s (a BIGINT)")
    second.publish("s", pa.table({"a": [1]}))
    first.define("ALTER STREAM s ADD COLUMN b TEXT DEFAULT 'x'")
    # It refuses an unknown column only after it has read the log to its end.
    second.publish("s", pa.table({"a": [2], "b": ["y"]}))
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert second.ask("SELECT a, b FROM s")[1].to_pylist() == rows
    second.kill()
    third = start()
    assert third.ask("SELECT a, b FROM s")[1].to_pylist() == rows
    stream = third.define("ALTER STREAM s ADD COLUMN c TEXT").stream
    assert [column.name for column in stream.columns] == ["a", "b", "c"]


# ---- SOURCE


def test_only_its_source_publishes_to_a_stream(server: ServerProcess) -> None:
    stream = server.define("CREATE STREAM s (a BIGINT) SOURCE kafka").stream
    assert "SOURCE kafka OWNER" in stream.sql
    table = pa.table({"a": [1]})
    for name in ("kafka", "kafka/0"):
        server.publish("s", table, publisher=name, sequence=1)
    for identity in ({}, {"publisher": "kafkaesque", "sequence": 1}):
        with pytest.raises(grpc.RpcError) as refused:
            server.publish("s", table, **identity)
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(grpc.RpcError) as refused:
        server.publish("s", table, publisher="kafka", sequence=2, owner="mallory")
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
