"""Replace: a query takes another's place under its client key, and every copy comes whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration

from psoup.errors import BadRequest, ClientKeyTaken
from psoup.server.calls.explain import explain
from psoup.server.calls.invoke import invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register, register_many
from psoup.server.calls.sync import sync
from psoup.server.calls.watch import watch
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.server.wire.describing import registration_messages
from psoup.store import Registration, Replace, Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.registrations import Registered
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.oracle.copy import Copy
from tests.server.test_machine import _answer
from tests.support.server.callers import anyone, new_call
from tests.support.server.process import ipc, rows_of

LOW, HIGH = "SELECT a FROM s WHERE a < 5", "SELECT a, b FROM s WHERE a >= 5"
COUNTS = "SELECT b, count(*) AS n FROM s GROUP BY b REFRESH ON t WHERE a > 1"
JOINED = "SELECT s.a, t.b FROM s, t WHERE s.a = t.a"


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    core = await opened(tmp_path)
    for name in ("s", "t"):
        statement = parse_statement(f"CREATE STREAM {name} (a BIGINT, b TEXT)")
        assert isinstance(statement, CreateStream)
        await core.appender.submit(Define("main", "main", statement.schema))
    yield core
    await core.stop()


async def opened(folder: Path) -> Core:
    path = folder / "store"
    core = Core(Store.open(path, create=True, sync=False), Settings(path, sync_bytes=200))
    await core.start()
    return core


async def put(core: Core, sql: str, *, replace: bool = True, **fields: Any) -> Registered:
    request = pb.RegisterRequest(sql=sql, client_key="mine", replace=replace, **fields)
    return (await register(core, new_call(), request))[0]


async def rows(core: Core, first: int, count: int, stream: str = "s") -> None:
    table = pa.table({"a": range(first, first + count), "b": ["x"] * count})
    await publish(core, new_call(), pb.PublishRequest(stream=stream, arrow=ipc(table)))


def found(core: Core, handle: bytes) -> Registration:
    return core.follower.state.registrations[handle]


async def recharged(core: Core, handle: bytes, copy: Copy, budget: int = 0) -> pb.SyncBegin:
    item = pb.SyncItem(handle=handle, token=copy.resume or copy.token)
    parts = [
        part
        async for part in sync(core, new_call(9), pb.SyncRequest(items=[item], byte_budget=budget))
    ]
    for part in parts:
        copy.take(part)
    return parts[0].begin


async def test_handle_and_lease_stay_and_the_text_changes_in_one_event(core: Core) -> None:
    registered = await put(core, LOW, lease=Duration(seconds=77))
    (handle,) = registered.handles
    before, version = found(core, handle), core.follower.state.position.version
    again = await put(core, HIGH, lease=Duration(seconds=99))
    after = found(core, handle)
    assert (again.handles, again.created, again.replaced) == ([handle], 0, 1)
    assert (after.text, after.lease, after.stamp) == (HIGH, before.lease, before.stamp)
    events = [entry.event for entry in core.store.log.read(version + 1)]
    assert [type(event) for event in events] == [Replace]
    assert core.follower.state.position == after.position == again.position
    (message,) = await registration_messages(core, new_call(), anyone(), [after])
    assert (message.sql, [column.name for column in message.columns]) == (HIGH, ["a", "b"])
    assert message.position == core.positions.encode(after.position)


async def test_the_same_query_again_appends_nothing(core: Core) -> None:
    await put(core, LOW)
    at = core.follower.state.position
    registered = await put(core, LOW)
    assert (registered.created, registered.replaced, core.follower.state.position) == (0, 0, at)


async def test_it_takes_a_key_and_the_word(core: Core) -> None:
    await put(core, LOW)
    with pytest.raises(ClientKeyTaken, match="belongs to another query") as caught:
        await put(core, HIGH, replace=False)
    assert "replace" in caught.value.detail["hint"]
    with pytest.raises(BadRequest, match="client key") as refused:
        await register(core, new_call(), pb.RegisterRequest(sql=HIGH, replace=True))
    assert refused.value.detail["field"] == "replace"


async def test_predicates_are_shared_and_let_go(core: Core) -> None:
    (handle,) = (await put(core, LOW)).handles
    unnamed, *_ = await register(core, new_call(), pb.RegisterRequest(sql=HIGH))
    predicates = core.follower.state.predicates
    assert {predicate.id: predicate.registrations for predicate in predicates.values()} == {
        1: 1,
        2: 1,
    }
    await put(core, HIGH)
    assert found(core, handle).predicate_id == found(core, unnamed.handles[0]).predicate_id
    assert {predicate.id: predicate.registrations for predicate in predicates.values()} == {2: 2}
    await put(core, "SELECT b FROM s WHERE a >= 5 ROWS 3")
    assert {predicate.id: predicate.registrations for predicate in predicates.values()} == {2: 2}
    await put(core, JOINED)
    streams = core.follower.state.streams.values()
    assert {predicate.schema.name: predicate.registrations for predicate in streams} == {
        "s": 2,
        "t": 1,
    }


@pytest.mark.parametrize("after", [HIGH, COUNTS, JOINED, "SELECT a, b FROM t ROWS 2"])
@pytest.mark.parametrize("before", [LOW, COUNTS, JOINED])
async def test_a_copy_comes_whole_and_then_by_differences(
    core: Core, before: str, after: str
) -> None:
    (handle,) = (await put(core, before)).handles
    await rows(core, 0, 10)
    await rows(core, 0, 10, "t")
    copy = Copy()
    await recharged(core, handle, copy)
    await put(core, after)
    if before != after:
        begin = await recharged(core, handle, copy)
        assert (begin.mode, begin.reason) == (pb.SYNC_MODE_WHOLE, pb.SYNC_REASON_REPLACED)
    request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW)
    assert copy.sound() and copy.answer(copy.now) == await _answer(
        invoke(core, new_call(), request)
    )
    await rows(core, 10, 1)
    begin = await recharged(core, handle, copy)
    assert (begin.mode, begin.reason) == (pb.SYNC_MODE_UNSPECIFIED, pb.SYNC_REASON_UNSPECIFIED)


async def test_a_transfer_that_was_cut_begins_anew(core: Core) -> None:
    (handle,) = (await put(core, LOW)).handles
    await rows(core, -200, 300)
    copy = Copy()
    while not copy.resume:
        await recharged(core, handle, copy, budget=300)
    await put(core, HIGH)
    begin = await recharged(core, handle, copy)
    assert (begin.continued, begin.reason) == (False, pb.SYNC_REASON_REPLACED)
    assert copy.sound() and len(copy.rows) == 95


async def test_a_transfer_under_way_ends_without_its_end(core: Core) -> None:
    """None of its rows is of the other query, and what was sent is of no use."""
    (handle,) = (await put(core, LOW)).handles
    await rows(core, -200, 300)
    copy, part_count = Copy(), 0
    async for part in sync(core, new_call(9), pb.SyncRequest(items=[pb.SyncItem(handle=handle)])):
        copy.take(part)
        part_count += 1
        if part_count == 5:
            await put(core, HIGH)
        assert not part.HasField("end")
    assert copy.resume and part_count < 20
    begin = await recharged(core, handle, copy)
    assert begin.reason == pb.SYNC_REASON_REPLACED and copy.sound() and len(copy.rows) == 95


async def test_a_window_of_before_and_base_rows_are_replaced_too(core: Core) -> None:
    (handle,) = (await put(core, LOW)).handles
    await rows(core, 0, 10)
    for item in (pb.SyncItem(handle=handle, window="ROWS 3"), pb.SyncItem(handle=handle)):
        item.base_rows = not item.window
        parts = [part async for part in sync(core, new_call(9), pb.SyncRequest(items=[item]))]
        item.token = parts[-1].end.token
        await put(core, HIGH if item.window else LOW)
        parts = [part async for part in sync(core, new_call(9), pb.SyncRequest(items=[item]))]
        assert parts[0].begin.reason == pb.SYNC_REASON_REPLACED


async def test_a_watcher_wakes(core: Core) -> None:
    """Also where the other query has more legs, and nothing else has happened."""
    (handle,) = (await put(core, LOW)).handles
    await rows(core, 0, 10)
    await rows(core, 0, 10, "t")
    copy, ends = Copy(), 0
    request = pb.WatchRequest(sync=pb.SyncRequest(items=[pb.SyncItem(handle=handle)]), rounds=3)
    async with asyncio.timeout(240):
        async for part in watch(core, new_call(), request):
            copy.take(part)
            if part.HasField("begin") and ends:
                assert part.begin.reason == pb.SYNC_REASON_REPLACED
            if part.HasField("end"):
                await put(core, (JOINED, HIGH, LOW)[ends])
                ends += 1
    assert ends == 3 and copy.answer(copy.now) == [(n, "x") for n in range(5, 10)]


async def test_another_server_and_a_restart_know_it(core: Core, tmp_path: Path) -> None:
    (handle,) = (await put(core, LOW)).handles
    await rows(core, 0, 10)
    copy, second = Copy(), await opened(tmp_path)
    await recharged(second, handle, copy)
    await put(core, HIGH)
    await second.follower.catch_up()
    begin = await recharged(second, handle, copy)
    assert begin.reason == pb.SYNC_REASON_REPLACED
    await second.stop()
    third = await opened(tmp_path)
    begin = await recharged(third, handle, copy)
    assert begin.mode == pb.SYNC_MODE_UNSPECIFIED and found(third, handle).text == HIGH
    await third.stop()


@pytest.mark.parametrize("call", ["invoke", "sync", "explain"])
async def test_a_text_that_was_read_too_early_is_read_again(
    core: Core, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The query is replaced while its texts are read in a thread."""
    (handle,) = (await put(core, LOW)).handles
    await rows(core, 0, 10)
    in_thread = core.in_thread
    texts = [JOINED, HIGH]

    async def slowly(made_by: Any, work: Any, *arguments: Any) -> Any:
        outcome = await in_thread(made_by, work, *arguments)
        if texts and work.__name__ in ("read_texts", "_read_all"):
            await put(core, texts.pop(0))
        return outcome

    monkeypatch.setattr(core, "in_thread", slowly)
    if call == "invoke":
        request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW)
        answer = await _answer(invoke(core, new_call(), request))
    elif call == "sync":
        copy = Copy()
        assert (await recharged(core, handle, copy)).reason == pb.SYNC_REASON_FIRST
        answer = copy.answer(copy.now)
    else:
        explained = await explain(core, new_call(), pb.ExplainRequest(handle=handle))
        assert explained.legs[0].factors[0].text == "a >= 5"
        answer = [(n, "x") for n in range(5, 10)]
    assert found(core, handle).text == HIGH and answer == [(n, "x") for n in range(5, 10)]


@pytest.mark.parametrize("sql", ["SELECT a FROM s WHERE a > :p", "SELECT a + :p AS a FROM s"])
async def test_many_at_once(core: Core, sql: str) -> None:
    """Texts whose rows are one event, and texts whose rows are one event each."""

    async def many(text: str, replace: bool, **keys: int) -> Registered:
        table = rows_of(
            ["p", "client_key"],
            *([pb.Value(bigint=value), pb.Value(text=key)] for key, value in keys.items()),
        )
        return await register_many(
            core, new_call(), pb.RegisterManyRequest(sql=text, rows=table, replace=replace)
        )

    first = await many(sql, False, x=1, y=2)
    with pytest.raises(ClientKeyTaken):
        await many(sql, False, x=1, y=3, z=4)
    again = await many(sql, True, x=1, y=3, z=2)
    assert (again.handles[:2], again.created, again.replaced) == (first.handles, 1, 1)
    text = sql.replace("SELECT", "SELECT b,")
    third = await many(text, True, x=1, y=3, z=2)
    assert (third.handles, third.created, third.replaced) == (again.handles, 0, 3)
    state = core.follower.state
    assert {found(core, handle).text for handle in third.handles} == {text}
    assert sum(predicate.registrations for predicate in state.predicates.values()) == 3


async def test_replacing_is_a_contact(core: Core) -> None:
    (handle,) = (await put(core, LOW)).handles
    await asyncio.sleep(timedelta(milliseconds=2).total_seconds())
    await put(core, HIGH)
    after = found(core, handle)
    assert after.since == after.contact > after.stamp
