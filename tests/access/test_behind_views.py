"""What reaches a caller who may read a view, and not the streams behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from datastem.instants import SECOND
from psoup.access.principal import Principal
from psoup.errors import BadRequest, PermissionDenied, StreamDropped
from psoup.server.calls.define import define
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.calls.sync import sync
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.support.server.callers import NamedCaller, acting_as, new_call, open_server
from tests.support.server.process import ipc

START = 1_700_000_000 * SECOND
MINUTE = 60 * SECOND
BOSS = Principal("main", "boss", roles=frozenset({"administrator"}))
GUEST = Principal("main", "guest", roles=frozenset({"guest"}))
DELAYED = (
    "CREATE VIEW delayed AS SELECT symbol, price FROM quotes "
    "BEGIN NOW - 1 HOUR END NOW - 15 MINUTES"
)
QUOTES = "CREATE STREAM quotes (symbol TEXT, price BIGINT)"
TIMED_QUOTES = (
    "CREATE STREAM quotes (symbol TEXT, price BIGINT, at TIMESTAMP) ORDERED BY at AHEAD 1 HOUR"
)


class Exchange:
    """A server whose clock the test sets, called by an administrator and by a guest."""

    def __init__(self, path: Path) -> None:
        self.clock = START
        settings = Settings(path, durability="none")
        self.core = Core(Store.open(path, create=True, sync=False), settings, lambda: self.clock)

    async def define(self, *texts: str) -> None:
        with acting_as(BOSS):
            for sql in texts:
                await define(self.core, new_call(), pb.DefineRequest(sql=sql))

    async def grant(self, name: str) -> None:
        await self.define(f"GRANT read, register ON {name} TO ROLE guest")

    async def publish(self, stream: str, **columns: Any) -> None:
        with acting_as(BOSS):
            request = pb.PublishRequest(stream=stream, arrow=ipc(pa.table(columns)))
            await publish(self.core, new_call(), request)

    async def register(self, sql: str, caller: Principal = GUEST) -> bytes:
        with acting_as(caller):
            response, *_ = await register(self.core, new_call(), pb.RegisterRequest(sql=sql))
            return bytes(response.handles[0])

    async def ask(self, sql: str, **fields: Any) -> list[tuple[Any, ...]]:
        with acting_as(GUEST):
            request = pb.AskRequest(sql=sql, encoding=pb.ENCODING_ARROW, **fields)
            messages = [message async for message in ask(self.core, new_call(), request)]
        parts = [
            message if isinstance(message, bytes) else message.SerializeToString()
            for message in messages
        ]
        content = b"".join(pb.InvokeResponse.FromString(part).arrow for part in parts)
        return [tuple(row.values()) for row in pa.ipc.open_stream(content).read_all().to_pylist()]

    async def sync(
        self, handle: bytes, copy: Copy, caller: Principal = GUEST, **fields: Any
    ) -> list[pb.SyncPart]:
        away = fields.pop("away", None)
        item = pb.SyncItem(handle=handle, token=copy.resume or copy.token, **fields)
        request = pb.SyncRequest(items=[item], away=away and Duration(seconds=away))
        with acting_as(caller):
            parts = [reply async for reply in sync(self.core, new_call(), request)]
        for part in parts:
            if not part.HasField("refused"):
                copy.take(part)
        return parts


@pytest.fixture
async def exchange(tmp_path: Path) -> AsyncIterator[Exchange]:
    exchange = Exchange(tmp_path / "store")
    await exchange.core.start()
    yield exchange
    await exchange.core.stop()


def _timestamp(micros: int) -> Timestamp:
    return Timestamp(seconds=micros // SECOND, nanos=micros % SECOND * 1000)


def good_until(copy: Copy) -> int | None:
    assert copy.end is not None
    instant = copy.end.good_until
    is_set = copy.end.HasField("good_until")
    return instant.seconds * 10**6 + instant.nanos // 1000 if is_set else None


# ---- rows that a view's window keeps back


@pytest.mark.parametrize("away", [None, 7200])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM delayed",
        "SELECT d.price FROM delayed d JOIN delayed e ON d.symbol = e.symbol",
        "SELECT price FROM delayed UNION ALL SELECT price FROM delayed",
    ],
)
async def test_a_row_of_a_delayed_view_is_sent_when_the_view_shows_it(
    exchange: Exchange, sql: str, away: int | None
) -> None:
    await exchange.define(QUOTES, DELAYED)
    await exchange.grant("delayed")
    await exchange.publish("quotes", symbol=["a"], price=[1])
    handle, copy = await exchange.register(sql), Copy()
    exchange.clock += 5 * MINUTE
    await exchange.publish("quotes", symbol=["b"], price=[2])
    for _ in range(3):
        await exchange.sync(handle, copy, away=away)
        assert copy.rows == {} == {row: None for row in await exchange.ask(sql)}
        entry = good_until(copy)
        assert entry is not None and exchange.clock < entry
        exchange.clock = entry - 1
        await exchange.sync(handle, copy, away=away)
        assert copy.rows == {} and good_until(copy) == entry
        exchange.clock = entry
        await exchange.sync(handle, copy, away=away)
        rows = await exchange.ask(sql)
        assert rows and copy.answer(exchange.clock) == rows and len(copy.rows) == len(rows)
        exchange.clock += 2 * 60 * MINUTE
        await exchange.publish("quotes", symbol=["c"], price=[3])
        await exchange.sync(handle, copy, away=away)


async def test_a_row_of_a_delayed_view_over_event_time_is_sent_when_the_view_shows_it(
    exchange: Exchange,
) -> None:
    await exchange.define(TIMED_QUOTES, DELAYED)
    await exchange.grant("delayed")
    handle, copy = await exchange.register("SELECT * FROM delayed"), Copy()
    for minute in range(0, 40, 5):
        at = pa.array([START + minute * MINUTE]).view("timestamp[us]")
        await exchange.publish("quotes", symbol=["a"], price=[minute], at=at)
        await exchange.sync(handle, copy)
        assert [row.values[1] for row in copy.rows.values()] == [*range(0, minute - 14, 5)]
        assert copy.answer(copy.now) == await exchange.ask("SELECT * FROM delayed")
        assert good_until(copy) is None


async def test_a_window_of_the_caller_s_own_sends_ahead_through_a_view(exchange: Exchange) -> None:
    await exchange.define(QUOTES, "CREATE VIEW prices AS SELECT price FROM quotes")
    await exchange.grant("prices")
    sql = "SELECT price FROM prices BEGIN NOW - 1 HOUR END NOW - 15 MINUTES"
    handle, copy = await exchange.register(sql), Copy()
    await exchange.publish("quotes", symbol=["a"], price=[1])
    await exchange.sync(handle, copy)
    assert copy.answer(copy.now) == [] and len(copy.rows) == 1
    assert await exchange.ask("SELECT price FROM prices") == [(1,)]


async def test_rows_that_were_sent_ahead_leave_with_the_right_to_read_the_stream(
    exchange: Exchange,
) -> None:
    await exchange.define(QUOTES, DELAYED)
    await exchange.grant("delayed")
    await exchange.grant("quotes")
    handle, copy = await exchange.register("SELECT * FROM delayed"), Copy()
    await exchange.publish("quotes", symbol=["a"], price=[1])
    await exchange.sync(handle, copy)
    assert len(copy.rows) == 1, "who may read the stream has the row ahead"
    await exchange.define("REVOKE read ON quotes FROM ROLE guest")
    begin, *_ = await exchange.sync(handle, copy)
    assert begin.begin.reason == pb.SYNC_REASON_PERMISSION and copy.rows == {}
    await exchange.grant("quotes")
    await exchange.sync(handle, copy)
    assert len(copy.rows) == 1


async def test_a_watch_is_sent_a_row_when_the_view_shows_it(tmp_path: Path) -> None:
    async with open_server(tmp_path / "store") as (_, stub):
        boss = NamedCaller(stub, "main", "boss", ("administrator",))
        guest = NamedCaller(stub, "main", "guest", ("guest",))
        await boss.define(QUOTES)
        await boss.define(
            "CREATE VIEW late AS SELECT price FROM quotes RANGE 1 HOUR SLIDE 2 SECONDS"
        )
        await boss.define("GRANT read, register ON late TO ROLE guest")
        handle = await guest.register("SELECT price FROM late")
        await boss.publish("quotes", symbol=["a"], price=[1])
        request = pb.WatchRequest(sync=pb.SyncRequest(items=[pb.SyncItem(handle=handle)]))
        copy, watch = Copy(), stub.Watch(request, metadata=guest.metadata, timeout=240)
        async for part in watch:
            copy.take(part)
            if part.HasField("end"):
                now = copy.now
                assert now is not None and all(row.visible(now) for row in copy.rows.values())
                if copy.rows:
                    break
        watch.cancel()


async def test_no_instant_that_is_asked_for_goes_past_the_view_s_now(exchange: Exchange) -> None:
    stream_sql = "CREATE STREAM mine (a BIGINT, at TIMESTAMP) ORDERED BY at"
    await exchange.define(TIMED_QUOTES, DELAYED, stream_sql)
    await exchange.grant("delayed")
    await exchange.grant("mine")
    exchange.clock += 60 * MINUTE
    for minute in (0, 20):
        at = pa.array([START + minute * MINUTE]).view("timestamp[us]")
        await exchange.publish("quotes", symbol=["a"], price=[minute], at=at)
    ahead = pa.array([START, START + 50 * MINUTE]).view("timestamp[us]")
    await exchange.publish("mine", a=[1, 2], at=ahead)
    for sql in (
        "SELECT price FROM delayed, mine",
        "SELECT price FROM delayed, mine WINDOW(RANGE 2 HOURS)",
    ):
        assert await exchange.ask(sql, latest=True) == [(0,)]
    sql = "SELECT price FROM delayed"
    assert await exchange.ask(sql, latest=True) == [(0,)]
    today = {"knowledge": pb.KNOWLEDGE_TODAY}
    assert await exchange.ask(sql, as_of=_timestamp(START + 20 * MINUTE), **today) == [(0,)]
    for minute in (21, 50):
        with pytest.raises(BadRequest, match="as_of lies in the future"):
            await exchange.ask(sql, as_of=_timestamp(START + minute * MINUTE), **today)
    await exchange.grant("quotes")
    later = _timestamp(START + 40 * MINUTE)
    assert await exchange.ask(sql, as_of=later, **today) == [(0,), (20,)]


async def test_a_view_s_refresh_points_hold_for_who_may_not_look_behind_it(
    exchange: Exchange,
) -> None:
    await exchange.define(
        QUOTES, "CREATE VIEW hourly AS SELECT price FROM quotes REFRESH EVERY 1 HOUR"
    )
    await exchange.grant("hourly")
    await exchange.publish("quotes", symbol=["a"], price=[1])
    for sql in ("SELECT price FROM hourly", "SELECT count(*) AS n FROM hourly REFRESH EVERY 1 DAY"):
        with pytest.raises(PermissionDenied):
            await exchange.ask(sql, unrefreshed=True)
    await exchange.grant("quotes")
    assert await exchange.ask("SELECT price FROM hourly", unrefreshed=True) == [(1,)]


async def test_refresh_points_of_the_caller_s_own_may_be_left_out_through_a_view(
    exchange: Exchange,
) -> None:
    await exchange.define(QUOTES, "CREATE VIEW prices AS SELECT price FROM quotes")
    await exchange.grant("prices")
    await exchange.publish("quotes", symbol=["a"], price=[1])
    sql = "SELECT price FROM prices REFRESH EVERY 1 HOUR"
    assert await exchange.ask(sql) == []
    assert await exchange.ask(sql, unrefreshed=True) == [(1,)]


# ---- columns that a view hides

STAFF = "CREATE STREAM staff (dept TEXT, salary BIGINT)"
RICH = "CREATE VIEW rich AS SELECT dept, salary > 50 AS rich FROM staff"
GROUPED = "SELECT rich, count(*) AS n FROM rich GROUP BY rich"


async def _staff(exchange: Exchange) -> None:
    await exchange.define(STAFF, RICH)
    await exchange.grant("rich")
    await exchange.publish("staff", dept=["a", "b"], salary=[40, 60])


def _refused(parts: list[pb.SyncPart]) -> tuple[int, str]:
    (part,) = parts
    return part.refused.code, part.refused.detail.reason


@pytest.mark.parametrize(
    "sql",
    [
        GROUPED,
        "SELECT DISTINCT rich FROM rich",
        "SELECT rich FROM rich ORDER BY rich LIMIT 1",
        "SELECT dept FROM rich",
        "SELECT count(*) AS n FROM (SELECT dept FROM rich) AS inner_rows",
        "SELECT count(*) AS n FROM rich r JOIN rich q ON r.dept = q.dept",
    ],
)
async def test_base_rows_are_refused_to_who_reads_through_a_view_only(
    exchange: Exchange, sql: str
) -> None:
    await _staff(exchange)
    handle, copy = await exchange.register(sql), Copy()
    for _ in range(2):
        parts = await exchange.sync(handle, copy, base_rows=True)
        assert _refused(parts) == (grpc.StatusCode.PERMISSION_DENIED.value[0], "PERMISSION_DENIED")
    await exchange.sync(handle, copy)
    assert copy.answer(copy.now) == await exchange.ask(sql)


async def test_who_may_read_the_stream_has_base_rows_until_that_ends(exchange: Exchange) -> None:
    await _staff(exchange)
    await exchange.grant("staff")
    handle, copy = await exchange.register(GROUPED), Copy()
    await exchange.sync(handle, copy, base_rows=True)
    assert sorted(row.values[1] for row in copy.rows.values()) == [40, 60]
    await exchange.define("REVOKE read ON staff FROM ROLE guest")
    begin, *_ = await exchange.sync(handle, copy, base_rows=True)
    assert begin.begin.reason == pb.SYNC_REASON_PERMISSION and copy.rows == {}
    parts = await exchange.sync(handle, copy, base_rows=True)
    assert _refused(parts)[1] == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(n) AS n FROM (SELECT count(*) AS n FROM staff GROUP BY dept) AS counted",
        "SELECT sum(n) AS n FROM counted",
        "SELECT count(*) AS n FROM staff s JOIN staff t ON s.dept = t.dept",
    ],
)
async def test_base_rows_of_several_legs_are_for_who_may_read_all_their_rows(
    exchange: Exchange, sql: str
) -> None:
    await _staff(exchange)
    await exchange.define("CREATE VIEW counted AS SELECT count(*) AS n FROM staff GROUP BY dept")
    for name in ("staff", "counted"):
        await exchange.grant(name)
    handle, copy = await exchange.register(sql), Copy()
    await exchange.sync(handle, copy, base_rows=True)
    assert copy.rows and copy.columns[0].name == "$leg"
    await exchange.define("CREATE POLICY mine ON staff USING (dept = claim('dept'))")
    begin, *_ = await exchange.sync(handle, copy, base_rows=True)
    assert begin.begin.reason == pb.SYNC_REASON_PERMISSION and not copy.rows
    parts = await exchange.sync(handle, copy, base_rows=True)
    assert _refused(parts)[1] == "PERMISSION_DENIED" and not copy.rows


async def test_numbers_made_from_hidden_values_can_not_be_found_by_trying(
    exchange: Exchange,
) -> None:
    await exchange.define(
        "CREATE STREAM people (ssn BIGINT, name TEXT) KEY (ssn)",
        "CREATE VIEW names AS SELECT name FROM people",
        "CREATE VIEW sizes AS SELECT count(*) AS n FROM people GROUP BY ssn",
        "CREATE VIEW once AS SELECT name FROM (SELECT ssn, name FROM people UNION SELECT ssn, name "
        "FROM people) AS both",
    )
    for name in ("names", "sizes", "once"):
        await exchange.grant(name)
    await exchange.publish("people", ssn=[123, 456], name=["a", "b"])
    for sql in ("SELECT name FROM names", "SELECT n FROM sizes", "SELECT name FROM once"):
        copies = []
        for caller in (GUEST, BOSS):
            handle, copy = await exchange.register(sql, caller), Copy()
            await exchange.sync(handle, copy, caller, changes=True)
            copies.append(copy)
        numbers, open_numbers = (
            {(row.key or row.row_id, row.sort_key[-8:]) for row in copy.rows.values()}
            for copy in copies
        )
        for guest, boss in zip(
            zip(*numbers, strict=True), zip(*open_numbers, strict=True), strict=True
        ):
            assert b"" in guest or not set(guest) & set(boss), sql
        assert copies[0].answer(copies[0].now) == await exchange.ask(sql)
    handle, copy = await exchange.register("SELECT name FROM names"), Copy()
    await exchange.sync(handle, copy, changes=True)
    keys = {row.key for row in copy.rows.values()}
    await exchange.publish("people", ssn=[123], name=["c"])
    await exchange.sync(handle, copy, changes=True)
    assert {row.key for row in copy.rows.values()} == keys, "a key is the same in each sync"


# ---- streams and views that are dropped and made again


@pytest.mark.parametrize("kind", ["STREAM", "VIEW"])
async def test_a_copy_goes_on_after_drop_create_and_grant(exchange: Exchange, kind: str) -> None:
    definition = f"CREATE {kind} named " + (
        "(a BIGINT)" if kind == "STREAM" else "AS SELECT a FROM s"
    )
    await exchange.define("CREATE STREAM s (a BIGINT)", definition)
    await exchange.grant("named")
    sql = "SELECT a FROM named"
    handle, copy = await exchange.register(sql), Copy()
    await exchange.publish("named" if kind == "STREAM" else "s", a=[1])
    await exchange.sync(handle, copy)
    assert len(copy.rows) == 1
    await exchange.define(f"DROP {kind} named")
    await exchange.sync(handle, copy)
    assert copy.rows == {}, "whose grant ended with it has none of its rows"
    await exchange.define(definition)
    await exchange.sync(handle, copy)
    assert copy.rows == {}, "nobody has granted the new one"
    await exchange.grant("named")
    assert _refused(await exchange.sync(handle, copy))[1] == "STREAM_DROPPED"
    with pytest.raises(StreamDropped), acting_as(GUEST):
        await anext(invoke(exchange.core, new_call(), pb.InvokeRequest(handle=handle)))
    handle = await exchange.register(sql)
    await exchange.sync(handle, copy)
    assert copy.answer(copy.now) == await exchange.ask(sql)
