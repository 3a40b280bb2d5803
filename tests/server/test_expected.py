"""Edits with `_expected`: never one over a row that its editor has not seen, on two servers too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from datastem.instants import SECOND, from_micros
from psoup.answers.replicas import keyed_history
from psoup.errors import ConflictRow, NotCurrent, ServerError
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.support.lengths import short_first
from tests.support.server.callers import NamedCaller, TenantServer, new_call, tenant_server
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ServerProcess, detail, ipc, rows_of

START = 1_700_000_000 * SECOND
KEYS = "abcdef"


@dataclass
class Versions:
    """The oracle: all rows that were accepted, by row id."""

    by_event_time: bool
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def last(self, place: str, below: int | None = None) -> dict[str, Any] | None:
        """Return the last row of a key, a delete too, as known from ids below one."""
        key_rows = [
            row
            for row_id, row in self.rows.items()
            if row["place"] == place and (below is None or row_id < below)
        ]
        return max(key_rows, key=lambda row: (row["ts"], row["row_id"]), default=None)

    def current(self, place: str, below: int | None = None) -> int:
        last = self.last(place, below)
        return -1 if last is None or last["_op"] == "delete" else int(last["row_id"])

    def outcome(self, sent: list[dict[str, Any]], below: int | None = None) -> str:
        """Return what has to become of a batch: accepted, CONFLICT_ROW or NOT_CURRENT."""
        conditions = [row for row in sent if row["_expected"] is not None]
        if any(row["_expected"] != self.current(row["place"], below) for row in conditions):
            return "CONFLICT_ROW"
        for row in conditions if self.by_event_time else ():
            last = self.last(row["place"], below)
            if last is not None and row["ts"] < last["ts"]:
                return "NOT_CURRENT"
        return "accepted"

    def accept(self, sent: list[dict[str, Any]], first: int, clock: int) -> None:
        for row_id, row in enumerate(sent, first):
            ts = row["ts"] if self.by_event_time else clock
            self.rows[row_id] = {**row, "ts": ts, "row_id": row_id}


COLUMNS = [
    ("place", pa.string()),
    ("free", pa.int64()),
    ("at", pa.timestamp("us", "UTC")),
    ("_op", pa.string()),
    ("_expected", pa.int64()),
]


class World:
    """A store with two servers and a clock."""

    def __init__(self, path: Path, options: str, seed: int) -> None:
        self.path = path
        sql = f"CREATE STREAM s (place TEXT, free BIGINT, at TIMESTAMP) KEY (place) {options}"
        statement = parse_statement(sql)
        assert isinstance(statement, CreateStream)
        self.schema = statement.schema
        self.versions = Versions(self.schema.ordered_by is not None)
        self.dice = random.Random(seed)
        self.clock = START

    @asynccontextmanager
    async def servers(self) -> AsyncIterator[list[Core]]:
        async with AsyncExitStack() as stack:
            store = Store.open(self.path, create=True, sync=False)
            cores = []
            for _ in range(2):
                core = Core(store, Settings(self.path), clock=lambda: self.clock)
                await core.start()
                stack.push_async_callback(core.stop)
                cores.append(core)
            await cores[0].appender.submit(Define("main", "main", self.schema))
            await cores[1].follower.catch_up()
            self.engine = HandMadeEngine(store)
            yield cores

    def batch(self) -> list[dict[str, Any]]:
        return [self._row(place) for place in self.dice.choices(KEYS, k=self.dice.randint(1, 3))]

    def _row(self, place: str) -> dict[str, Any]:
        ts = self.clock - self.dice.choice((0, 0, 0, 1, 5, 30)) * SECOND
        current, dice = self.versions.current(place), self.dice
        wrong = dice.choice((-1, 0, len(self.versions.rows) - 1, 10**12))
        op = "delete" if dice.random() < 0.15 else dice.choice(("row", None))
        return {
            "place": place,
            "free": dice.randrange(100),
            "at": from_micros(ts),
            "ts": ts,
            "_op": op,
            "_expected": dice.choice((None, current, current, current, wrong)),
        }


async def send(core: Core, sent: list[dict[str, Any]], **identity: Any) -> pb.PublishResponse:
    table = pa.Table.from_pylist(sent, pa.schema(COLUMNS))
    request = pb.PublishRequest(stream="s", arrow=ipc(table), **identity)
    return await publish(core, new_call(), request)


async def outcome(core: Core, sent: list[dict[str, Any]]) -> tuple[str, int]:
    """Return the reason of a refusal or `accepted`, and the first row id."""
    try:
        return "accepted", (await send(core, sent)).first_row_id
    except ServerError as error:
        return error.reason, -1


@pytest.mark.parametrize("options", ["", "ORDERED BY at", "ORDERED BY at RETAIN 20 SECONDS"])
@pytest.mark.parametrize("seed", short_first(range(10)))
async def test_oracle_batches_are_accepted_if_what_they_expect_is_current(
    tmp_path: Path, options: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_history, "_PRUNE_SLACK_ROWS", 0)
    world = World(tmp_path / "store", options, seed)
    async with world.servers() as cores:
        for _ in range(60):
            world.clock += world.dice.choice((0, 1, SECOND, 9 * SECOND))
            sent = world.batch()
            # Sometimes this server has not seen what the other one accepted just before.
            core = world.dice.choice(cores)
            expected = world.versions.outcome(sent)
            reason, first = await outcome(core, sent)
            assert reason == expected, sent
            if reason == "accepted":
                world.versions.accept(sent, first, world.clock)
            if world.dice.random() < 0.1:
                world.engine.step()
                await world.dice.choice(cores).follower.refresh()


@pytest.mark.parametrize("options", ["", "ORDERED BY at"])
@pytest.mark.parametrize("seed", short_first(range(10)))
async def test_oracle_what_is_accepted_at_once_was_expected_at_its_place(
    tmp_path: Path, options: str, seed: int
) -> None:
    """Batches that meet in one commit, and in races of two servers."""
    world = World(tmp_path / "store", options, seed)
    refused = 0
    async with world.servers() as cores:
        for _ in range(12):
            world.clock += SECOND
            batches = [world.batch() for _ in range(8)]
            results = await asyncio.gather(
                *(outcome(world.dice.choice(cores), sent) for sent in batches)
            )
            accepted = [
                (first, sent)
                for (reason, first), sent in zip(results, batches, strict=True)
                if reason == "accepted"
            ]
            for first, sent in sorted(accepted, key=lambda pair: pair[0]):
                assert world.versions.outcome(sent, below=first) == "accepted", sent
                world.versions.accept(sent, first, world.clock)
            refused += len(batches) - len(accepted)
    assert refused


async def test_no_increment_is_lost_in_a_race_of_two_servers(tmp_path: Path) -> None:
    world = World(tmp_path / "store", "", 0)
    turns, editors = 12, 6

    async def edit(core: Core, state: dict[str, int]) -> int:
        """Add one, again and again, each time to the newest value; return how often that went."""
        done = 0
        for _ in range(turns):
            row = {"place": "a", "free": state["free"] + 1, "_expected": state["row_id"]}
            try:
                reply = await send(core, [row])
                state.update(row_id=reply.first_row_id, free=state["free"] + 1)
                done += 1
            except ConflictRow as conflict:
                current = conflict.detail["current"]
                values = dict(zip(current.columns, current.rows[0].values, strict=True))
                state.update(row_id=values["row_id"].bigint, free=values["free"].bigint)
                assert conflict.detail["got"] == str(state["row_id"])
        return done

    async with world.servers() as cores:
        states = [{"row_id": -1, "free": 0} for _ in range(editors)]
        counts = await asyncio.gather(
            *(edit(cores[number % 2], state) for number, state in enumerate(states))
        )
        final = {"row_id": -1, "free": 0}
        await edit(cores[0], final)
    assert final["free"] >= sum(counts) > turns
    # The last editor, alone, is refused once: when it does not know the row yet.
    assert final["free"] == sum(counts) + turns - 1


async def test_a_repeat_is_known_before_its_condition_is_checked(tmp_path: Path) -> None:
    world = World(tmp_path / "store", "", 0)
    async with world.servers() as (core, second):
        row = {"place": "a", "free": 1, "_expected": -1}
        first = await send(core, [row], publisher="phone", sequence=1)
        await send(core, [{"place": "a", "free": 2, "_expected": first.first_row_id}])
        again = await send(second, [row], publisher="phone", sequence=1)
        assert again.duplicate and again.first_row_id == first.first_row_id
        for changed in (None, first.first_row_id):
            with pytest.raises(ServerError) as caught:
                await send(core, [{**row, "_expected": changed}], publisher="phone", sequence=1)
            assert caught.value.reason == "SEQUENCE_REUSED"
        # A refused batch uses up no sequence.
        with pytest.raises(ConflictRow):
            await send(core, [row], publisher="phone", sequence=2)
        await send(
            core, [{"place": "b", "free": 1, "_expected": None}], publisher="phone", sequence=2
        )


async def test_all_null_is_the_same_as_no_column(tmp_path: Path) -> None:
    world = World(tmp_path / "store", "", 0)
    async with world.servers() as (core, _):
        await send(core, [{"place": "a", "free": 1}], publisher="phone", sequence=1)
        table = pa.table({"place": ["a"], "free": [1], "at": pa.nulls(1)})
        request = pb.PublishRequest(stream="s", arrow=ipc(table), publisher="phone", sequence=1)
        assert (await publish(core, new_call(), request)).duplicate


async def test_an_edit_older_than_the_row_it_knows_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path / "store", "ORDERED BY at", 0)
    async with world.servers() as (core, _):
        now = from_micros(START)
        earlier = from_micros(START - SECOND)
        first = (await send(core, [{"place": "a", "at": now}])).first_row_id
        with pytest.raises(NotCurrent) as caught:
            await send(core, [{"place": "a", "at": earlier, "_expected": first}])
        assert caught.value.detail["row"] == 0 and caught.value.detail["field"] == "at"
        # A late row without a condition is none: it did not become current.
        await send(core, [{"place": "a", "at": earlier}])
        edited = await send(core, [{"place": "a", "at": now, "_expected": first}])
        delete_row = {"place": "a", "at": now, "_op": "delete", "_expected": edited.first_row_id}
        await send(core, [delete_row])
        with pytest.raises(NotCurrent):
            await send(core, [{"place": "a", "at": earlier, "_expected": -1}])
        await send(core, [{"place": "a", "at": now, "_expected": -1}])


async def test_rows_of_one_batch_are_compared_with_what_was_before_it(tmp_path: Path) -> None:
    world = World(tmp_path / "store", "", 0)
    async with world.servers() as (core, _):
        twice = [{"place": "a", "free": n, "_expected": -1} for n in range(2)]
        first = (await send(core, twice)).first_row_id
        with pytest.raises(ConflictRow) as caught:
            await send(core, [{"place": "b", "_expected": -1}, {**twice[0], "_expected": first}])
        assert (caught.value.detail["row"], caught.value.row_id) == (1, first + 1)


async def test_damage_concerns_only_the_edits_that_need_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "store", "", 0)
    async with world.servers() as (core, _):
        first = (await send(core, [{"place": "a"}])).first_row_id

        async def damaged(stream_id: int, low: int) -> Any:
            raise OSError("the file is damaged")

        monkeypatch.setattr(core.follower, "keyed_rows", damaged)
        edit = {"place": "a", "_expected": first}
        results = await asyncio.gather(
            send(core, [edit]), send(core, [{"place": "b"}]), return_exceptions=True
        )
        assert isinstance(results[0], OSError) and isinstance(results[1], pb.PublishResponse)


# ---- who may expect what

ORDERS = "CREATE STREAM orders (id BIGINT, region TEXT, total BIGINT) KEY (id)"
MINE = "CREATE POLICY mine ON orders USING (region = claim('region'))"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[TenantServer]:
    async with tenant_server(tmp_path / "store") as running:
        yield running


async def refusal(caller: NamedCaller, id_: int, expected: int) -> pb.ErrorDetail | None:
    """Return why an edit is refused; None if it is accepted."""
    try:
        await caller.publish(
            "orders",
            id=[id_],
            region=[caller.claims.get("region")],
            total=[0],
            _expected=[expected],
        )
    except grpc.RpcError as error:
        return detail(error)
    return None


async def test_a_hidden_row_can_not_be_learned_by_guessing(guarded: TenantServer) -> None:
    boss = guarded.administrator
    await boss.define(ORDERS)
    await boss.define(MINE)
    await boss.publish("orders", id=[1, 2], region=["us", "eu"], total=[10, 20])
    eu = guarded.caller(region="eu")
    # 0 is right, and refused as all others are: in the same words, without an id or a value.
    refusals = [await refusal(eu, 1, guess) for guess in (-1, 0, 1, 2, 3)]
    assert {problem.reason for problem in refusals if problem} == {"CONFLICT_ROW"}
    assert len({problem.SerializeToString() for problem in refusals if problem}) == 1
    assert refusals[0] and not refusals[0].got and not refusals[0].HasField("current")
    # A row that it may see is shown, and an edit of it accepted.
    problem = await refusal(eu, 2, -1)
    assert problem and problem.got == "1"
    assert dict(zip(problem.current.columns, problem.current.rows[0].values, strict=True))[
        "total"
    ] == pb.Value(bigint=20)
    assert await refusal(eu, 2, 1) is None
    problem = await refusal(eu, 3, 5)
    assert problem and problem.got == "-1" and not problem.HasField("current")
    assert await refusal(boss, 1, 0) is None, "policies do not bind an administrator"


async def test_an_edit_that_expects_needs_read(guarded: TenantServer) -> None:
    boss = guarded.administrator
    await boss.define(ORDERS)
    await boss.publish("orders", id=[1], region=["us"], total=[10])
    writer = NamedCaller(boss.stub, "main", "writer", ["publisher"])
    for guess in (-1, 0, 1):
        problem = await refusal(writer, 1, guess)
        assert problem and problem.reason == "PERMISSION_DENIED" and not problem.HasField("current")
    await boss.define("GRANT read ON orders TO OWNER writer")
    assert await refusal(writer, 1, 0) is None


async def test_a_large_row_is_left_out_of_the_refusal(guarded: TenantServer) -> None:
    boss = guarded.administrator
    name = "n" * 60
    await boss.define(f"CREATE STREAM {name} (id BIGINT, note TEXT) KEY (id)")
    for length in (100, 4000, 4100, 100_000):
        await boss.publish(name, id=[length], note=["ö" * (length // 2)])
        with pytest.raises(grpc.RpcError) as caught:
            await boss.publish(name, id=[length], note=[""], _expected=[-1])
        problem = detail(caught.value)
        assert problem.reason == "CONFLICT_ROW" and problem.got
        assert problem.HasField("current") == (length <= 4000)


# ---- over the wire

PARKING = "CREATE STREAM parking (place TEXT, free BIGINT) KEY (place)"


def test_typed_rows_and_several_batches_of_one_call(server: ServerProcess) -> None:
    server.define(PARKING)
    names = ["place", "free", "_expected"]

    def edit(free: int, expected: int | None) -> pb.PublishRequest:
        condition = pb.Value() if expected is None else pb.Value(bigint=expected)
        row = [pb.Value(text="a"), pb.Value(bigint=free), condition]
        return pb.PublishRequest(tenant=server.tenant, stream="parking", rows=rows_of(names, row))

    assert server.stub.Publish(edit(1, -1)).first_row_id == 0
    answers = server.stub.PublishStream(iter([edit(2, 0), edit(3, 0), edit(4, None)]))
    assert next(answers).first_row_id == 1
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    problem = detail(caught.value)
    assert (problem.reason, problem.row, problem.field) == ("CONFLICT_ROW", 0, "_expected")
    assert problem.got == "1" and list(problem.current.columns)[:2] == ["ts", "row_id"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [(pb.Value(bigint=-2), "OUT_OF_RANGE"), (pb.Value(text="1"), "WRONG_TYPE")],
)
def test_what_is_no_row_id_is_refused(server: ServerProcess, value: pb.Value, reason: str) -> None:
    server.define(PARKING)
    rows = rows_of(["place", "free", "_expected"], [pb.Value(text="a"), pb.Value(), value])
    with pytest.raises(grpc.RpcError) as caught:
        server.publish("parking", rows=rows)
    problem = detail(caught.value)
    assert (problem.reason, problem.row, problem.field) == (reason, 0, "_expected")


def test_a_stream_without_a_key_takes_no_condition(server: ServerProcess) -> None:
    server.define("CREATE STREAM plain (place TEXT)")
    server.publish("plain", pa.table({"place": ["a"], "_expected": pa.nulls(1, pa.int64())}))
    with pytest.raises(grpc.RpcError) as caught:
        server.publish("plain", pa.table({"place": ["a", "b"], "_expected": [None, 3]}))
    problem = detail(caught.value)
    assert (problem.reason, problem.row) == ("EXPECTED_WITHOUT_KEY", 1)
    assert "KEY (column)" in problem.hint


def test_too_many_conditions_are_refused(server: ServerProcess) -> None:
    server.define(PARKING)
    count = 100_001
    table = pa.table(
        {"place": list(map(str, range(count))), "free": pa.nulls(count), "_expected": [-1] * count}
    )
    with pytest.raises(grpc.RpcError) as caught:
        server.publish("parking", table)
    assert detail(caught.value).reason == "BATCH_TOO_LARGE"
    assert server.publish("parking", table.slice(1)).row_count == count - 1
