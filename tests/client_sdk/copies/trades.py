"""A stream, two queries over it, and what their copies have to be."""

from __future__ import annotations

from typing import Any

from client_sdk import Copies
from tests.support.client_sdk.inside import InsideStore

TRADES = "CREATE STREAM trades (symbol TEXT, price DOUBLE, size BIGINT) RETAIN 1 DAY"
DEAR = "SELECT symbol, price FROM trades WHERE price > 100 RANGE 10 MINUTES"
COUNTS = "SELECT symbol, count(*) AS n FROM trades GROUP BY symbol RANGE 10 MINUTES"


def trade(symbol: str, price: float, size: int = 1) -> dict[str, Any]:
    return {"symbol": symbol, "price": price, "size": size}


def check(store: InsideStore, copies: Copies) -> None:
    """Every copy is what the store answers now."""
    for name in copies:
        handle = copies[name].handle
        assert handle is not None
        assert copies[name].to_arrow().equals(store.client.invoke(handle).to_arrow())
