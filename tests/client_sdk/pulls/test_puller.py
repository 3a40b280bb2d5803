"""Several pulls at once, and pulls on their schedules, on clocks of the tests' own."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.message import Message

from client_sdk import (
    BadPull,
    Client,
    ConnectionFailed,
    NotFound,
    OutputBusy,
    OutputFailed,
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
from client_sdk._grpc.transports import GrpcTransport
from client_sdk.pulls._receipt import ReceiptFile
from tests.client_sdk.pulls.conftest import (
    FakeClock,
    Place,
    Server,
    came,
    lines,
)
from tests.support.client_sdk.portal import PORTALS, portal

pytestmark = pytest.mark.process

EVERY = Schedule(timedelta(minutes=15))


class Counting(GrpcTransport):
    """The network, with a list of the calls made over it."""

    def __init__(self, target: str) -> None:
        super().__init__((target,), 16 << 20)
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
    pull, second = place.pull(state=state), place.pull("other.csv", state=state)
    with ReceiptFile(pull.receipt_path):
        busy, fine = pull_many(place.client, [pull, second])
    assert isinstance(busy.error, OutputBusy) and fine.ok
    assert not pull.to.exists() and second.to.exists()
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
    for second in ({"name": "DEAR"}, {"name": "x", "to": place.folder / "dear.csv"}):
        with pytest.raises(BadPull):
            Puller([place.pull("dear.csv"), place.pull("other.csv", **second)])
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
            seconds = min(puller._seconds_until(name) for name in puller._tables)
            clock.wait(seconds)
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


@pytest.mark.parametrize("kind", PORTALS)
def test_a_pull_goes_on_after_whatever_answered(place: Place, kind: str) -> None:
    """The first turn meets a captive portal: it is tried again, and never given up."""
    place.trade(150)
    reports: list[PullReport] = []
    clock = FakeClock()
    with portal(kind) as elsewhere:
        targets = iter([elsewhere])

        def connect(store: Store) -> Client:
            target = next(targets, store.target)
            return Client(target, tenant=store.tenant, retry=Retry(attempts=1), timeout=120)

        pull = place.pull(schedule=EVERY)
        with Puller([pull], on_report=reports.append, connect=connect, clock=clock) as puller:
            puller.turn()
            assert not puller.given_up and not reports[0].ok
            if not isinstance(reports[0].error, ConnectionFailed):
                puller.close()  # a gRPC code that a store may give: the same client asks again
            clock.wait(900)
            puller.turn()
    assert came(reports[1]) == (1, 1, True, True)
    if kind in ("UNIMPLEMENTED", "INVALID_ARGUMENT", "http2"):
        assert "this is not a PSoup store" in str(reports[0].error)
