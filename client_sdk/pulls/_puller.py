"""A puller, which makes pulls on their schedules for as long as it runs."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from client_sdk._client import Client
from client_sdk._exceptions import (
    BadPull,
    Conflict,
    ConnectionFailed,
    FileBusy,
    FileFull,
    Incomplete,
    InvalidRequest,
    LimitExceeded,
    OutputBusy,
    PsoupError,
    Timeout,
)
from client_sdk._session import Closing
from client_sdk.pulls._deliver import PullReport
from client_sdk.pulls._pull import Pull, Store
from client_sdk.pulls._pulling import pull_many
from client_sdk.pulls._schedule import Clock, SystemClock, Timetable

Listener = Callable[[PullReport], None]
Group = tuple[Store, Path]

# The longest single wait: this soon after a machine's sleep the wall clock is read again.
LONGEST_WAIT_SECONDS = 30.0


class Puller(Closing):
    """A maker of pulls when they are due, those of one store and state file in one round trip.

    The first of each is due at once. A pull that fails is tried again as its schedule says. One
    that can't succeed, because its query is wrong, is given up. `on_report` is called with every
    report; what it raises ends the run. `connect` makes the client of a store, which the puller
    closes.
    """

    def __init__(
        self,
        pulls: Iterable[Pull],
        *,
        on_report: Listener | None = None,
        connect: Callable[[Store], Client] = Store.client,
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.pulls = tuple(pulls)
        check_together(self.pulls)
        self._on_report = on_report or (lambda report: None)
        self._connect = connect
        self._clock = clock or SystemClock()
        self._draw = draw
        self._clients: dict[Store, Client] = {}
        self._tables: dict[str, Timetable] = {}
        self.given_up: dict[str, PsoupError] = {}

    def once(self) -> list[PullReport]:
        """Make every pull now, whatever its schedule."""
        return self._pull(self.pulls)

    def run(self) -> None:
        """Pull until the clock says to stop, or every pull was given up.

        Raises BadPull if a pull has no schedule.
        """
        self._begin()
        while self._tables:
            seconds = min(self._seconds_until(name) for name in self._tables)
            if seconds > 0:
                if self._clock.wait(min(seconds, LONGEST_WAIT_SECONDS)):
                    return
            else:
                self.turn()

    def turn(self) -> list[PullReport]:
        """Make the pulls that are due now."""
        self._begin()
        return self._pull([p for p in self.pulls if p.name in self._tables and self._due(p.name)])

    def close(self) -> None:
        while self._clients:
            self._clients.popitem()[1].close()

    def _begin(self) -> None:
        # Without tables, but with pulls given up, the run has ended and must not begin again.
        if self._tables or self.given_up:
            return
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        for pull in self.pulls:
            if pull.schedule is None:
                raise BadPull(f"{pull.name}: has no schedule; give `every`, or pull it once")
            self._tables[pull.name] = Timetable(pull.schedule, wall, monotonic)

    def _seconds_until(self, name: str) -> float:
        return self._tables[name].remaining(self._clock.wall(), self._clock.monotonic())

    def _due(self, name: str) -> bool:
        return self._seconds_until(name) == 0

    def _pull(self, pulls: Iterable[Pull]) -> list[PullReport]:
        groups: dict[Group, list[Pull]] = {}
        for pull in pulls:
            groups.setdefault((pull.store, pull.state_path.resolve()), []).append(pull)
        return [report for group in groups.values() for report in self._pull_group(group)]

    def _pull_group(self, pulls: list[Pull]) -> list[PullReport]:
        """Make the pulls of one group, with one random draw for all of them, so that they stay
        together.
        """
        store = pulls[0].store
        results = pull_many(self._client(store), pulls)
        if any(report.error is not None and passes(report.error) for report in results):
            # A new channel connects at once, and resolves the address again.
            self._clients.pop(store).close()
        draw = self._draw()
        reports = [self._scheduled(report, draw) for report in results]
        for report in reports:
            self._on_report(report)
        return reports

    def _scheduled(self, report: PullReport, draw: float) -> PullReport:
        table = self._tables.get(report.name)
        if table is None:
            return report
        if report.error is not None and hopeless(report.error):
            del self._tables[report.name]
            self.given_up[report.name] = report.error
            return replace(report, given_up=True)
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        wait = table.done(wall, monotonic, failed=not report.ok, draw=draw)
        return replace(report, next_in=timedelta(seconds=wait))

    def _client(self, store: Store) -> Client:
        if store not in self._clients:
            self._clients[store] = self._connect(store)
        return self._clients[store]


def run_pulls(
    pulls: Iterable[Pull],
    *,
    on_report: Listener | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Make pulls until `stop` is set, from another thread or from `on_report`."""
    with Puller(pulls, on_report=on_report, clock=SystemClock(stop)) as puller:
        puller.run()


def check_together(pulls: tuple[Pull, ...]) -> None:
    """Raise BadPull if two pulls have one name or one output."""
    names: set[str] = set()
    outputs: dict[Path, Pull] = {}
    for pull in pulls:
        if pull.name.lower() in names:
            raise BadPull(f"name: two pulls are called {pull.name}")
        names.add(pull.name.lower())
        earlier = outputs.setdefault(pull.to.resolve(), pull)
        # Pulls may share a SQLite file, in which each has a table of its own.
        if earlier is not pull and {earlier.format, pull.format} != {"sqlite"}:
            raise BadPull(f"to: {pull.to} is the output of {earlier.name} too")
    for pull in pulls:
        path = pull.changes_path
        if path is not None and outputs.setdefault(path, pull) is not pull:
            raise BadPull(f"changes_to: {path} is an output of another pull too")


def passes(error: PsoupError) -> bool:
    """Return whether the same pull may succeed later without a change by hand."""
    if isinstance(error, ConnectionFailed):
        return True
    busy = isinstance(error, OutputBusy | FileBusy | FileFull)
    return busy or isinstance(error, Incomplete | Timeout | LimitExceeded)


def hopeless(error: PsoupError) -> bool:
    """Return whether the pull itself is wrong, so that every attempt fails.

    Among the errors of servers, only those that a store has made count.
    """
    is_refusal = bool(error.detail.store_id) and isinstance(error, InvalidRequest | Conflict)
    return is_refusal or isinstance(error, BadPull)
