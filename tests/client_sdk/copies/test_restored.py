"""A store restored from a back-up with its `token.key`: copies and positions of what is gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from client_sdk import Client, Copies, InvalidRequest, Retry
from psoup.cli import cli
from psoup.engine.ownership.lock import EngineLock
from psoup.store.presence import Occupancy
from tests.client_sdk.copies.trades import DEAR, TRADES, check, trade
from tests.support.client_sdk.inside import InsideStore
from tests.support.server.epochs import HandMadeEngine


class Restorable:
    """A store that can be put back to what it was; `store` is the one that runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = InsideStore(folder)

    def back_up(self) -> None:
        shutil.copytree(self._folder / "store", self._folder / "back-up")

    def restore(self, in_place: bool = False) -> None:
        self.store.close()
        shutil.rmtree(self._folder / "store")
        shutil.copytree(self._folder / "back-up", self._folder / "store")
        if in_place:
            done = CliRunner().invoke(cli, ["restore", str(self._folder / "store"), "--in-place"])
            assert done.exit_code == 0, done.output
        self.store = InsideStore(self._folder)

    def publish(self, *prices: int) -> None:
        """Publishes each price in a commit of its own."""
        for price in prices:
            self.store.client.publish("trades", [trade("a", price)])


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Restorable]:
    life = Restorable(tmp_path)
    yield life
    life.store.close()


def _prices(copies: Copies) -> list[int]:
    return sorted(copies["dear"].to_arrow().column("price").to_pylist())


def _spoil(life: Restorable, copies: Copies, in_place: bool = False) -> None:
    """Syncs a copy with rows that are gone after the restore."""
    life.store.client.define(TRADES)
    life.publish(101, 102)
    copies.keep("dear", DEAR)
    copies.sync(life.store.client)
    life.back_up()
    life.publish(201, 202, 203)
    assert copies.sync(life.store.client).complete
    assert _prices(copies) == [101, 102, 201, 202, 203]
    life.restore(in_place)


def _pass(life: Restorable) -> None:
    """Takes the restored store past the position of the copy."""
    life.publish(*range(301, 311))


def _stay(life: Restorable) -> None:
    """Leaves the restored store behind the position of the copy, with no commit of its own."""


def _trim(life: Restorable) -> None:
    """Makes the engine's TRIM the first commit after the restore, then passes the position."""
    engine = HandMadeEngine(life.store.core.store)
    engine.step()
    engine.trim()
    _pass(life)


def _pass_and_trim(life: Restorable) -> None:
    _pass(life)
    engine = HandMadeEngine(life.store.core.store)
    engine.step()
    engine.trim()
    life.publish(401)


@pytest.mark.parametrize("going_on", [_pass, _stay, _trim, _pass_and_trim])
def test_copies_of_a_restored_store_are_right(
    life: Restorable, tmp_path: Path, going_on: Callable[[Restorable], None]
) -> None:
    with Copies(tmp_path / "copies.db", clock=life.store.now) as copies:
        _spoil(life, copies)
        going_on(life)
        synced = copies.sync(life.store.client)
        assert synced.complete
        check(life.store, copies)
        assert not {201, 202, 203} & set(_prices(copies))
        assert copies.verify()["dear"].sound


@pytest.mark.parametrize("going_on", [_pass, _stay, _trim, _pass_and_trim])
def test_a_client_forgets_a_position_that_is_gone(
    life: Restorable, tmp_path: Path, going_on: Callable[[Restorable], None]
) -> None:
    with Copies(tmp_path / "copies.db", clock=life.store.now) as copies:
        old = life.store.client
        _spoil(life, copies)
        lost_position = old.position
        assert lost_position is not None
        going_on(life)
        line, retry = life.store.line, Retry(attempts=3, first=0.0)
        client = Client(transport=line, retry=retry)
        client.position = lost_position
        assert copies.sync(client).complete
        assert client.position != lost_position
        client.position = lost_position
        handle = client.register(DEAR, key="mine").handle
        client.position = lost_position
        answer = client.invoke(handle)
        assert client.position == answer.position != lost_position
        assert [name for name, _ in line.calls[-2:]] == ["Invoke"] * 2
        # One that the caller brings is the caller's to give up.
        with pytest.raises(InvalidRequest) as refused:
            Client(transport=line, retry=retry).invoke(handle, least_position=lost_position)
        assert refused.value.reason == "FOREIGN_POSITION"


def test_a_new_incarnation_ends_all_that_clients_hold(life: Restorable, tmp_path: Path) -> None:
    with Copies(tmp_path / "copies.db", clock=life.store.now) as copies:
        old = life.store.client
        _spoil(life, copies, in_place=True)
        life.store.client.position = old.position
        assert copies.sync(life.store.client).complete
        check(life.store, copies)
        assert _prices(copies) == [101, 102]
        calls = [request for name, request in life.store.line.calls if name == "Sync"]
        assert [bool(request.least_position) for request in calls] == [True, False]
        life.publish(301)
        assert copies.sync(life.store.client).changed == ["dear"]
        assert _prices(copies) == [101, 102, 301]


def test_a_store_in_use_is_not_restored(life: Restorable, tmp_path: Path) -> None:
    def refused() -> str:
        done = CliRunner().invoke(cli, ["restore", str(tmp_path / "store"), "--in-place"])
        assert done.exit_code == 1
        return done.output

    identity = life.store.core.store.identity
    assert "a server runs" in refused()
    life.store.close()
    lock = EngineLock(tmp_path / "store")
    lock.acquire()
    assert "an engine" in refused()
    lock.release()
    whole = Occupancy(tmp_path / "store")
    assert whole.take(), "a refused restore holds nothing"
    whole.leave()
    life.store = InsideStore(tmp_path)
    assert life.store.core.store.identity == identity
