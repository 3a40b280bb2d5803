"""Pulls from a running server: what is transferred, what is written, what is remembered."""

from __future__ import annotations

import csv
import errno
import json
import os
import secrets
import tempfile
import threading
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk import (
    BadPull,
    Client,
    ConnectionFailed,
    Copies,
    NotFound,
    OutputBusy,
    OutputFailed,
    Pull,
    Puller,
    PullReport,
    QueryProblem,
    Retry,
    Schedule,
    Store,
    pull_many,
    pull_once,
    run_pulls,
)
from client_sdk._grpc_sync import GrpcTransport
from client_sdk.pulls._memory import MemoryFile
from client_sdk.pulls._sinks import FORMATS
from tests.client_sdk.pulls.conftest import DEAR, NINE, TRADES, FakeClock, Place, Server
from tests.client_sdk.pulls.tables import read_sqlite

pytestmark = pytest.mark.process

EVERY = Schedule(timedelta(minutes=15))


def came(report: PullReport) -> tuple[int, int, bool, bool]:
    return report.rows, report.received, report.changed, report.written


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.parametrize("form", FORMATS)
def test_only_what_changed_comes_and_only_a_change_is_written(place: Place, form: str) -> None:
    pull = place.pull(f"dear.{form}")
    place.trade(150)
    place.trade(50)
    assert came(pull_once(place.client, pull)) == (1, 1, True, True)
    assert came(pull_once(place.client, pull)) == (1, 0, False, False)
    place.trade(200, 1)
    assert came(pull_once(place.client, pull)) == (2, 1, True, True)
    place.trade(60, 2)
    assert came(pull_once(place.client, pull)) == (2, 0, False, False)
    assert came(pull_once(place.client, replace(pull, always=True))) == (2, 0, False, True)


def test_what_slid_out_is_gone_without_a_message(place: Place) -> None:
    pull = place.pull()
    place.trade(150)
    pull_once(place.client, pull)
    place.trade(60, 11)
    assert came(pull_once(place.client, pull)) == (0, 0, True, True)
    assert lines(pull.to) == ['"symbol","price"']


def test_an_output_that_is_not_as_it_was_left_is_written_again(place: Place) -> None:
    pull = place.pull()
    place.trade(150)
    pull_once(place.client, pull)
    good = pull.to.read_bytes()

    pull.to.unlink()
    assert came(pull_once(place.client, pull)) == (1, 0, False, True)
    pull.to.write_bytes(good.replace(b"150", b"151"))
    assert came(pull_once(place.client, pull)) == (1, 0, False, True)
    assert pull.to.read_bytes() == good

    os.utime(pull.to, (1, 1))
    assert came(pull_once(place.client, pull)) == (1, 0, False, False)


def test_a_lost_memory_costs_a_write_and_a_lost_state_a_whole_answer(place: Place) -> None:
    pull = place.pull()
    place.trade(150)
    pull_once(place.client, pull)
    pull.memory_path.write_bytes(b'{"format": 1, "cont')
    assert came(pull_once(place.client, pull)) == (1, 0, True, True)
    pull.state_path.unlink()
    report = pull_once(place.client, pull)
    assert came(report) == (1, 1, False, False)
    assert (report.whole, report.reason) == (True, "FIRST")


def test_another_format_or_text_replaces_the_output(place: Place) -> None:
    pull = place.pull("dear.txt", format="csv")
    place.trade(150)
    pull_once(place.client, pull)
    assert pull_once(place.client, replace(pull, format="jsonl")).changed
    assert json.loads(pull.to.read_text()) == {"symbol": "IBM", "price": 150.0}
    cheap = replace(pull, sql="SELECT price FROM trades", format="jsonl")
    assert pull_once(place.client, cheap).changed
    assert json.loads(pull.to.read_text()) == {"price": 150.0}


def test_another_window_is_the_pull_s_own(place: Place) -> None:
    place.trade(150)
    place.trade(160, 30)
    wide = place.pull(window="RANGE 1 HOUR")
    assert pull_once(place.client, wide).rows == 2
    assert pull_once(place.client, place.pull("other.csv")).rows == 1


def test_after_retention_the_answer_comes_whole(place: Place) -> None:
    """Rows of a keyed stream may have ended and been forgotten since."""
    place.client.define(
        "CREATE STREAM seats (seat BIGINT, taken BOOLEAN, at TIMESTAMP) "
        "ORDERED BY at RETAIN 1 DAY KEY (seat)"
    )
    pull = place.pull(sql="SELECT seat, taken FROM seats")
    for day in (0, 2):
        row = {"seat": 7, "taken": day == 2, "at": NINE + timedelta(days=day)}
        place.client.publish("seats", [row])
        report = pull_once(place.client, pull)
    assert (report.whole, report.reason, report.rows) == (True, "RETENTION", 1)
    assert lines(pull.to) == ['"seat","taken"', "7,true"]


EVENTS = st.sampled_from(["trade", "later", "output", "edit", "memory", "state", "client"])


@settings(max_examples=20)
@given(
    st.lists(st.lists(EVENTS, max_size=2), min_size=2, max_size=6),
    st.sampled_from(["dear.csv", "dear.parquet", "dear.db"]),
)
def test_after_every_pull_the_output_is_the_answer(server: Server, rounds, output) -> None:
    """Whatever came, was lost, edited or restarted in between."""
    store = Store(server.address, tenant=f"t{secrets.token_hex(8)}")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        place = Place(stack.enter_context(store.client()), store, Path(folder), server.folder)
        place.client.define(TRADES)
        registered = place.client.register(DEAR, key="dear")
        pull = place.pull(output, key="dear")
        lost = {"output": pull.to, "memory": pull.memory_path, "state": pull.state_path}
        for minute, events in enumerate(rounds):
            for event in events:
                if event in ("trade", "later"):
                    place.trade(101 + minute, minute * (1 if event == "trade" else 6))
                elif event == "client":
                    other = stack.enter_context(store.client())
                    other.position, place.client = place.client.position, other
                elif event == "edit":
                    pull.to.write_bytes(b"")
                else:
                    lost[event].unlink(missing_ok=True)
            pull_once(place.client, pull)
            assert contents(pull) == place.client.invoke(registered).rows


def contents(pull: Pull) -> list[dict[str, Any]]:
    if pull.format == "parquet":
        found: list[dict[str, Any]] = pyarrow.parquet.read_table(pull.to).to_pylist()
        return found
    if pull.format == "sqlite":
        names = ("symbol", "price")
        return [dict(zip(names, row, strict=True)) for row in read_sqlite(pull.to, pull.name)]
    with pull.to.open() as file:
        return [{**row, "price": float(row["price"])} for row in csv.DictReader(file)]


# ---- registrations that come and go


def test_a_key_is_looked_up_once_and_again_when_it_is_another(place: Place) -> None:
    place.trade(150)
    pull = place.pull(key="dear")
    with pytest.raises(NotFound, match="no registration with key 'dear'"):
        pull_once(place.client, pull)
    first = place.client.register(DEAR, key="dear")
    assert pull_once(place.client, pull).rows == 1
    place.client.unregister(first)
    with pytest.raises(NotFound):
        pull_once(place.client, pull)
    assert lines(pull.to) == ['"symbol","price"', '"IBM",150']
    place.client.register("SELECT symbol FROM trades", key="dear")
    assert pull_once(place.client, pull).changed
    assert lines(pull.to) == ['"symbol"', '"IBM"']


def test_a_key_with_its_text_is_registered_where_it_is_missing(place: Place) -> None:
    place.trade(150)
    pull = place.pull(key="dear", sql=DEAR)
    assert pull_once(place.client, pull).rows == 1
    (made,) = place.client.registrations()
    assert made.key == "dear"
    place.client.unregister(made.handle)
    place.trade(160)
    assert pull_once(place.client, pull).rows == 2


@pytest.mark.parametrize("by", ["key", "handle", "handle of one without a key", "sql"])
def test_an_expired_registration_is_made_again(place: Place, by: str) -> None:
    place.trade(150)
    second = timedelta(seconds=1)
    if by == "sql":
        pull = place.pull(sql=DEAR, lease=second)
    else:
        key = None if by.endswith("a key") else "dear"
        made = place.client.register(
            DEAR.replace("100", ":least"), key=key, parameters={"least": 100.0}, lease=second
        )
        pull = place.pull(**({"key": "dear"} if by == "key" else {"handle": made.hex}))
    pull_once(place.client, pull)
    assert place.expire() >= 1
    assert list(place.client.registrations()) == []
    place.trade(160)
    report = pull_once(place.client, pull)
    assert (report.rows, report.whole) == (2, True)
    place.trade(170)
    assert came(pull_once(place.client, pull)) == (3, 1, True, True)
    (made_again,) = place.client.registrations()
    assert made_again.lease == second


def test_a_dropped_stream_leaves_the_output_alone(place: Place) -> None:
    place.trade(150)
    pull = place.pull()
    pull_once(place.client, pull)
    place.client.define("DROP STREAM trades")
    with pytest.raises(NotFound, match="no stream trades"):
        pull_once(place.client, pull)
    assert lines(pull.to) == ['"symbol","price"', '"IBM",150']


# ---- several at once


class Counting(GrpcTransport):
    """The network, with a list of the calls made over it."""

    def __init__(self, target: str) -> None:
        super().__init__(target, 16 << 20)
        self.calls: list[str] = []

    def unary(self, method: str, request: Message, timeout: float | None) -> Any:
        self.calls.append(method)
        return super().unary(method, request, timeout)

    def stream(
        self, method: str, request: Message, timeout: float | None
    ) -> Generator[Any, None, None]:
        self.calls.append(method)
        return super().stream(method, request, timeout)


def test_pulls_of_one_state_share_a_round_trip(place: Place) -> None:
    place.trade(150)
    place.trade(50)
    state = place.folder / "all.psoup"
    dear = place.pull("dear.csv", state=state, priority=5)
    cheap = place.pull("cheap.db", state=state, sql="SELECT price FROM trades WHERE price < 100")
    wrong = place.pull("wrong.csv", state=state, key="nobody")
    worse = place.pull("worse.csv", state=state, sql="SELECT prize FROM trades")
    transport = Counting(place.store.target)
    with Client(tenant=place.store.tenant, transport=transport) as client:
        first = pull_many(client, [dear, wrong, worse, cheap])
        transport.calls.clear()
        place.trade(160)
        client.position = place.client.position
        second = pull_many(client, [dear, cheap])
    assert [report.rows for report in first] == [1, 0, 0, 1]
    assert isinstance(first[1].error, NotFound) and isinstance(first[2].error, QueryProblem)
    assert [came(report) for report in second] == [(2, 1, True, True), (1, 0, False, False)]
    assert transport.calls == ["Sync"]


def test_an_output_in_use_is_left_alone(place: Place) -> None:
    place.trade(150)
    state = place.folder / "all.psoup"
    pull, other = place.pull(state=state), place.pull("other.csv", state=state)
    with MemoryFile(pull.memory_path):
        busy, fine = pull_many(place.client, [pull, other])
    assert isinstance(busy.error, OutputBusy) and fine.ok
    assert not pull.to.exists() and other.to.exists()
    assert pull_once(place.client, pull).written


def test_an_output_that_can_t_be_written_fails_and_then_recovers(place: Place) -> None:
    pull = place.pull("dear.sqlite")
    place.trade(150)
    pull.to.write_bytes(b"this is not a database, and long enough to look like one")
    with pytest.raises(OutputFailed, match="not a database"):
        pull_once(place.client, pull)
    pull.to.unlink()
    assert came(pull_once(place.client, pull)) == (1, 0, True, True)


def test_a_full_disk_leaves_the_old_output(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pull = place.pull()
    place.trade(150)
    pull_once(place.client, pull)
    before = pull.to.read_bytes()
    place.trade(160)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OutputFailed, match="No space left"):
            pull_once(place.client, pull)
    assert pull.to.read_bytes() == before
    assert came(pull_once(place.client, pull)) == (2, 0, True, True)


def test_pulls_made_together_have_one_state(place: Place) -> None:
    with pytest.raises(ValueError, match="one state file"):
        pull_many(place.client, [place.pull("a.csv"), place.pull("b.csv")])


def test_pulls_in_each_other_s_way(place: Place) -> None:
    for other in ({"name": "DEAR"}, {"name": "x", "to": place.folder / "dear.csv"}):
        with pytest.raises(BadPull):
            Puller([place.pull("dear.csv"), place.pull("other.csv", **other)])
    Puller([place.pull("all.db", name="a"), place.pull("all.db", name="b")])


# ---- on a schedule


def test_a_puller_keeps_the_pace_and_goes_on_after_a_restart(place: Place) -> None:
    place.trade(150)
    pull = place.pull(schedule=EVERY)
    reports: list[PullReport] = []

    def note(report: PullReport) -> None:
        reports.append(report)
        place.trade(160 + len(reports))

    for _ in range(2):
        clock = FakeClock(stop_after=31)
        with Puller([pull], on_report=note, clock=clock, draw=lambda: 0.0) as puller:
            puller.run()
        assert sum(clock.waits[:30]) == 900 and max(clock.waits) == 30
    assert [(report.rows, report.received) for report in reports] == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
    ]
    assert [report.next_in for report in reports] == [timedelta(minutes=15)] * 4


def test_pulls_due_together_stay_together(place: Place) -> None:
    jittery = Schedule(timedelta(minutes=15), jitter=timedelta(minutes=5))
    state = place.folder / "all.psoup"
    pulls = [place.pull(f"{name}.csv", state=state, schedule=jittery) for name in "ab"]
    rounds: list[list[str]] = []
    clock = FakeClock()
    draws = iter([0.5, 0.25, 0.75])
    with Puller(pulls, clock=clock, draw=lambda: next(draws)) as puller:
        for _ in range(3):
            rounds.append([report.name for report in puller.turn()])
            left = min(puller._left(name) for name in puller._tables)
            clock.wait(left)
    assert rounds == [["a", "b"]] * 3


def test_a_wrong_query_is_given_up_and_the_others_go_on(place: Place) -> None:
    wrong = place.pull("wrong.csv", sql="SELECT prize FROM trades", schedule=EVERY)
    right = place.pull(schedule=EVERY)
    clock = FakeClock(stop_after=61)
    reports: list[PullReport] = []
    with Puller([wrong, right], on_report=reports.append, clock=clock) as puller:
        puller.run()
    assert [report.name for report in reports] == ["wrong", "dear", "dear", "dear"]
    assert isinstance(puller.given_up["wrong"], QueryProblem)
    with Puller([wrong], clock=clock) as puller:
        puller.run()
    assert list(puller.given_up) == ["wrong"]


def test_a_run_needs_a_schedule_and_once_does_not(place: Place) -> None:
    with Puller([place.pull()]) as puller:
        with pytest.raises(BadPull, match="no schedule"):
            puller.run()
        assert [report.rows for report in puller.once()] == [0]


def test_a_program_stops_its_own_run(place: Place) -> None:
    stop = threading.Event()
    run_pulls([place.pull(schedule=EVERY)], on_report=lambda report: stop.set(), stop=stop)
    assert lines(place.folder / "dear.csv") == ['"symbol","price"']


def test_a_store_that_is_down_and_comes_back(place: Place, server: Server) -> None:
    """Back-off while it is away; then only what is new, from the token of before."""
    place.trade(150)
    reports: list[PullReport] = []
    clock = FakeClock()
    with Puller(
        [place.pull(schedule=EVERY)],
        on_report=reports.append,
        connect=lambda store: Client(store.target, tenant=store.tenant, retry=Retry(attempts=1)),
        clock=clock,
        draw=lambda: 0.0,
    ) as puller:
        puller.turn()
        server.kill()
        try:
            for wait in (900, 2.5, 5):
                clock.wait(wait)
                puller.turn()
        finally:
            server.start()
        place.trade(160)
        while not puller.turn() or not reports[-1].ok:
            clock.wait(900)
    assert came(reports[0]) == (1, 1, True, True)
    assert all(isinstance(report.error, ConnectionFailed) for report in reports[1:4])
    waits = [report.next_in for report in reports[1:4]]
    assert waits == [timedelta(seconds=2.5), timedelta(seconds=5), timedelta(seconds=10)]
    assert came(reports[-1]) == (2, 1, True, True)
    assert reports[-1].next_in is not None and reports[-1].next_in <= timedelta(minutes=15)


def test_the_state_is_an_ordinary_copy(place: Place) -> None:
    place.trade(150)
    pull = place.pull()
    report = pull_once(place.client, pull)
    with Copies(pull.state_path) as copies:
        assert copies["dear"].rows() == [{"symbol": "IBM", "price": 150.0}]
        assert copies["dear"].state.position == report.position
