"""Row policies that say when a row is visible: no row comes before its instant, whichever door is
taken, and none stays after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from datastem.instants import SECOND, from_micros
from psoup.access.principal import Principal
from psoup.errors import ServerError
from psoup.server.calls.explain import explain
from psoup.server.calls.publish import publish
from psoup.server.calls.watch import watch
from psoup.v1 import psoup_pb2 as pb
from querystem.language import QueryError
from tests.access.test_behind_views import MINUTE, Exchange, good_until
from tests.oracle.copy import Copy
from tests.support.server.callers import acting_as, new_call
from tests.support.server.process import ipc

READER = Principal("main", "reader", roles=frozenset({"developer"}), claims={"team": "a"})
NEWS = "CREATE STREAM news (id BIGINT, title TEXT, out TIMESTAMP, gone TIMESTAMP)"
OUT = "CREATE POLICY released ON {} USING (out <= NOW AND gone > NOW)"


class Embargoed(Exchange):
    """Asks as a reader whom policies bind."""

    async def news(self, *minutes: int, stream: str = "news", until: int = 90) -> None:
        """Publish a row for each number of minutes from now on."""
        out = [from_micros(self.clock + minute * MINUTE) for minute in minutes]
        gone = [from_micros(self.clock + (minute + until) * MINUTE) for minute in minutes]
        titles = [f"secret {minute}" for minute in minutes]
        await self.publish(stream, id=[*minutes], title=titles, out=out, gone=gone)


@pytest.fixture
async def exchange(tmp_path: Path) -> AsyncIterator[Embargoed]:
    exchange = Embargoed(tmp_path / "store")
    await exchange.core.start()
    await exchange.define(
        NEWS, NEWS.replace("news", "board") + " KEY (id)", OUT.format("news"), OUT.format("board")
    )
    for name in ("news", "board"):
        await exchange.define(f"GRANT read, register ON {name} TO ROLE guest")
    yield exchange
    await exchange.core.stop()


QUERIES = (
    ("SELECT title FROM {}", lambda n: [(f"secret {m}",) for m in range(n)]),
    ("SELECT title FROM {} RANGE 2 HOURS", lambda n: [(f"secret {m}",) for m in range(n)]),
    ("SELECT count(*) AS n, max(title) AS t FROM {}", lambda n: [(n, f"secret {n - 1}")]),
    ("SELECT title FROM {} ROWS 1", lambda n: [(f"secret {n - 1}",)]),
    ("SELECT DISTINCT title FROM {}", lambda n: [(f"secret {m}",) for m in range(n)]),
    (
        "SELECT x.title FROM {0} x JOIN {0} y ON x.id = y.id",
        lambda n: [(f"secret {m}",) for m in range(n)],
    ),
    (
        "SELECT title FROM {0} WHERE out = (SELECT max(out) FROM {0})",
        lambda n: [(f"secret {n - 1}",)],
    ),
)


@pytest.mark.parametrize("stream", ["news", "board"])
@pytest.mark.parametrize("sql, answer", QUERIES)
async def test_no_row_comes_before_its_instant(
    exchange: Embargoed, stream: str, sql: str, answer: Callable[[int], list[Any]]
) -> None:
    sql = sql.format(stream)
    await exchange.news(0, 1, 2, stream=stream)
    handle, copy = await exchange.register(sql), Copy()
    for count in (1, 2, 3):
        assert await exchange.ask(sql) == answer(count)
        parts = await exchange.sync(handle, copy, away=3600)
        sent = b"".join(part.SerializeToString() for part in parts)
        assert b"secret 0" in sent or count > 1
        for minute in range(count, 3):
            assert b"secret %d" % minute not in sent
        assert sorted(row.values for row in copy.rows.values()) == answer(count)
        # Nor is a client told when the next row comes.
        assert good_until(copy) != exchange.clock + MINUTE
        exchange.clock += MINUTE
    exchange.clock += 90 * MINUTE
    await exchange.sync(handle, copy)
    assert await exchange.ask(sql) == [row.values for row in copy.rows.values()]
    assert b"secret" not in repr(copy.rows).encode()


async def test_rows_go_at_their_instant(exchange: Embargoed) -> None:
    await exchange.news(0, 1, until=10)
    handle, copy = await exchange.register("SELECT count(*) AS n FROM news"), Copy()
    exchange.clock += MINUTE
    await exchange.sync(handle, copy)
    assert copy.answer(exchange.clock) == [(2,)]
    assert good_until(copy) == exchange.clock + 9 * MINUTE
    exchange.clock += 9 * MINUTE
    await exchange.sync(handle, copy)
    assert copy.answer(exchange.clock) == [(1,)]


async def test_an_earlier_instant_shows_what_may_be_seen_now(exchange: Embargoed) -> None:
    await exchange.news(0, until=5)
    before = exchange.clock
    exchange.clock += 6 * MINUTE
    await exchange.news(0)
    as_of = pb.AskRequest(sql="").as_of
    as_of.FromMicroseconds(before)
    assert await exchange.ask("SELECT title FROM news", as_of=as_of) == []
    as_of.FromMicroseconds(exchange.clock - MINUTE)
    assert await exchange.ask("SELECT title FROM news", as_of=as_of) == []


async def test_between_two_refresh_points_a_row_is_hidden_at_its_instant(
    exchange: Embargoed,
) -> None:
    sql = "SELECT title FROM news REFRESH EVERY 1 HOUR"
    await exchange.news(0, 5, until=10)
    exchange.clock += 60 * MINUTE - exchange.clock % (60 * MINUTE)
    await exchange.news(-6, -1, 3, until=10)
    exchange.clock += 60 * MINUTE - exchange.clock % (60 * MINUTE)
    assert await exchange.ask(sql) == []
    await exchange.news(0, 5, until=10)
    exchange.clock += 60 * MINUTE
    handle, copy = await exchange.register(sql), Copy()
    for _ in range(3):
        await exchange.sync(handle, copy)
        assert await exchange.ask(sql) == [row.values for row in copy.rows.values()]
        exchange.clock += 5 * MINUTE


async def test_a_policy_is_the_same_at_every_instant(exchange: Embargoed) -> None:
    await exchange.news(0, 1)
    handle, copy = await exchange.register("SELECT title FROM news"), Copy()
    await exchange.sync(handle, copy)
    exchange.clock += 2 * MINUTE
    parts = await exchange.sync(handle, copy)
    assert parts[0].begin.reason == pb.SYNC_REASON_UNSPECIFIED
    assert parts[0].begin.mode == pb.SYNC_MODE_UNSPECIFIED


async def test_claims_stand_beside_now(exchange: Embargoed) -> None:
    await exchange.define(
        "CREATE STREAM notes (team TEXT, out TIMESTAMP)",
        "CREATE POLICY own ON notes USING (team = claim('team') AND out < NOW)",
        "CREATE POLICY old ON notes USING (out < NOW - INTERVAL '1' HOUR)",
        "GRANT read, register ON notes TO ROLE guest",
    )
    out = [from_micros(exchange.clock + minute * MINUTE) for minute in (-90, -90, -5, -5, 5)]
    await exchange.publish("notes", team=["a", "b", "a", "b", "a"], out=out)
    with acting_as(READER):
        handle, copy = await exchange.register("SELECT team FROM notes", READER), Copy()
        await exchange.sync(handle, copy, READER)
    assert sorted(row.values for row in copy.rows.values()) == [("a",), ("a",), ("b",)]
    assert sorted(await exchange.ask("SELECT team FROM notes")) == [("a",), ("b",)]


async def test_a_watch_is_woken_when_a_row_may_be_seen(exchange: Embargoed) -> None:
    await exchange.news(0, 1)
    handle, copy = await exchange.register("SELECT title FROM news", READER), Copy()
    request = pb.WatchRequest(sync=pb.SyncRequest(items=[pb.SyncItem(handle=handle)]), rounds=2)
    with acting_as(READER):
        async for part in watch(exchange.core, new_call(), request):
            copy.take(part)
            if part.HasField("end"):
                exchange.clock += MINUTE
    assert sorted(row.values for row in copy.rows.values()) == [("secret 0",), ("secret 1",)]


async def test_edits_are_held_against_the_rows_that_may_be_seen(exchange: Embargoed) -> None:
    """As with other policies, whoever may publish may replace a row; only a patch or a condition
    reads the row beneath it."""
    await exchange.define("GRANT publish ON board TO ROLE guest")
    await exchange.news(5, stream="board")
    row = pa.table({"id": [5], "title": ["mine"], "_op": ["patch"]})
    guest = Principal("main", "guest", roles=frozenset({"guest"}))
    request = pb.PublishRequest(stream="board", arrow=ipc(row))
    with acting_as(guest), pytest.raises(ServerError):
        await publish(exchange.core, new_call(), request)
    exchange.clock += 5 * MINUTE
    with acting_as(guest):
        await publish(exchange.core, new_call(), request)


async def test_event_time_moves_the_policies_of_its_stream(exchange: Embargoed) -> None:
    await exchange.define(
        "CREATE STREAM marks (n BIGINT, at TIMESTAMP, out TIMESTAMP) ORDERED BY at LEAD 1 DAY",
        "CREATE POLICY released ON marks USING (out <= NOW)",
        "GRANT read, register ON marks TO ROLE guest",
    )
    start = exchange.clock - 10 * SECOND
    handle, copy = await exchange.register("SELECT n FROM marks"), Copy()
    for second in range(4):
        at, out = from_micros(start + second * SECOND), from_micros(start + 2 * second * SECOND)
        await exchange.publish("marks", n=[second], at=[at], out=[out])
        await exchange.sync(handle, copy)
        expected = [(n,) for n in range(second + 1) if 2 * n <= second]
        assert await exchange.ask("SELECT n FROM marks") == expected
        assert sorted(row.values for row in copy.rows.values()) == expected


async def test_explain_counts_only_what_may_be_seen(exchange: Embargoed) -> None:
    await exchange.news(0, 1, 2)
    handle = await exchange.register("SELECT title FROM news", READER)
    with acting_as(READER):
        explained = await explain(exchange.core, new_call(), pb.ExplainRequest(handle=handle))
    assert explained.run.answer_rows == 1


@pytest.mark.parametrize(
    "condition",
    [
        "out < NOW OR title = 'x'",
        "NOT (out < NOW AND title = 'x')",
        "CASE WHEN out < NOW THEN TRUE ELSE FALSE END",
        "NOW < TIMESTAMP '2030-01-01'",
        "CAST(claim('until') AS TIMESTAMP) > NOW",
        "out + INTERVAL '1' HOUR * id > gone AND out <> NOW",
    ],
)
async def test_any_other_use_of_now_is_refused(exchange: Embargoed, condition: str) -> None:
    with pytest.raises(QueryError, match="not yet supported"):
        await exchange.define(f"CREATE POLICY p ON news USING ({condition})")
