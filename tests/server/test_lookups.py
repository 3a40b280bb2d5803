"""Rows of a keyed stream as of the rows of another, and as known then; queries inside queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from client_sdk import Client, Copies
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

START = datetime(2026, 1, 1, tzinfo=UTC)
AS_OF = "SELECT t.symbol, n.name FROM ticks AS t, names AS OF t.ts AS n WHERE t.symbol = n.symbol"
KNOWN_AT = AS_OF.replace("AS OF t.ts", "AS KNOWN AT t")
LEFT = (
    "SELECT t.symbol, n.name FROM ticks AS t LEFT JOIN names AS OF t.ts AS n ON t.symbol = n.symbol"
)
TEXTS = {"as of": AS_OF, "known at": KNOWN_AT, "left": LEFT}


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.address, tenant=uuid4().hex) as client:
        client.define("CREATE STREAM ticks (symbol TEXT, at TIMESTAMP) ORDERED BY at")
        client.define(
            "CREATE STREAM names (symbol TEXT, name TEXT, at TIMESTAMP) ORDERED BY at KEY (symbol)"
        )
        yield client


def tick(client: Client, symbol: str, second: int) -> None:
    client.publish("ticks", [{"symbol": symbol, "at": START + timedelta(seconds=second)}])


def name(client: Client, symbol: str, text: str | None, second: int) -> None:
    """Names a share; without a text the name is deleted."""
    row = {"symbol": symbol, "name": text, "at": START + timedelta(seconds=second)}
    client.publish("names", [row | {"_op": "delete"} if text is None else row])


def answer(client: Client, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in client.ask(sql).rows]


def test_the_row_that_was_current_and_the_one_that_was_known(client: Client) -> None:
    with Copies.in_memory() as copies:
        for key, sql in TEXTS.items():
            copies.keep(key, sql)

        def holds(sql: str, expected: Sequence[tuple[str, str | None]]) -> None:
            """The answer, and a copy that is synced each time something has changed."""
            assert answer(client, sql) == list(expected)
            assert copies.sync(client).complete
            key = next(key for key, text in TEXTS.items() if text == sql)
            assert [tuple(row.values()) for row in copies[key].rows()] == list(expected)

        name(client, "SUN", "Sun", 0)
        tick(client, "SUN", 2)
        name(client, "SUN", None, 3)
        tick(client, "SUN", 4)
        # A tick keeps the name it had; one after the delete has none.
        holds(AS_OF, [("SUN", "Sun")])
        holds(LEFT, [("SUN", "Sun"), ("SUN", None)])

        tick(client, "NEW", 5)
        name(client, "NEW", "Newcomer", 6)
        # A name that comes later is never that of an earlier tick.
        holds(AS_OF, [("SUN", "Sun")])
        holds(KNOWN_AT, [("SUN", "Sun")])

        tick(client, "NEW", 6)
        # A row of the same instant counts.
        holds(AS_OF, [("SUN", "Sun"), ("NEW", "Newcomer")])
        holds(KNOWN_AT, [("SUN", "Sun"), ("NEW", "Newcomer")])

        name(client, "NEW", "Late", 4)
        # A late row changes what old ticks show, unless they show what was known.
        holds(AS_OF, [("SUN", "Sun"), ("NEW", "Late"), ("NEW", "Newcomer")])
        holds(KNOWN_AT, [("SUN", "Sun"), ("NEW", "Newcomer")])
        holds(LEFT, [("SUN", "Sun"), ("SUN", None), ("NEW", "Late"), ("NEW", "Newcomer")])


def test_rows_as_of_those_of_a_query(client: Client) -> None:
    """Of groups that name a ts, of a join, whose rows have the greatest, and of refreshed rows."""
    last = "SELECT symbol, max(ts) AS ts FROM ticks GROUP BY symbol"
    pairs = "SELECT a.symbol FROM ticks AS a, ticks AS b WHERE a.symbol = b.symbol AND a.ts < b.ts"
    refreshed = "SELECT symbol FROM ticks REFRESH EVERY 4 SECONDS"
    texts = {
        inner: AS_OF.replace("ticks AS t", f"({inner}) AS t") + " ORDER BY 1, 2"
        for inner in (last, pairs, refreshed)
    }
    with Copies.in_memory() as copies:
        for key, sql in texts.items():
            copies.keep(key, sql)

        def holds(inner: str, expected: Sequence[tuple[str, str]]) -> None:
            assert answer(client, texts[inner]) == list(expected)
            assert copies.sync(client).complete
            assert [tuple(row.values()) for row in copies[inner].rows()] == list(expected)

        name(client, "IBM", "Old", 0)
        for second in (1, 3, 5):
            tick(client, "IBM", second)
        holds(last, [("IBM", "Old")])
        holds(pairs, [("IBM", "Old")] * 3)
        holds(refreshed, [("IBM", "Old")] * 2)
        name(client, "IBM", "New", 4)
        holds(last, [("IBM", "New")])
        holds(pairs, [("IBM", "New")] * 2 + [("IBM", "Old")])
        holds(refreshed, [("IBM", "Old")] * 2)
        tick(client, "IBM", 9)
        holds(last, [("IBM", "New")])
        holds(refreshed, [("IBM", "New")] + [("IBM", "Old")] * 2)


def test_queries_over_groups_and_in_outputs(client: Client) -> None:
    for second, symbol in enumerate(["IBM", "SUN", "IBM", "IBM"]):
        tick(client, symbol, second)
    counts = "SELECT symbol, count(*) AS n FROM ticks GROUP BY symbol"
    assert answer(
        client, f"SELECT c.symbol, c.n FROM ({counts}) AS c WHERE c.n > 1 ORDER BY 1"
    ) == [("IBM", 3)]
    assert answer(
        client, "SELECT symbol, (SELECT count(*) FROM ticks) AS n FROM ticks ORDER BY ts LIMIT 2"
    ) == [("IBM", 4), ("SUN", 4)]
    assert answer(
        client,
        "SELECT symbol, count(*) AS n FROM ticks GROUP BY symbol"
        " HAVING count(*) >= ALL (SELECT count(*) FROM ticks GROUP BY symbol)",
    ) == [("IBM", 3)]
    assert answer(
        client,
        "SELECT DISTINCT t.symbol, CASE WHEN EXISTS (SELECT 1 FROM ticks AS u"
        " WHERE u.symbol = t.symbol AND u.ts > t.ts) THEN 'again' ELSE 'last' END AS w"
        " FROM ticks AS t ORDER BY 1, 2",
    ) == [("IBM", "again"), ("IBM", "last"), ("SUN", "last")]
