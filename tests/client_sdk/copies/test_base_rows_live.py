"""Copies of base rows against a running store: at any later NOW they say what it would say."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from client_sdk import Client, Copies, Knowledge, NotComputable
from tests.support.client_sdk.live import check_later

pytestmark = pytest.mark.process

SECOND = timedelta(seconds=1)
QUERIES = {
    "groups": "SELECT b, count(*) AS n, sum(a) AS total, last(a) AS newest FROM s "
    "WHERE a <> :never GROUP BY b HAVING count(*) > 1 ORDER BY n DESC RANGE 2 SECONDS",
    "all": "SELECT count(*) AS n, avg(c) AS mean, stddev(a) AS d FROM s RANGE 1500 MILLISECONDS",
    "distinct": "SELECT DISTINCT b FROM s ORDER BY b DESC RANGE 3 SECONDS SLIDE 700 MILLISECONDS",
    "top": "SELECT a, c, ts FROM s ORDER BY c DESC, a LIMIT 4 OFFSET 1 RANGE 2 SECONDS",
    "gap": "SELECT min(a) AS least FROM s BEGIN NOW - 59 MINUTES END NOW - 1 SECOND",
    "percentiles": "SELECT left(b || '-' || b, 2) AS k, median(a) AS m, percentile(a, 0.95) AS p, "
    "variance(a) AS v, sum(sqrt(a) + greatest(a, 5)) AS r FROM s WHERE starts_with(b, 'x') "
    "OR strpos(b, 'y') > 0 GROUP BY k HAVING median(a) > 0 RANGE 2 SECONDS",
    "newest": "SELECT first(a) AS a FROM s ROWS 7",
    "each": "SELECT b, max(a) AS a FROM s GROUP BY b ROWS 2 PARTITION BY b",
    "refreshed": "SELECT b, count(*) AS n FROM s GROUP BY b RANGE 2 SECONDS REFRESH EVERY 1 SECOND",
    "selection": "SELECT a, b FROM s ORDER BY b, a DESC RANGE 2 SECONDS REFRESH EVERY 1 SECOND",
    "keyed": "SELECT count(*) AS n, max(a) AS most FROM k RANGE 2 SECONDS",
    "joined": "SELECT k.b, count(*) AS n, sum(s.a) AS total FROM s WINDOW(RANGE 2 SECONDS), k "
    "WHERE s.b = k.b GROUP BY k.b",
    "event": "SELECT b, sum(a) AS total FROM e GROUP BY b RANGE 20 SECONDS",
}


STREAMS = [
    "CREATE STREAM s (a BIGINT, b TEXT, c DECIMAL(10,2)) RETAIN 1 HOUR",
    "CREATE STREAM k (a BIGINT, b TEXT) KEY (b) RETAIN 1 HOUR",
    "CREATE STREAM e (a BIGINT, b TEXT, at TIMESTAMP) ORDERED BY at",
]


@pytest.fixture
def client(client: Client) -> Client:
    for sql in STREAMS:
        client.define(sql)
    return client


def publish(client: Client, begin: int, count: int) -> None:
    rows = [{"a": n, "b": "xyz"[n % 3]} for n in range(begin, begin + count)]
    client.publish("s", [{**row, "c": None if n % 5 else n} for n, row in enumerate(rows)])
    client.publish("k", rows)
    at = datetime(2026, 1, 5) + begin * SECOND
    client.publish("e", [{**row, "at": at + n * SECOND} for n, row in enumerate(rows)])


def test_at_later_instants_it_is_what_the_store_would_answer(
    client: Client, tmp_path: Path
) -> None:
    with Copies(tmp_path / "phone.db") as copies:
        for name, sql in QUERIES.items():
            parameters = {"never": 3} if name == "groups" else None
            copies.keep(name, sql, parameters=parameters, base_rows=True)
        check_later(client, copies, publish, partial(check, client, copies), (0.0, 0.4, 1.3, 1.9))


def check(client: Client, copies: Copies, instant: datetime) -> None:
    for name in QUERIES:
        copy, now = copies[name], None if name == "event" else instant
        knowledge: Knowledge = "then" if now is None else "today"
        answer = client.invoke(copy.handle or b"", as_of=now, knowledge=knowledge)
        table = copy.to_arrow(now)
        assert table.schema == answer.to_arrow().schema
        assert copy.rows(now) == answer.rows, (name, instant)
        assert [column.arrow for column in copy.state.columns] == table.schema.types
        counted = copy.query(f'SELECT count(*) AS n FROM "{name}"', now=now)
        assert counted == [{"n": len(answer)}]


def test_by_its_handle_alone_and_with_sql_over_the_answer(client: Client, tmp_path: Path) -> None:
    registered = client.register("SELECT b, max(a) AS most FROM e GROUP BY b ORDER BY b DESC")
    publish(client, 100, 6)
    with Copies(tmp_path / "phone.db") as copies:
        copy = copies.keep("most", handle=registered, base_rows=True)
        assert copies.sync(client).complete
        rows = client.invoke(registered).rows
        assert copy.rows() == rows and len(copy) == 3
        assert copies.query("SELECT b FROM most WHERE most >= 104") == [{"b": "z"}, {"b": "x"}]
        assert copy.query("SELECT * FROM most") == rows
        client.unregister(registered)
        assert copies.sync(client)["most"].status == "refused"
        assert copy.rows() == rows


def test_what_can_not_be_computed_is_refused_at_the_first_sync(
    client: Client, tmp_path: Path
) -> None:
    with Copies(tmp_path / "phone.db") as copies:
        copies.keep(
            "no", "SELECT count(*) AS n FROM s ROWS 5 REFRESH EVERY 5 SECONDS", base_rows=True
        )
        copies.keep("yes", "SELECT count(*) AS n FROM s", base_rows=True)
        synced = copies.sync(client)
        assert synced["yes"].status == "changed" and synced["no"].status == "refused"
        assert isinstance(synced["no"].error, NotComputable)


def test_a_watch_of_a_join_is_woken_by_rows_of_each_stream(client: Client, tmp_path: Path) -> None:
    publish(client, 0, 3)
    with Copies(tmp_path / "phone.db") as copies:
        text = "SELECT k.a, count(*) AS n FROM s, k WHERE s.b = k.b AND s.a <> 77 GROUP BY k.a"
        copy = copies.keep("joined", text, base_rows=True)
        watching = copies.watch(client)
        assert next(watching)["joined"].rows == 6
        client.publish("s", [{"a": 77, "b": "x", "c": None}])
        client.publish("s", [{"a": 7, "b": "x", "c": None}])
        assert next(watching)["joined"].rows == 1
        client.publish("k", [{"a": 70, "b": "x"}])
        assert (change := next(watching)["joined"]).rows == 1 and change.removed == 1
        assert copy.rows() == client.invoke(copy.handle or b"").rows
        watching.close()


def test_it_is_registered_again_where_the_registration_is_gone(
    client: Client, tmp_path: Path
) -> None:
    with Copies(tmp_path / "phone.db") as copies:
        copy = copies.keep("n", "SELECT count(*) AS n FROM s", base_rows=True)
        copies.sync(client)
        before = copy.handle
        client.unregister(before or b"")
        assert copies.sync(client).complete and copy.handle != before
        assert copy.rows() == client.invoke(copy.handle or b"").rows


def test_sync_sends_the_queue_first(client: Client, tmp_path: Path) -> None:
    with Copies(tmp_path / "phone.db") as copies:
        copy = copies.keep("n", "SELECT count(*) AS n FROM s WHERE a = -7")
        copies.publish("s", [{"a": -7, "b": "queued", "c": None}])
        assert copies.sync(client, send=False).sent.batches == 0 and copy.rows() == [{"n": 0}]
        synced = copies.sync(client)
        assert (synced.sent.rows, copy.rows()) == (1, [{"n": 1}])
