"""Changes that time alone makes: rows that enter and leave by themselves."""

from __future__ import annotations

from datetime import timedelta

from client_sdk import Copies
from tests.client_sdk.copies.rooms import read, short
from tests.client_sdk.copies.trades import DEAR, TRADES, trade
from tests.support.client_sdk.inside import InsideStore

MINUTE = timedelta(minutes=1)


def test_rows_leave_by_themselves_in_the_order_of_their_instants(
    store: InsideStore, trade_copies: Copies
) -> None:
    trade_copies.keep("dear", DEAR, changes=True)
    trade_copies.sync(store.client)
    for price in (101.0, 103.0, 102.0):
        store.wait(60)
        store.client.publish("trades", [trade("IBM", price)])
        trade_copies.sync(store.client)
    begun = store.now()
    read(trade_copies, "dear")
    store.line.calls.clear()
    store.wait(500)
    assert [(change.tag, change.why) for change in read(trade_copies, "dear")] == [("-", "left")]
    store.wait(600)
    departures = read(trade_copies, "dear")
    assert short(departures) == ["-IBM 103.0", "-IBM 102.0"]
    assert [change.at and change.at - begun for change in departures] == [9 * MINUTE, 10 * MINUTE]
    assert store.line.calls == [] and read(trade_copies, "dear") == []
    trade_copies.sync(store.client)
    assert read(trade_copies, "dear") == []


def test_rows_enter_by_themselves(store: InsideStore, copies: Copies) -> None:
    store.client.define(TRADES)
    text = "SELECT symbol FROM trades BEGIN NOW - 10 MINUTES END NOW - 1 MINUTE"
    copies.keep("later", text, changes=True)
    copies.sync(store.client)
    store.client.publish("trades", [trade("IBM", 1.0)])
    copies.sync(store.client)
    assert read(copies, "later") == []
    published = store.now()
    store.wait(90)
    (entered,) = read(copies, "later")
    assert entered.tag == "+" and entered.at == published + timedelta(minutes=1)
    store.wait(3600)
    assert [change.tag for change in read(copies, "later")] == ["-"]


def test_what_entered_and_left_between_two_readings_is_not_told(
    store: InsideStore, copies: Copies
) -> None:
    store.client.define(TRADES)
    text = "SELECT symbol FROM trades BEGIN NOW - 10 MINUTES END NOW - 1 MINUTE"
    copies.keep("later", text, changes=True)
    store.client.publish("trades", [trade("IBM", 1.0)])
    copies.sync(store.client)
    store.wait(3600)
    assert read(copies, "later") == []


def test_without_those_that_leave(store: InsideStore, trade_copies: Copies) -> None:
    trade_copies.keep("dear", DEAR, changes="without left")
    trade_copies.sync(store.client)
    store.client.publish("trades", [trade("IBM", 101.0)])
    trade_copies.sync(store.client)
    store.wait(3600)
    assert [change.tag for change in read(trade_copies, "dear")] == ["+"]
    trade_copies.sync(store.client)
    assert read(trade_copies, "dear") == []


def test_event_time_moves_with_the_sync(store: InsideStore, copies: Copies) -> None:
    store.client.define(
        "CREATE STREAM seen (who TEXT, at TIMESTAMP) ORDERED BY at RETAIN 1 DAY AHEAD 1 DAY"
    )
    copies.keep("now", "SELECT who FROM seen RANGE 1 MINUTE", changes=True)
    copies.sync(store.client)
    begun = store.now()
    for who, minutes in (("Ann", 0), ("Bob", 5)):
        at = begun + timedelta(minutes=minutes)
        store.client.publish("seen", [{"who": who, "at": at}])
        copies.sync(store.client)
    store.wait(3600)
    changes = read(copies, "now")
    assert short(changes) == ["+Ann", "-Ann", "+Bob"]
    assert [change.at and (change.at - begun).total_seconds() for change in changes] == [0, 60, 300]
