"""Devices whose clock is wrong: a copy goes by the store's NOW as long as the offset is known."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from client_sdk import Client, Copies
from client_sdk.copies._file.clock import DeviceClock, Uptime, machine_uptime
from tests.client_sdk.copies.trades import DEAR, TRADES, trade
from tests.support.client_sdk.inside import InsideStore

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


class Device:
    """A device beside a store. `ahead` is how far its wall clock is, which can be set."""

    def __init__(self, store: InsideStore, ahead: timedelta) -> None:
        self.store = store
        self.ahead = ahead
        self.boot_id = "first"
        self.clock = DeviceClock(self.wall, self.uptime)

    def wall(self) -> datetime:
        return self.store.now() + self.ahead

    def uptime(self) -> Uptime:
        return Uptime(self.boot_id, self.store.clock - 1_000_000)


@pytest.fixture(params=[DAY, -DAY], ids=["ahead", "behind"])
def device(request: pytest.FixtureRequest, store: InsideStore) -> Device:
    return Device(store, request.param)


@pytest.fixture
def copies(tmp_path: Path, store: InsideStore, device: Device) -> Iterator[Copies]:
    store.client.define(TRADES)
    with Copies(tmp_path / "phone.db", clock=device.clock) as copies:
        copies.keep("dear", DEAR)
        store.client.publish("trades", [trade("IBM", 184.5)])
        assert copies.sync(store.client).complete
        yield copies


def test_a_copy_shows_its_rows_right_after_a_sync(copies: Copies, device: Device) -> None:
    assert copies["dear"].rows() == [{"symbol": "IBM", "price": 184.5}]
    assert copies.query("SELECT symbol FROM dear") == [{"symbol": "IBM"}]
    assert copies["dear"].state.clock_offset == -device.ahead
    assert copies["dear"].state.fresh(copies["dear"].state.now)


def test_rows_leave_when_they_leave_in_the_store(copies: Copies, store: InsideStore) -> None:
    store.wait(9 * 60)
    assert len(copies["dear"]) == 1
    store.wait(61)
    assert len(copies["dear"]) == 0


def test_another_process_knows_the_offset(copies: Copies, device: Device, tmp_path: Path) -> None:
    with Copies(tmp_path / "phone.db", clock=DeviceClock(device.wall, device.uptime)) as second:
        assert len(second["dear"]) == 1
        assert second["dear"].state.clock_offset == -device.ahead


def test_a_clock_that_was_set_makes_the_offset_unknown(
    copies: Copies, store: InsideStore, device: Device
) -> None:
    device.ahead = timedelta(0)
    assert copies["dear"].state.clock_offset is None
    assert len(copies["dear"]) == 1
    store.wait(11 * 60)
    assert len(copies["dear"]) == 0


def test_a_restart_makes_the_offset_unknown(
    copies: Copies, store: InsideStore, device: Device
) -> None:
    device.boot_id = "second"
    assert copies["dear"].state.clock_offset is None
    assert len(copies["dear"]) == (0 if device.ahead > timedelta(0) else 1)
    store.wait(1)
    assert copies.sync(store.client).complete
    assert len(copies["dear"]) == 1
    assert copies["dear"].state.clock_offset == -device.ahead


def test_now_does_not_run_backwards(copies: Copies, store: InsideStore, device: Device) -> None:
    """The row has left, and stays away though the clock is set to an instant before that."""
    store.wait(11 * 60)
    assert len(copies["dear"]) == 0
    device.ahead = -20 * MINUTE
    assert len(copies["dear"]) == 0


def test_changes_by_time_go_by_the_offset(tmp_path: Path, store: InsideStore) -> None:
    device = Device(store, DAY)
    store.client.define(TRADES)
    with Copies(tmp_path / "phone.db", clock=device.clock) as copies:
        copies.keep("dear", DEAR, changes=True)
        copies.sync(store.client)
        store.client.publish("trades", [trade("IBM", 184.5)])
        copies.sync(store.client)
        with copies.changes("dear") as batch:
            assert [(change.tag, change.at) for change in batch] == [("+", store.now())]
        store.wait(11 * 60)
        with copies.changes("dear") as batch:
            assert [(change.tag, change.why) for change in batch] == [("-", "left")]


def test_copies_of_one_position_go_by_the_offset(tmp_path: Path, store: InsideStore) -> None:
    device = Device(store, DAY)
    store.client.define(TRADES)
    with Copies(tmp_path / "phone.db", clock=device.clock) as copies:
        copies.keep("dear", DEAR)
        store.client.publish("trades", [trade("IBM", 184.5)])
        assert copies.sync(store.client, one_position=True).complete
        assert len(copies["dear"]) == 1


def test_an_old_transfer_says_nothing_of_the_clock(tmp_path: Path, store: InsideStore) -> None:
    """A transfer that goes on later is of an earlier NOW, which is not the store's of then."""
    device = Device(store, -DAY)
    store.client.define(TRADES)
    with Copies(tmp_path / "phone.db", clock=device.clock) as copies:
        copies.keep("dear", DEAR)
        store.client.publish("trades", [trade("IBM", 184.5)] * 60)
        copies.sync(store.client, byte_budget=500)
        store.wait(300)
        while not copies["dear"].synced:
            copies.sync(store.client, byte_budget=500)
        assert copies["dear"].state.clock_offset == DAY


def test_this_machine(client: Client) -> None:
    """With a server process, on a machine whose clock was not set."""
    assert machine_uptime().boot_id == machine_uptime().boot_id
    client.define("CREATE STREAM s (a BIGINT)")
    with Copies.in_memory() as copies:
        copies.keep("c", "SELECT a FROM s RANGE 1 HOUR")
        copies.sync(client)
        offset = copies["c"].state.clock_offset
        assert offset is not None and abs(offset) < timedelta(minutes=5)
