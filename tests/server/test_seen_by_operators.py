"""What operators and the console look at: texts explained, streams measured, registrations
searched, the work of the last minute."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.instants import SECOND
from psoup.errors import BadRequest
from psoup.server.calls.explain import explain
from psoup.server.calls.register import register
from psoup.server.recent_work import RecentWork
from psoup.v1 import psoup_pb2 as pb
from tests.server.test_epochs import define, rows, running, send
from tests.support.server.callers import NamedCaller, new_call, open_server
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import rows_of

# ---- texts


async def test_a_text_is_explained_as_if_it_were_registered(tmp_path: Path) -> None:
    """The text of a registered predicate says what the registration says; another one is computed
    on the spot."""
    async with running(tmp_path / "store") as core:
        await define(core)
        engine = HandMadeEngine(core.store)
        text = "SELECT a FROM s WHERE a % 7 = 3 UNBOUNDED"
        registered, *_ = await register(core, new_call(), pb.RegisterRequest(sql=text))
        await send(core, rows(0, 100))
        engine.step()
        await core.follower.refresh()

        async def explained(**fields: Any) -> pb.Explanation:
            message = await explain(core, new_call(), pb.ExplainRequest(**fields))
            del message.run.stages[:]
            return message

        assert await explained(sql=text) == await explained(handle=registered.handles[0])
        unknown = await explained(
            sql="SELECT a FROM s WHERE a > :least UNBOUNDED",
            parameters={"least": pb.Value(bigint=9)},
        )
        assert (unknown.registration_count, unknown.other_predicates) == (0, 1)
        assert (unknown.matched_rows, unknown.stored.row_count) == (0, 0)
        assert (unknown.run.computed_rows, unknown.run.answer_rows) == (100, 90)
        assert unknown.operator.name == "select"
        for field in ({"handle": b"x" * 16}, {"window": "ROWS 1"}):
            with pytest.raises(BadRequest):
                await explained(sql=text, **field)


# ---- callers


class Shop:
    """A tenant with an administrator, a reader and a caller whom a policy binds."""

    def __init__(self, core: Any, stub: Any) -> None:
        self.core = core
        self.ann = NamedCaller(stub, "shop", "ann", ("administrator",))
        self.rea = NamedCaller(stub, "shop", "rea", ("reader",))
        self.bob = NamedCaller(stub, "shop", "bob", ("field",))
        self.root = NamedCaller(stub, "ops", "root", ("operator",))
        self.other = NamedCaller(stub, "other", "ann", ("administrator",))


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_server(tmp_path / "store") as (server, stub):
        shop = Shop(server.core, stub)
        for name in ("orders", "costs"):
            await shop.ann.define(f"CREATE STREAM {name} (a BIGINT)")
            await shop.ann.publish(name, a=[1, 2, 3])
        await shop.ann.define("CREATE VIEW big AS SELECT a FROM orders WHERE a > 1")
        await shop.ann.define("GRANT read ON orders TO ROLE field")
        await shop.ann.define("GRANT register ON orders TO ROLE field")
        yield shop


async def _code(caller: NamedCaller, rpc: str, request: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as problem:
        await caller.call(rpc, request)
    return problem.value.code().name


async def test_a_text_is_explained_for_those_who_may_ask_it(shop: Shop) -> None:
    def text(stream: str) -> pb.ExplainRequest:
        return pb.ExplainRequest(sql=f"SELECT a FROM {stream} WHERE a > 1")

    await shop.ann.register("SELECT a FROM orders WHERE a > 2")
    own_count, foreign_count = [
        (await caller.only("Explain", text("orders"))).other_predicates
        for caller in (shop.ann, shop.bob)
    ]
    assert (own_count, foreign_count) == (1, 0)
    assert await _code(shop.bob, "Explain", text("costs")) == "NOT_FOUND"
    through = await shop.ann.only("Explain", text("big"))
    assert list(through.views) == ["big"]


async def test_a_stream_says_what_it_takes_to_those_who_read_all_of_it(shop: Shop) -> None:
    async def stats(caller: NamedCaller) -> pb.StreamStats | None:
        message = await caller.only("DescribeStream", pb.DescribeStreamRequest(name="orders"))
        return message.stats if message.HasField("stats") else None

    before = await stats(shop.ann)
    assert before is not None and before.behind_rows == 3
    assert before.log_bytes > 0 and before.stem_bytes == before.match_bytes == 0
    await shop.ann.register("SELECT a FROM orders WHERE a > 1")
    HandMadeEngine(shop.core.store).step()
    await shop.core.follower.refresh()
    whole, part = await stats(shop.ann), await stats(shop.rea)
    assert whole is not None and part is not None
    assert (whole.behind_rows, whole.behind.ToMicroseconds()) == (0, 0)
    assert whole.stem_bytes == part.stem_bytes > 0 and whole.match_bytes > 0 == part.match_bytes
    await shop.ann.define("CREATE POLICY few ON orders USING (a < 2)")
    assert await stats(shop.rea) is None and await stats(shop.ann) is not None


async def test_registrations_are_found_by_stream_and_by_text(shop: Shop) -> None:
    texts = {
        "dear": "SELECT a FROM orders WHERE a > 2",
        "cheap": "SELECT a FROM costs",
        "view": "SELECT a FROM big",
        "both": "SELECT o.a FROM costs o JOIN orders p ON o.a = p.a",
    }
    for key, sql in texts.items():
        await shop.ann.register(sql, client_key=key)

    async def keys(caller: NamedCaller = shop.ann, **fields: Any) -> list[str]:
        listed: list[str] = []
        token = ""
        while True:
            request = pb.ListRegistrationsRequest(page_size=2, page_token=token, **fields)
            page = await caller.only("ListRegistrations", request)
            listed += [registration.client_key for registration in page.registrations]
            token = page.next_page_token
            if not token:
                return listed

    assert await keys() == [*texts]
    assert await keys(stream="ORDERS") == ["dear", "view", "both"]
    assert await keys(stream="big") == ["view"]
    assert await keys(contains="JOIN") == await keys(contains="join") == ["both"]
    assert await keys(contains="EAR") == ["dear"] and await keys(contains="(") == []
    assert await keys(stream="costs", contains="select") == ["cheap", "both"]
    assert await keys(shop.bob, stream="orders") == []
    missing = pb.ListRegistrationsRequest(stream="nothing")
    assert await _code(shop.ann, "ListRegistrations", missing) == "NOT_FOUND"
    hidden = pb.ListRegistrationsRequest(stream="costs")
    assert await _code(shop.bob, "ListRegistrations", hidden) == "NOT_FOUND"
    long = pb.ListRegistrationsRequest(contains="x" * 201)
    assert await _code(shop.ann, "ListRegistrations", long) == "INVALID_ARGUMENT"


async def test_a_status_names_the_registrations_with_the_most_work(shop: Shop) -> None:
    light = await shop.ann.register("SELECT a FROM orders", client_key="light")
    heavy = await shop.bob.register("SELECT a FROM orders WHERE a > 1", client_key="heavy")
    ended_handle = await shop.ann.register("SELECT a FROM costs")
    await shop.ann.invoke(light)
    await shop.ann.invoke(ended_handle)
    for _ in range(5):
        await shop.bob.invoke(heavy)
    await shop.ann.call("Unregister", pb.UnregisterRequest(handle=ended_handle))

    async def top(caller: NamedCaller) -> list[tuple[str, str, str]]:
        status = await caller.only("Status", pb.StatusRequest())
        entries = status.top_registrations
        assert all(entry.work > 0 and entry.pieces > 0 for entry in entries)
        return [(entry.tenant, entry.owner, entry.client_key) for entry in entries]

    both = [("shop", "bob", "heavy"), ("shop", "ann", "light")]
    assert await top(shop.ann) == await top(shop.root) == both
    assert await top(shop.bob) == both[:1]
    assert await top(shop.other) == await top(shop.rea) == []


async def test_a_status_names_the_streams_whose_now_was_taken_past_the_clock(shop: Shop) -> None:
    for name in ("late", "ahead", "both"):
        await shop.ann.only(
            "Define", pb.DefineRequest(sql=f"CREATE STREAM {name} (at TIMESTAMP) ORDERED BY at")
        )
    clock = (await shop.ann.only("Status", pb.StatusRequest())).now.ToMicroseconds()
    for stream, seconds in (("both", 30), ("ahead", 20), ("late", -9), ("late", -10), ("both", 5)):
        at = pb.Value()
        at.timestamp.FromMicroseconds(clock + seconds * SECOND)
        request = pb.PublishRequest(stream=stream, publisher=f"p{seconds}", sequence=1)
        request.rows.CopyFrom(rows_of(["at"], [at]))
        await shop.ann.only("Publish", request)

    async def times(caller: NamedCaller) -> list[tuple[str, str, int, str]]:
        status = await caller.only("Status", pb.StatusRequest())
        return [
            (time.tenant, time.stream, time.late_rows, time.last_leap.publisher)
            for time in status.stream_times
        ]

    # What came after NOW had passed it took NOW nowhere.
    expected = [("shop", "ahead", 0, "p20"), ("shop", "both", 1, "p30"), ("shop", "late", 1, "")]
    assert await times(shop.ann) == await times(shop.root) == expected
    assert await times(shop.rea) == await times(shop.bob) == await times(shop.other) == []


# ---- what is counted


def _registration(number: int) -> Any:
    return SimpleNamespace(
        handle=number.to_bytes(16), tenant=f"t{number % 2}", owner="o", client_key=str(number)
    )


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 100), st.integers(0, 25)), max_size=60),
    st.sampled_from([None, "t0", "t1"]),
)
def test_work_is_that_of_the_last_minute(
    done: list[tuple[int, int, int]], tenant: str | None
) -> None:
    """Compared with a list of all work, of which slices of ten seconds are left out."""
    now = 0.0
    work = RecentWork(lambda: now)
    history = []
    for number, units, seconds in done:
        now += seconds
        work.add(_registration(number), units)
        history.append((int(now // 10), number, units))
    expected: dict[int, int] = {}
    for slice_, number, units in history:
        if slice_ > int(now // 10) - 6 and tenant in (None, f"t{number % 2}"):
            expected[number] = expected.get(number, 0) + units
    entries = work.top(100, tenant)
    assert {int(entry.client_key): entry.units for entry in entries} == expected
    assert [entry.units for entry in entries] == sorted(expected.values(), reverse=True)


def test_the_memory_of_work_is_bounded_and_keeps_the_heaviest() -> None:
    now = 0.0
    work = RecentWork(lambda: now)
    for number in range(5_000):
        work.add(_registration(number), 1)
        work.add(_registration(7), 100)
    assert sum(map(len, work._slices.values())) <= 1_000
    (heaviest, *_) = work.top(1)
    assert (heaviest.client_key, heaviest.units) == ("7", 500_001)
    now = 1_000.0
    assert work.top(5) == [] and len(work._slices) == 1
