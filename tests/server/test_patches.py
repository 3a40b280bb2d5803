"""Patches: some columns of a row, the others kept as they are at the commit, on two servers too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from datastem.errors import RowError
from datastem.instants import SECOND, from_micros
from psoup.errors import NoCurrentRow, NotCurrent, ServerError
from psoup.server.calls.invoke import ask
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
from tests.support.server.process import ServerProcess, detail, ipc, received, rows_of

START = 1_700_000_000 * SECOND
TYPES = {
    "place": pa.string(),
    "free": pa.int64(),
    "note": pa.string(),
    "at": pa.timestamp("us", "UTC"),
    "_op": pa.string(),
    "_expected": pa.int64(),
}
VALUES = ("place", "free", "note", "at")

Row = dict[str, Any]


class Rows:
    """The oracle: all whole rows that were accepted, by row id."""

    def __init__(self, by_event_time: bool) -> None:
        self.by_event_time = by_event_time
        self.rows: dict[int, Row] = {}

    def last(self, place: str) -> Row | None:
        rows = [row for row in self.rows.values() if row["place"] == place]
        return max(rows, key=lambda row: (row["ts"], row["row_id"]), default=None)

    def current(self, place: str) -> Row | None:
        last = self.last(place)
        return None if last is None or last["_op"] == "delete" else last

    def outcome(self, sent: Sequence[Row]) -> str:
        """Return what has to become of a batch, by the rows that are current before it."""
        for row in sent:
            current, expected = self.current(row["place"]), row.get("_expected")
            if expected is not None and expected != (current or {"row_id": -1})["row_id"]:
                return "CONFLICT_ROW"
        if self.by_event_time:
            for row in sent:
                last = self.last(row["place"])
                if row.get("_expected") is not None and last and self._time(row) < last["at"]:
                    return "NOT_CURRENT"
        patches = [row for row in sent if row.get("_op") == "patch"]
        if any(self.current(row["place"]) is None for row in patches):
            return "NO_CURRENT_ROW"
        latest: dict[str, Any] = {}
        for row in patches if self.by_event_time else ():
            place = row["place"]
            if self._time(row) < latest.get(place, self.current(place)["at"]):  # type: ignore[index]
                return "NOT_CURRENT"
            latest[place] = self._time(row)
        return "accepted"

    def _time(self, row: Row) -> Any:
        return row["at"] if "at" in row else self.current(row["place"])["at"]  # type: ignore[index]

    def accept(self, sent: Sequence[Row], first: int, clock: int) -> None:
        for row_id, row in enumerate(sent, first):
            whole = {name: row.get(name) for name in VALUES}
            if row.get("_op") == "patch":
                current = self.current(row["place"])
                assert current is not None
                whole = {name: row.get(name, current[name]) for name in VALUES}
                whole |= {name: row[name] for name in VALUES if name in row}
            ts = whole["at"] if self.by_event_time else from_micros(clock)
            self.rows[row_id] = whole | {"_op": row.get("_op"), "ts": ts, "row_id": row_id}

    def answer(self) -> list[tuple[Any, ...]]:
        rows = (self.current(place) for place in {row["place"] for row in self.rows.values()})
        return [tuple(row[name] for name in VALUES) for row in rows if row is not None]


class World:
    """A store with two servers and a clock."""

    def __init__(self, path: Path, options: str, seed: int) -> None:
        self.path = path
        columns = "place TEXT, free BIGINT, note TEXT, at TIMESTAMP"
        statement = parse_statement(f"CREATE STREAM s ({columns}) KEY (place) {options}")
        assert isinstance(statement, CreateStream)
        self.schema = statement.schema
        self.oracle = Rows(self.schema.ordered_by is not None)
        self.dice = random.Random(seed)
        self.clock = START

    @asynccontextmanager
    async def servers(self) -> AsyncIterator[list[Core]]:
        store = Store.open(self.path, create=True, sync=False)
        async with AsyncExitStack() as stack:
            cores = [await self.started(store, stack) for _ in range(2)]
            await cores[0].appender.submit(Define("main", "main", self.schema))
            await cores[1].follower.catch_up()
            self.engine = HandMadeEngine(store)
            yield cores

    async def started(self, store: Store, stack: AsyncExitStack) -> Core:
        core = Core(store, Settings(self.path), clock=lambda: self.clock)
        await core.start()
        stack.push_async_callback(core.stop)
        return core

    def batch(self) -> list[Row]:
        """Return whole rows and deletes, or patches of some columns; a few have conditions."""
        dice = self.dice
        places = dice.choices("abcd", k=dice.randint(1, 3))
        if dice.random() < 0.35:
            ops = [dice.choice(("row", "row", "delete")) for _ in places]
            rows = [
                self.row(place, VALUES) | {"_op": op} for place, op in zip(places, ops, strict=True)
            ]
        else:
            chosen = dice.sample(("free", "note", "at"), dice.randint(0, 3))
            rows = [self.row(place, ("place", *chosen)) | {"_op": "patch"} for place in places]
        if dice.random() < 0.3:
            for row in rows:
                current = self.oracle.current(row["place"]) or {"row_id": -1}
                row["_expected"] = dice.choice((None, current["row_id"], current["row_id"], 0))
        return rows

    def row(self, place: str, names: Sequence[str]) -> Row:
        dice = self.dice
        values: Row = {
            "place": place,
            "free": dice.choice((None, dice.randrange(100))),
            "note": dice.choice((None, str(dice.randrange(100)))),
            "at": from_micros(self.clock - dice.choice((0, 0, 0, 0, 5)) * SECOND),
        }
        return {name: values[name] for name in names}


async def send(core: Core, sent: Sequence[Row], **identity: Any) -> pb.PublishResponse:
    names = [name for name in TYPES if any(name in row for row in sent)]
    table = pa.Table.from_pylist(list(sent), pa.schema([(name, TYPES[name]) for name in names]))
    request = pb.PublishRequest(stream="s", arrow=ipc(table), **identity)
    return await publish(core, new_call(), request)


async def outcome(core: Core, sent: Sequence[Row], **identity: Any) -> tuple[str, int]:
    """Return the reason of a refusal or `accepted`, and the first row id."""
    try:
        return "accepted", (await send(core, sent, **identity)).first_row_id
    except (RowError, ServerError) as error:
        return error.reason, -1


async def answer(core: Core) -> list[tuple[Any, ...]]:
    await core.follower.catch_up()
    request = pb.AskRequest(sql="SELECT place, free, note, at FROM s", encoding=pb.ENCODING_ARROW)
    pieces = await received(ask(core, new_call(), request))
    table = pa.ipc.open_stream(b"".join(piece.arrow for piece in pieces)).read_all()
    return [tuple(row.values()) for row in table.to_pylist()]


def same(one: Sequence[tuple[Any, ...]], other: Sequence[tuple[Any, ...]]) -> bool:
    # By keys that are distinct: NULL does not sort.
    return {row[0]: row for row in one} == {row[0]: row for row in other}


@pytest.mark.parametrize("options", ["", "ORDERED BY at", "ORDERED BY at RETAIN 20 SECONDS"])
@pytest.mark.parametrize("seed", short_first(range(10)))
async def test_oracle_patches_keep_what_is_current(tmp_path: Path, options: str, seed: int) -> None:
    world = World(tmp_path / "store", options, seed)
    outcomes = set()
    async with world.servers() as cores:
        for _ in range(60):
            world.clock += world.dice.choice((0, 1, SECOND, 9 * SECOND))
            sent, core = world.batch(), world.dice.choice(cores)
            reason, first = await outcome(core, sent)
            assert reason == world.oracle.outcome(sent), sent
            outcomes.add(reason)
            if reason == "accepted":
                world.oracle.accept(sent, first, world.clock)
            if world.dice.random() < 0.15:
                world.engine.step()
                await world.dice.choice(cores).follower.refresh()
                assert same(await answer(core), world.oracle.answer())
        assert same(await answer(cores[0]), world.oracle.answer())
    assert outcomes >= {"accepted", "NO_CURRENT_ROW", "CONFLICT_ROW"}


@pytest.mark.parametrize("options", ["", "ORDERED BY at"])
@pytest.mark.parametrize("seed", short_first(range(10)))
async def test_oracle_patches_that_meet_in_a_commit_and_between_servers(
    tmp_path: Path, options: str, seed: int
) -> None:
    """Each batch has an identity. Some answers are lost, and a server is replaced by a new one: the
    batch is sent again, and has the outcome of the first."""
    world = World(tmp_path / "store", options, seed)
    async with world.servers() as cores, AsyncExitStack() as stack:
        sequences = [0] * 8

        async def publish_one(number: int, sent: Sequence[Row], is_lost: bool) -> tuple[str, int]:
            identity = {"publisher": f"p{number}", "sequence": sequences[number] + 1}
            if is_lost:
                first = asyncio.create_task(outcome(cores[0], sent, **identity))
                await asyncio.sleep(world.dice.random() * 0.01)
                first.cancel()
                await asyncio.wait([first])
            result = await outcome(cores[(number + is_lost) % 2], sent, **identity)
            sequences[number] += result[0] == "accepted"
            return result

        for turn in range(10):
            world.clock += SECOND
            batches = [world.batch() for _ in sequences]
            lost = [world.dice.random() < 0.3 for _ in sequences]
            results = await asyncio.gather(*map(publish_one, range(8), batches, lost))
            accepted = [
                (first, sent)
                for (reason, first), sent in zip(results, batches, strict=True)
                if reason == "accepted"
            ]
            for first, sent in sorted(accepted, key=lambda pair: pair[0]):
                assert world.oracle.outcome(sent) == "accepted", sent
                world.oracle.accept(sent, first, world.clock)
            assert same(await answer(cores[turn % 2]), world.oracle.answer())
            if turn == 5:
                cores[1] = await world.started(Store.open(world.path, sync=False), stack)


async def test_two_columns_patched_at_once_both_survive(tmp_path: Path) -> None:
    world = World(tmp_path / "store", "", 0)
    async with world.servers() as cores:
        await send(cores[0], [{**world.row("a", VALUES), "free": 0, "note": ""}])
        edits = [{"free": n} for n in range(1, 11)] + [{"note": str(n)} for n in range(1, 11)]
        await asyncio.gather(
            *(
                send(cores[n % 2], [{"place": "a", "_op": "patch", **edit}])
                for n, edit in enumerate(edits)
            )
        )
        [(_, free, note, _)] = await answer(cores[0])
        assert free in range(1, 11) and note in {str(n) for n in range(1, 11)}


async def test_a_repeat_is_known_by_the_columns_that_were_sent(tmp_path: Path) -> None:
    world = World(tmp_path / "store", "", 0)
    async with world.servers() as (core, second):
        await send(core, [world.row("a", VALUES)])
        patch = {"place": "a", "_op": "patch", "free": 7}
        first = await send(core, [patch], publisher="phone", sequence=1)
        # Other rows since, and none at all: a repeat is known before its row is looked for.
        await send(core, [{**world.row("a", VALUES), "note": "other"}])
        again = await send(second, [patch], publisher="phone", sequence=1)
        assert again.duplicate and again.first_row_id == first.first_row_id
        await send(core, [{**world.row("a", VALUES), "_op": "delete"}])
        assert (await send(second, [patch], publisher="phone", sequence=1)).duplicate
        for changed in ({**patch, "free": 8}, {**patch, "note": None}, {**patch, "_op": None}):
            reason, _ = await outcome(
                core, [{**dict.fromkeys(VALUES), **changed}], publisher="phone", sequence=1
            )
            assert reason == "SEQUENCE_REUSED"
        # A refused patch uses up no sequence.
        assert await outcome(core, [patch], publisher="phone", sequence=2) == ("NO_CURRENT_ROW", -1)
        await send(core, [world.row("a", VALUES)], publisher="phone", sequence=2)


async def test_rows_that_a_patch_may_and_may_not_stand_beside(tmp_path: Path) -> None:
    world = World(tmp_path / "store", "", 0)
    async with world.servers() as (core, _):
        whole = {"place": "a", "free": 1, "note": "one", "at": None}
        await send(core, [whole, {**whole, "place": "b"}])
        patch = {"place": "a", "_op": "patch", "free": 2}
        assert (await outcome(core, [patch, {"place": "b", "free": 3}]))[0] == "MISSING_COLUMN"
        # With all columns, and before a row or delete of its key.
        await send(core, [{**whole, **patch}, {**whole, "free": 3}])
        assert (await outcome(core, [whole, {**whole, **patch}]))[0] == "BAD_OPERATION"
        await send(core, [patch, {**patch, "free": 5}, {"place": "b", "_op": "delete"}])
        assert await answer(core) == [("a", 5, "one", None)]
        with pytest.raises(NoCurrentRow) as caught:
            await send(core, [patch, {**patch, "place": "b"}])
        assert caught.value.detail["row"] == 1 and caught.value.detail["field"] == "_op"
        # A delete beside patches needs its event time, if there is one.
        await send(core, [{**patch, "free": None}])
        assert await answer(core) == [("a", None, "one", None)]


async def test_a_patch_keeps_the_event_time_or_has_a_later_one(tmp_path: Path) -> None:
    world = World(tmp_path / "store", "ORDERED BY at", 0)
    async with world.servers() as (core, _):
        now, earlier = from_micros(START), from_micros(START - SECOND)
        await send(core, [{"place": "a", "free": 1, "note": "n", "at": now}])
        patch = {"place": "a", "_op": "patch", "free": 2}
        with pytest.raises(NotCurrent) as caught:
            await send(core, [{**patch, "at": earlier}])
        assert caught.value.detail["field"] == "at"
        await send(core, [patch])
        assert await answer(core) == [("a", 2, "n", now)]
        with pytest.raises(NotCurrent) as caught:
            later = from_micros(START + SECOND)
            await send(core, [{**patch, "at": later}, {**patch, "at": now}])
        assert caught.value.detail["row"] == 1
        problem = {**patch, "at": from_micros(START + 10**12)}
        assert (await outcome(core, [problem]))[0] == "TOO_FAR_AHEAD"


async def test_what_patches_keep_counts_as_bytes_of_the_batch(tmp_path: Path) -> None:
    world = World(tmp_path / "store", "", 0)
    async with world.servers() as (core, _):
        large = "x" * (1 << 20)
        await send(core, [{"place": "a", "free": 1, "note": large, "at": None}])
        patch = {"place": "a", "_op": "patch", "free": 2}
        await send(core, [patch] * 10)
        assert (await outcome(core, [patch] * 100))[0] == "BATCH_TOO_LARGE"


# ---- who may patch what

ORDERS = "CREATE STREAM orders (id BIGINT, region TEXT, total BIGINT) KEY (id)"
MINE = "CREATE POLICY mine ON orders USING (region = claim('region'))"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[TenantServer]:
    async with tenant_server(tmp_path / "store") as running:
        yield running


async def refusal(caller: NamedCaller, **columns: list[Any]) -> pb.ErrorDetail | None:
    """Return why a patch is refused; None if it is accepted."""
    try:
        await caller.publish("orders", _op=["patch"], **columns)
    except grpc.RpcError as error:
        return detail(error)
    return None


async def test_a_hidden_row_can_not_be_patched_into_view(guarded: TenantServer) -> None:
    boss = guarded.administrator
    await boss.define(ORDERS)
    await boss.define(MINE)
    await boss.publish("orders", id=[1, 2], region=["us", "eu"], total=[10, 20])
    eu = guarded.caller(region="eu")
    # The patched column is that of the policy: the row would be visible, and its total read.
    hidden = await refusal(eu, id=[1], region=["eu"])
    absent = await refusal(eu, id=[3], region=["eu"])
    assert hidden and absent and hidden.reason == "NO_CURRENT_ROW"
    assert hidden.SerializeToString() == absent.SerializeToString()
    assert await refusal(eu, id=[2], total=[21]) is None
    # A row that it gives away is gone for it.
    assert await refusal(eu, id=[2], region=["us"]) is None
    lost = await refusal(eu, id=[2], total=[22])
    assert lost and lost.reason == "NO_CURRENT_ROW"
    assert await refusal(boss, id=[1], region=["eu"]) is None
    assert await refusal(eu, id=[1], total=[11]) is None


async def test_a_patch_needs_read(guarded: TenantServer) -> None:
    boss = guarded.administrator
    await boss.define(ORDERS)
    await boss.publish("orders", id=[1], region=["us"], total=[10])
    writer = NamedCaller(boss.stub, "main", "writer", ["publisher"])
    for id_ in (1, 2):
        problem = await refusal(writer, id=[id_], total=[11])
        assert problem and problem.reason == "PERMISSION_DENIED"
    await boss.define("GRANT read ON orders TO OWNER writer")
    assert await refusal(writer, id=[1], total=[11]) is None


async def test_an_erased_key_is_not_patched(guarded: TenantServer) -> None:
    boss = guarded.administrator
    await boss.define(ORDERS)
    await boss.publish("orders", id=[1, 2], region=["us", "eu"], total=[10, 20])
    await boss.define("ERASE FROM orders WHERE id = 1")
    problem = await refusal(boss, id=[1], total=[11])
    assert problem and problem.reason == "ERASED"
    assert await refusal(boss, id=[2], total=[21]) is None


# ---- over the wire

PARKING = "CREATE STREAM parking (place TEXT, free BIGINT, note TEXT) KEY (place)"


def test_typed_rows_and_several_patches_of_one_call(server: ServerProcess) -> None:
    server.define(PARKING)
    server.publish("parking", pa.table({"place": ["a"], "free": [1], "note": ["n"]}))

    def patch(place: str, free: int) -> pb.PublishRequest:
        row = [pb.Value(text=place), pb.Value(bigint=free), pb.Value(text="patch")]
        rows = rows_of(["place", "free", "_op"], row)
        return pb.PublishRequest(tenant=server.tenant, stream="parking", rows=rows)

    whole = [pb.Value(text="b"), pb.Value(bigint=9), pb.Value()]
    other = pb.PublishRequest(
        tenant=server.tenant, stream="parking", rows=rows_of(["place", "free", "note"], whole)
    )
    requests = [patch("a", 2), patch("a", 3), other, patch("b", 10), patch("c", 1), patch("a", 4)]
    answers = server.stub.PublishStream(iter(requests))
    assert [next(answers).first_row_id for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert detail(caught.value).reason == "NO_CURRENT_ROW"
    _, table = server.ask("SELECT place, free, note FROM parking")
    rows = {tuple(row.values()) for row in table.to_pylist()}
    assert rows == {("a", 3, "n"), ("b", 10, None)}


def test_a_stream_without_a_key_takes_no_patch(server: ServerProcess) -> None:
    server.define("CREATE STREAM plain (place TEXT)")
    with pytest.raises(grpc.RpcError) as caught:
        server.publish("plain", pa.table({"place": ["a", "b"], "_op": ["row", "patch"]}))
    problem = detail(caught.value)
    assert (problem.reason, problem.row) == ("PATCH_WITHOUT_KEY", 1)
