"""SQL over copies, whether they are in a file or in memory."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from client_sdk import (
    Copies,
    LocalQueryProblem,
)
from tests.client_sdk.copies.trades import trade
from tests.support.client_sdk.inside import InsideStore


def test_sql_over_a_copy_and_over_several(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("IBM", 184.5), trade("IBM", 101.0), trade("X", 3.0)])
    trade_copies.sync(store.client)
    top = trade_copies["dear"].query("SELECT symbol, max(price) AS top FROM dear GROUP BY symbol")
    assert top == [{"symbol": "IBM", "top": 184.5}]
    joined = trade_copies.query(
        "SELECT counts.symbol, n, price FROM counts LEFT JOIN dear USING (symbol) "
        "WHERE counts.symbol = :symbol ORDER BY price",
        {"symbol": "IBM"},
    )
    assert joined == [
        {"symbol": "IBM", "n": 2, "price": 101.0},
        {"symbol": "IBM", "n": 2, "price": 184.5},
    ]
    store.wait(601)
    assert trade_copies.query("SELECT count(*) AS n FROM dear") == [{"n": 0}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nothing FROM dear",
        "SELECT * FROM nowhere",
        "DELETE FROM dear",
        "DELETE FROM _psoup_copies",
        "DROP TABLE _psoup_copies",
        "PRAGMA user_version = 7",
        "ATTACH 'x.db' AS x",
        "CREATE TEMP TABLE t (a)",
        "SELECT 1; SELECT 2",
        "SELEC",
        "SELECT * FROM dear WHERE price > ?",
        "",
    ],
)
def test_sql_that_is_wrong_or_writes(store: InsideStore, trade_copies: Copies, sql: str) -> None:
    trade_copies.sync(store.client)
    if sql:
        with pytest.raises(LocalQueryProblem):
            trade_copies.query(sql)
    else:
        assert trade_copies.query(sql) == []
    assert trade_copies.sync(store.client).complete


def test_values_in_sql(store: InsideStore, copies: Copies) -> None:
    store.client.define(
        "CREATE STREAM v (t TEXT, x DOUBLE, d DECIMAL(20,3), at TIMESTAMP, day DATE, yes BOOLEAN)"
    )
    copies.keep("v", "SELECT * FROM v UNBOUNDED")
    at = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    early = datetime(1, 1, 1, tzinfo=UTC)
    names = ("t", "x", "d", "at", "day", "yes")
    rows = [
        ("a", 1.5, Decimal("12.5"), at, date(2024, 2, 29), True),
        (None, float("nan"), None, None, None, None),
        ("c", -0.0, Decimal(-3), early, date(1, 1, 1), False),
    ]
    store.client.publish("v", [dict(zip(names, row, strict=True)) for row in rows])
    copies.sync(store.client)
    selected = copies.query("SELECT * FROM v")
    assert selected[0] == {
        "t": "a",
        "x": 1.5,
        "d": 12.5,
        "at": "1969-12-31 23:59:59.999999",
        "day": "2024-02-29",
        "yes": 1,
    }
    assert list(selected[1].values()) == [None, "NaN", None, None, None, None]
    assert (selected[2]["at"], selected[2]["day"]) == ("0001-01-01 00:00:00.000000", "0001-01-01")
    for condition, value in (("at = ?", at), ("at = ?", early), ("day = ?", date(2024, 2, 29))):
        assert len(copies.query(f"SELECT t FROM v WHERE {condition}", [value])) == 1
    assert copies.query("SELECT t FROM v WHERE d > ?", [Decimal(12)]) == [{"t": "a"}]
