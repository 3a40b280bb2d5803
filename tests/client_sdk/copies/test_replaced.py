"""Copies whose query another one has replaced: by `keep`, or by another program."""

from __future__ import annotations

import pytest

from client_sdk import Client, Conflict, Copies
from tests.client_sdk.copies.trades import COUNTS, DEAR, TRADES, check, trade
from tests.support.client_sdk.inside import InsideStore

SIZES = "SELECT size FROM trades WHERE price > 100 RANGE 10 MINUTES"
TOTALS = "SELECT sum(size) AS total, max(price) AS most FROM trades RANGE 1 HOUR"


def test_another_text_of_a_name_keeps_its_registration(
    store: InsideStore, trade_copies: Copies
) -> None:
    store.client.publish("trades", [trade("IBM", 184.5, 7)])
    trade_copies.sync(store.client)
    handle = trade_copies["dear"].handle
    trade_copies.keep("dear", SIZES)
    trade_copies.sync(store.client)
    assert trade_copies["dear"].handle == handle and trade_copies["dear"].rows() == [{"size": 7}]
    assert len(list(store.client.registrations())) == 2
    trade_copies.keep("dear", SIZES, window="RANGE 1 MINUTE")
    trade_copies.sync(store.client)
    assert trade_copies["dear"].handle == handle and len(list(store.client.registrations())) == 2


def test_there_and_back_before_a_sync(store: InsideStore, trade_copies: Copies) -> None:
    trade_copies.sync(store.client)
    handle = trade_copies["dear"].handle
    trade_copies.keep("dear", SIZES)
    trade_copies.keep("dear", DEAR)
    assert trade_copies.sync(store.client)["dear"].reason == "FIRST"
    assert trade_copies["dear"].handle == handle
    check(store, trade_copies)


def test_what_others_registered_stays_theirs(store: InsideStore, trade_copies: Copies) -> None:
    registered = store.client.register(DEAR, key="theirs")
    trade_copies.keep("shared", handle=registered)
    trade_copies.sync(store.client)
    trade_copies.keep("shared", SIZES)
    trade_copies.sync(store.client)
    assert trade_copies["shared"].handle != registered.handle
    assert store.client.registration(registered).sql == DEAR


@pytest.mark.parametrize("one_position", [False, True])
def test_replaced_by_somebody_else(store: InsideStore, copies: Copies, one_position: bool) -> None:
    store.client.define(TRADES)
    registered = store.client.register(DEAR, key="theirs")
    store.client.publish("trades", [trade("IBM", 184.5, 7), trade("SAP", 90.0)])
    copies.keep("shared", handle=registered)
    copies.keep("counts", COUNTS)
    copies.sync(store.client, one_position=one_position)
    again = store.client.register(TOTALS, key="theirs", replace=True)
    assert again.handle == registered.handle and again.replaced and not again.created
    change = copies.sync(store.client, one_position=one_position)["shared"]
    assert (change.whole, change.reason, change.status) == (True, "REPLACED", "changed")
    assert copies["shared"].rows() == [{"total": 8, "most": 184.5}]
    check(store, copies)
    assert copies.sync(store.client)["shared"].status == "unchanged"


def test_replaced_in_the_middle_of_a_transfer(store: InsideStore, copies: Copies) -> None:
    store.client.define(TRADES)
    registered = store.client.register(DEAR, key="theirs")
    store.client.publish("trades", [trade(f"S{n}", 101.0 + n, n) for n in range(200)])
    copies.keep("shared", handle=registered)
    assert copies.sync(store.client, byte_budget=1000)["shared"].status == "incomplete"
    store.client.register(SIZES, key="theirs", replace=True)
    assert copies.sync(store.client)["shared"].reason == "REPLACED"
    assert [row["size"] for row in copies["shared"].rows()] == list(range(200))


def test_base_rows_are_computed_in_the_new_way(store: InsideStore, copies: Copies) -> None:
    store.client.define(TRADES)
    registered = store.client.register(COUNTS, key="theirs")
    store.client.publish("trades", [trade("IBM", 184.5, 7), trade("SAP", 90.0)])
    copies.keep("shared", handle=registered, base_rows=True)
    copies.sync(store.client)
    assert len(copies["shared"].rows()) == 2
    store.client.register(TOTALS, key="theirs", replace=True)
    change = copies.sync(store.client)["shared"]
    assert (change.whole, change.reason, change.status) == (True, "REPLACED", "changed")
    assert copies["shared"].rows() == [{"total": 8, "most": 184.5}]
    store.wait(1800)
    check(store, copies)
    assert copies.sync(store.client)["shared"].status == "unchanged"


def test_the_stream_of_a_replaced_query_is_learnt_again(store: InsideStore, copies: Copies) -> None:
    store.client.define(TRADES)
    store.client.define("CREATE STREAM other (a BIGINT)")
    registered = store.client.register(DEAR, key="theirs")
    copies.keep("shared", handle=registered)
    copies.sync(store.client)
    store.client.register("SELECT a FROM other", key="theirs", replace=True)
    copies.sync(store.client)
    copies.publish("other", [{"a": 5}])
    copies.sync(store.client)
    assert copies["shared"].rows() == [{"a": 5}]


def test_without_the_word_or_the_key(store: InsideStore) -> None:
    client: Client = store.client
    client.define(TRADES)
    client.register(DEAR, key="mine")
    with pytest.raises(Conflict, match="another query"):
        client.register(COUNTS, key="mine")
    with pytest.raises(ValueError, match="key"):
        client.register(COUNTS, replace=True)
    rows = [{"client_key": "mine", "p": 1}, {"client_key": "new", "p": 2}]
    sql = "SELECT size FROM trades WHERE size > :p"
    registered = client.register_many(sql, rows, replace=True)
    assert (registered.created_count, registered.replaced_count) == (1, 1)
