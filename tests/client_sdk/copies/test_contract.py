"""What a program may rely on, whether its copies are in a file or in memory."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from client_sdk import (
    ConnectionFailed,
    Copies,
    NotFound,
    NotSynced,
    QueryProblem,
    UnknownCopy,
)
from tests.client_sdk.copies.trades import COUNTS, DEAR, TRADES, check, trade
from tests.support.client_sdk.inside import InsideStore

# ---- keeping


def test_keeping_needs_no_connection(trade_copies: Copies) -> None:
    assert (
        trade_copies.names == ["dear", "counts"]
        and "dear" in trade_copies
        and len(trade_copies) == 2
    )
    assert not trade_copies["dear"].synced and trade_copies["dear"].handle is None
    with pytest.raises(NotSynced, match="dear"):
        trade_copies["dear"].rows()


def test_the_first_sync_registers_and_fills(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("IBM", 184.5), trade("X", 3.0)])
    synced = trade_copies.sync(store.client)
    assert synced.complete and synced.changed == ["dear", "counts"]
    assert synced["dear"].whole and synced["dear"].reason == "FIRST" and synced["dear"].rows == 1
    assert trade_copies["dear"].rows() == [{"symbol": "IBM", "price": 184.5}]
    assert list(trade_copies["counts"]) == [{"symbol": "IBM", "n": 1}, {"symbol": "X", "n": 1}]
    check(store, trade_copies)


def test_later_ones_send_what_changed(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("IBM", 184.5)] * 50)
    trade_copies.sync(store.client)
    store.client.publish("trades", [trade("IBM", 190.0), trade("SUN", 101.0)])
    synced = trade_copies.sync(store.client)
    assert (synced["dear"].rows, synced["dear"].whole) == (2, False)
    assert len(trade_copies["dear"]) == 52
    check(store, trade_copies)
    assert {change.status for change in trade_copies.sync(store.client).values()} == {"unchanged"}


def test_unknown_names_say_which_are_known(trade_copies: Copies) -> None:
    with pytest.raises(UnknownCopy, match="dear, counts"):
        trade_copies["deer"]
    with pytest.raises(KeyError):
        trade_copies["deer"]


def test_the_same_again_changes_nothing(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("IBM", 184.5)])
    trade_copies.sync(store.client)
    trade_copies.keep("dear", DEAR)
    trade_copies.keep("dear", DEAR, priority=5)
    assert len(trade_copies["dear"]) == 1
    assert trade_copies.sync(store.client)["dear"].status == "unchanged"


def test_another_text_replaces_the_copy(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("IBM", 184.5, 7)])
    trade_copies.sync(store.client)
    trade_copies.keep("dear", "SELECT size FROM trades WHERE price > 100 RANGE 10 MINUTES")
    with pytest.raises(NotSynced):
        trade_copies["dear"].rows()
    trade_copies.sync(store.client)
    assert trade_copies["dear"].rows() == [{"size": 7}]
    check(store, trade_copies)


def test_a_copy_of_a_handle(store: InsideStore, copies: Copies) -> None:
    store.client.define(TRADES)
    handle = store.client.register(DEAR)
    store.client.publish("trades", [trade("IBM", 184.5)])
    copies.keep("dear", handle=handle)
    copies.keep("minute", handle=handle.hex, window="RANGE 1 MINUTE")
    assert copies.sync(store.client).complete
    store.wait(120)
    assert len(copies["dear"]) == 1 and len(copies["minute"]) == 0
    store.client.unregister(handle)
    synced = copies.sync(store.client)
    assert synced["dear"].status == "refused" and isinstance(synced["dear"].error, NotFound)
    assert len(copies["dear"]) == 1


def test_forgetting(store: InsideStore, trade_copies: Copies) -> None:
    trade_copies.sync(store.client)
    trade_copies.forget("dear")
    assert trade_copies.names == ["counts"]
    with pytest.raises(UnknownCopy):
        trade_copies.forget("dear")
    assert list(trade_copies.sync(store.client)) == ["counts"]


@pytest.mark.parametrize("name", ["", "_psoup_x", "sqlite_x", "a\0b"])
def test_names_that_can_t_be(copies: Copies, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        copies.keep(name, DEAR)


def test_names_that_sql_can_t_tell_apart(copies: Copies) -> None:
    copies.keep("dear", DEAR)
    with pytest.raises(ValueError, match="one name"):
        copies.keep("Dear", DEAR)


def test_misuse(store: InsideStore, copies: Copies) -> None:
    with pytest.raises(ValueError):
        copies.keep("dear")
    with pytest.raises(ValueError):
        copies.keep("dear", DEAR, handle=bytes(16))
    with pytest.raises(TypeError):
        copies.sync(store.client, only="dear")
    with pytest.raises(ValueError):
        copies.sync(store.client, byte_budget=0)
    with pytest.raises(UnknownCopy):
        copies.sync(store.client, only=["dear"])


def test_nothing_kept_is_nothing_to_sync(store: InsideStore, copies: Copies) -> None:
    assert copies.sync(store.client).complete
    assert store.line.calls == []


# ---- what the store refuses


def test_a_text_that_is_wrong_is_told_and_others_go_on(
    store: InsideStore, trade_copies: Copies
) -> None:
    trade_copies.keep("wrong", "SELECT prize FROM trades RANGE 1 MINUTE")
    synced = trade_copies.sync(store.client)
    assert isinstance(synced["wrong"].error, QueryProblem) and not synced.complete
    assert synced["dear"].status == "changed"
    trade_copies.keep("wrong", "SELECT price FROM trades RANGE 1 MINUTE")
    assert trade_copies.sync(store.client).complete


def test_what_was_unregistered_is_registered_again(
    store: InsideStore, trade_copies: Copies
) -> None:
    store.client.publish("trades", [trade("IBM", 184.5)])
    trade_copies.sync(store.client)
    handle = trade_copies["dear"].handle
    assert handle is not None
    store.client.unregister(handle)
    synced = trade_copies.sync(store.client)
    assert synced.complete and synced["dear"].reason == "OTHER_REGISTRATION"
    assert trade_copies["dear"].handle != handle
    check(store, trade_copies)


def test_a_stream_made_anew_with_other_columns(store: InsideStore, copies: Copies) -> None:
    store.client.define(TRADES)
    copies.keep("all", "SELECT * FROM trades RANGE 10 MINUTES")
    store.client.publish("trades", [trade("IBM", 184.5)])
    copies.sync(store.client)
    store.client.define("DROP STREAM trades")
    synced = copies.sync(store.client)
    assert synced["all"].status == "refused" and synced["all"].error is not None
    assert len(copies["all"]) == 1
    store.client.define("CREATE STREAM trades (what TEXT, day DATE)")
    store.client.publish("trades", [{"what": "bread", "day": date(2025, 3, 3)}])
    assert copies.sync(store.client).complete
    assert copies["all"].rows() == [{"what": "bread", "day": date(2025, 3, 3)}]
    assert [column.name for column in copies["all"].state.columns] == ["what", "day"]


# ---- time


def test_a_selection_slides_by_itself(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("IBM", 184.5)])
    store.wait(300)
    store.client.publish("trades", [trade("SUN", 184.5)])
    trade_copies.sync(store.client)
    state = trade_copies["dear"].state
    assert state.slides and state.now == store.now() and state.pattern == "WKS"
    assert state.good_until is None and state.fresh()
    later = store.now() + timedelta(seconds=300)
    assert [row["symbol"] for row in trade_copies["dear"].rows(later)] == ["SUN"]
    assert len(trade_copies["dear"]) == 2
    store.wait(300)
    assert [row["symbol"] for row in trade_copies["dear"]] == ["SUN"]
    store.wait(600)
    assert len(trade_copies["dear"]) == 0
    assert trade_copies.sync(store.client)["dear"].removed == 0


def test_a_snapshot_has_one_now(store: InsideStore, trade_copies: Copies) -> None:
    """The row would leave between the two reads."""
    store.client.publish("trades", [trade("IBM", 184.5)])
    trade_copies.sync(store.client)
    synced = store.now()
    dear, counts = trade_copies["dear"], trade_copies["counts"]
    store.wait(300)
    with trade_copies.snapshot():
        now, before = dear.answer_now(), dear.rows()
        store.wait(300)
        with trade_copies.snapshot():
            assert dear.rows() == before == trade_copies.query("SELECT symbol, price FROM dear")
        assert dear.answer_now() == now == synced + timedelta(seconds=300)
        assert len(before) == 1 and counts.answer_now() == synced
        assert dear.answer_now(store.now()) == store.now() and not dear.rows(store.now())
    assert not dear.rows() and dear.answer_now() == synced + timedelta(seconds=600)


def test_own_rows_with_event_time_move_now(store: InsideStore, copies: Copies) -> None:
    store.client.define("CREATE STREAM steps (n BIGINT, at TIMESTAMP) ORDERED BY at")
    copies.keep("steps", "SELECT n FROM steps RANGE 10 MINUTES", edits=True)
    copies.sync(store.client)
    assert copies["steps"].answer_now() is None
    copies.publish("steps", [{"n": 1, "at": store.now()}])
    assert copies["steps"].answer_now() == store.now()
    assert copies["steps"].answer_now(queued=False) is None


def test_rows_that_leave_at_the_very_instant_of_a_sync(
    store: InsideStore, trade_copies: Copies
) -> None:
    """They count as gone, here and there: nothing has to be repaired."""
    store.client.publish("trades", [trade("IBM", 184.5)])
    trade_copies.sync(store.client)
    store.wait(600)
    store.line.calls.clear()
    assert trade_copies.sync(store.client)["dear"].status == "unchanged"
    assert [method for method, _ in store.line.calls] == ["Sync"]
    assert trade_copies["dear"].state.row_count == len(trade_copies["dear"]) == 0


def test_groups_stay_and_say_so(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("IBM", 184.5)])
    trade_copies.sync(store.client)
    state = trade_copies["counts"].state
    assert not state.slides and state.now is not None
    store.wait(3600)
    assert len(trade_copies["counts"]) == 1
    assert state.good_until == state.now + timedelta(minutes=10)
    assert not state.fresh(store.now()) and state.fresh(state.now)
    trade_copies.sync(store.client)
    assert len(trade_copies["counts"]) == 0


def test_rows_enter_by_time_alone(store: InsideStore, copies: Copies) -> None:
    store.client.define(TRADES)
    copies.keep("then", "SELECT symbol FROM trades BEGIN NOW - 10 MINUTES END NOW - 5 MINUTES")
    store.client.publish("trades", [trade("IBM", 1.0)])
    copies.sync(store.client)
    assert len(copies["then"]) == 0
    store.wait(301)
    assert len(copies["then"]) == 1
    store.wait(301)
    assert len(copies["then"]) == 0


def test_now_never_runs_backwards(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("IBM", 184.5)])
    trade_copies.sync(store.client)
    store.wait(601)
    assert len(trade_copies["dear"]) == 0
    store.wait(-400)
    assert len(trade_copies["dear"]) == 0


def test_a_clock_behind_the_store_s_is_not_believed(
    store: InsideStore, trade_copies: Copies
) -> None:
    store.client.publish("trades", [trade("IBM", 184.5)])
    trade_copies.sync(store.client)
    store.wait(-3600)
    assert len(trade_copies["dear"]) == 1


def test_an_instant_before_the_copy_s_own(store: InsideStore, trade_copies: Copies) -> None:
    trade_copies.sync(store.client)
    with pytest.raises(ValueError, match="may be gone"):
        trade_copies["dear"].rows(store.now() - timedelta(seconds=1))


# ---- a bad line


def test_a_cut_is_taken_up_where_it_was(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("IBM", 184.5)] * 100)
    store.line.cuts = [9, 9]
    synced = trade_copies.sync(store.client, only=["dear"])
    assert synced.complete and synced["dear"].rows == 100
    assert [method for method, _ in store.line.calls].count("Sync") == 3
    assert len(trade_copies["dear"]) == 100


def test_when_retries_end_the_old_copy_is_there(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("IBM", 184.5)])
    trade_copies.sync(store.client)
    store.client.publish("trades", [trade("SUN", 184.5)] * 100)
    store.line.cuts = [6, 0, 0, 0]
    with pytest.raises(ConnectionFailed):
        trade_copies.sync(store.client, only=["dear"])
    assert [row["symbol"] for row in trade_copies["dear"]] == ["IBM"]
    synced = trade_copies.sync(store.client)
    assert synced["dear"].status == "changed" and synced["dear"].rows < 100
    check(store, trade_copies)


def test_a_budget_leaves_the_rest_for_later(store: InsideStore, trade_copies: Copies) -> None:
    trade_copies.keep("counts", COUNTS, priority=9)
    store.client.publish("trades", [trade("IBM", 184.5)] * 100)
    synced = trade_copies.sync(store.client, byte_budget=500)
    assert synced["counts"].status == "changed"
    assert synced["dear"].status == "incomplete" and not synced.complete
    calls = 1
    while not trade_copies.sync(store.client, byte_budget=500).complete:
        calls += 1
    assert calls > 3
    check(store, trade_copies)


@pytest.mark.parametrize("one_position", [False, True])
def test_a_resumed_transfer_includes_what_was_written_since(
    store: InsideStore, trade_copies: Copies, one_position: bool
) -> None:
    """The transfer was begun before the edit, so that its end alone does not include it."""
    trade_copies.sync(store.client)
    store.client.publish("trades", [trade("IBM", 184.5)] * 60)
    trade_copies.sync(store.client, only=["dear"], byte_budget=500, one_position=one_position)
    assert trade_copies["dear"].staged
    trade_copies.publish("trades", [trade("MINE", 150.0)])
    synced = trade_copies.sync(store.client, only=["dear"], one_position=one_position)
    assert synced.complete and synced.sent.batches == 1
    assert [row["symbol"] for row in trade_copies["dear"]].count("MINE") == 1
    trade_copies.sync(store.client)
    check(store, trade_copies)


def test_a_resumed_transfer_that_spends_the_budget_is_incomplete(
    store: InsideStore, trade_copies: Copies
) -> None:
    trade_copies.sync(store.client)
    store.client.publish("trades", [trade("IBM", 184.5)] * 60)
    trade_copies.sync(store.client, only=["dear"], byte_budget=500)
    while trade_copies["dear"].staged:
        store.client.publish("trades", [trade("LATE", 150.0)])
        synced = trade_copies.sync(store.client, only=["dear"], byte_budget=500)
        late = [row["symbol"] for row in trade_copies["dear"]].count("LATE")
        assert not synced.complete or late
    assert trade_copies.sync(store.client).complete
    check(store, trade_copies)


def test_one_position_shows_all_or_none(store: InsideStore, trade_copies: Copies) -> None:
    trade_copies.keep("prices", "SELECT price FROM trades RANGE 10 MINUTES")
    trade_copies.sync(store.client)
    store.client.publish("trades", [trade("IBM", 184.5)] * 60)
    for _ in range(100):
        synced = trade_copies.sync(store.client, byte_budget=700, one_position=True)
        if {len(trade_copies[name]) for name in trade_copies} != {0}:
            break
        assert not synced.complete
        store.client.publish("trades", [trade("SUN", 101.0)])
    assert len({trade_copies[name].state.position for name in trade_copies}) == 1
    assert len(trade_copies["dear"]) == len(trade_copies["prices"]) >= 60
    trade_copies.sync(store.client)
    check(store, trade_copies)


def test_a_budget_that_is_spent_early_loses_nothing_staged(
    store: InsideStore, trade_copies: Copies
) -> None:
    """What was staged of the second copy stays, though the first alone spends the budget."""
    trade_copies.keep("counts", COUNTS, priority=9)
    store.client.publish("trades", [trade("IBM", 184.5)] * 60)
    trade_copies.sync(store.client, byte_budget=900, one_position=True)
    trade_copies.sync(store.client, byte_budget=1, one_position=True)
    received = trade_copies.sync(store.client, one_position=True)["dear"].rows
    assert 0 < received < 60
    check(store, trade_copies)


def test_pandas(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("IBM", 184.5)])
    trade_copies.sync(store.client)
    frame = trade_copies["dear"].to_pandas()
    assert frame.to_dict("records") == [{"symbol": "IBM", "price": 184.5}]


def test_closed(copies: Copies) -> None:
    copies.close()
    copies.close()
    with pytest.raises(ValueError, match="closed"):
        copies.keep("dear", DEAR)
