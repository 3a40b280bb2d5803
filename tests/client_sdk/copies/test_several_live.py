"""Copies of joins against a running store: they slide, and are what the store would say."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from client_sdk import Client, Copies
from tests.support.client_sdk.live import check_later

pytestmark = pytest.mark.process

QUERIES = {
    "join": "SELECT s.a, s.b, t.b AS other FROM s WINDOW(RANGE 3 SECONDS), t WINDOW(RANGE 1 HOUR) "
    "WHERE s.a = t.a",
    "names": "SELECT s.a, k.b AS name FROM s WINDOW(RANGE 2 SECONDS), k "
    "WHERE s.b = k.b ORDER BY k.b",
    "union": "SELECT a, b FROM s UNION ALL SELECT a, b FROM t RANGE 2 SECONDS",
    "groups": "SELECT t.b, count(*) AS n FROM s, t WHERE s.a = t.a GROUP BY t.b",
}
SLIDING = ("join", "names", "union")


STREAMS = [
    "CREATE STREAM s (a BIGINT, b TEXT) RETAIN 1 HOUR",
    "CREATE STREAM t (a BIGINT, b TEXT)",
    "CREATE STREAM k (a BIGINT, b TEXT) KEY (b)",
]


@pytest.fixture
def client(client: Client) -> Client:
    for sql in STREAMS:
        client.define(sql)
    return client


def publish(client: Client, begin: int, count: int) -> None:
    rows = [{"a": n % 5, "b": "xyz"[n % 3]} for n in range(begin, begin + count)]
    for stream in ("s", "t", "k"):
        client.publish(stream, rows)


def check(client: Client, copies: Copies, now: datetime) -> None:
    for name in SLIDING:
        copy = copies[name]
        answer = client.invoke(copy.handle or b"", as_of=now, knowledge="today").to_arrow()
        assert copy.to_arrow(now).to_pylist() == answer.to_pylist(), name


def test_copies_of_joins_are_what_the_store_would_answer(client: Client, tmp_path: Path) -> None:
    with Copies(tmp_path / "phone.db") as copies:
        for name, sql in QUERIES.items():
            copies.keep(name, sql)
        check_later(client, copies, publish, partial(check, client, copies), (0.0, 0.7, 1.3, 2.5))
        rows = client.invoke(copies["groups"].handle or b"").to_arrow()
        assert copies["groups"].to_arrow().to_pylist() == rows.to_pylist()
