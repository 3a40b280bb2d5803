"""A copy whose caller may not read any more is emptied at the next sync; the queue stays."""

from __future__ import annotations

import pytest

from client_sdk import Copies, PermissionDenied
from psoup.access.principal import Principal
from tests.client_sdk.copies.trades import COUNTS, DEAR, TRADES, check, trade
from tests.support.client_sdk.inside import InsideStore
from tests.support.server.callers import acting_as

ALICE = Principal("main", "alice", frozenset({"field"}))


def test_rows_leave_with_the_grant_and_come_back_with_it(
    store: InsideStore, copies: Copies
) -> None:
    store.client.define(TRADES)
    store.client.define("GRANT read, register, publish ON trades TO ROLE field")
    store.client.publish("trades", [trade("IBM", 184.5), trade("SAP", 90.0)])
    copies.keep("dear", DEAR, changes=True)
    copies.keep("counts", COUNTS)
    with acting_as(ALICE):
        copies.sync(store.client)
        assert [len(copies[name].rows()) for name in ("dear", "counts")] == [1, 2]
    copies.publish("trades", [trade("HP", 200.0)])
    store.client.define("REVOKE read ON trades FROM ROLE field")
    with acting_as(ALICE):
        synced = copies.sync(store.client, send=False)
        for name in ("dear", "counts"):
            assert (synced[name].whole, synced[name].reason) == (True, "PERMISSION")
            assert copies[name].rows() == []
        assert copies.queued.rows == 1, "what waits to be sent is nobody's to take away"
        again = copies.sync(store.client, send=False)
        assert [again[name].reason for name in ("dear", "counts")] == ["", ""]
        handle = copies["dear"].handle
        assert handle is not None
        try:
            store.client.invoke(handle)
            raise AssertionError("a revoked query was answered")
        except PermissionDenied as denied:
            assert "read on trades" in denied.message
        copies.sync(store.client)
        assert not copies.queued, "publishing is still allowed"
    store.client.define("GRANT read ON trades TO ROLE field")
    with acting_as(ALICE):
        back = copies.sync(store.client)
        assert back["dear"].reason == "PERMISSION" and len(copies["dear"].rows()) == 2
        check(store, copies)


def test_a_copy_becomes_that_of_whoever_syncs_it(store: InsideStore, copies: Copies) -> None:
    store.client.define(TRADES)
    store.client.define("GRANT read, register ON trades TO ROLE field")
    store.client.define("CREATE POLICY mine ON trades USING (symbol = claim('symbol'))")
    store.client.publish("trades", [trade("IBM", 184.5), trade("SAP", 190.0)])
    copies.keep("dear", DEAR)
    registration = []
    for owner, symbol in (("alice", "IBM"), ("bob", "SAP")):
        claims = {"symbol": symbol}
        with acting_as(Principal("main", owner, frozenset({"field"}), claims)):
            synced = copies.sync(store.client)
        assert synced.complete and [row["symbol"] for row in copies["dear"].rows()] == [symbol]
        registration.append(copies["dear"].handle)
    assert registration[0] != registration[1], "a registration is its owner's"


@pytest.mark.parametrize("emptied", [False, True])
def test_a_stream_that_is_made_again_and_granted_fills_the_copy(
    store: InsideStore, copies: Copies, emptied: bool
) -> None:
    grant = "GRANT read, register ON trades TO ROLE field"
    store.client.define(TRADES)
    store.client.define(grant)
    store.client.publish("trades", [trade("IBM", 184.5)])
    copies.keep("dear", DEAR)
    copies.keep("counts", COUNTS)
    with acting_as(ALICE):
        copies.sync(store.client)
    store.client.define("DROP STREAM trades")
    store.client.define(TRADES)
    if emptied:
        with acting_as(ALICE):
            copies.sync(store.client)
        assert copies["dear"].rows() == [] == copies["counts"].rows()
    store.client.define(grant)
    store.client.publish("trades", [trade("SAP", 190.0), trade("HP", 200.0)])
    with acting_as(ALICE):
        assert copies.sync(store.client).complete
        assert [row["symbol"] for row in copies["dear"].rows()] == ["SAP", "HP"]
        check(store, copies)
        again = copies.sync(store.client)
        assert [again[name].status for name in ("dear", "counts")] == ["unchanged"] * 2
