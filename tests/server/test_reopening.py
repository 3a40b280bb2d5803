"""Servers whose files and log go away under them, while they are written to and asked.

Two servers share a store. One is stopped again and again, so that the log it stood at is
trimmed; the other misses files that were merged and removed. Each answer is compared with the
batches accepted up to the position the answer names.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from psoup.store import Store
from tests.oracle.copy import Copy
from tests.server.conftest import Start
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ServerProcess
from tests.support.server.syncing import SQL, numbers, recharge

pytestmark = pytest.mark.process

ROUNDS = 8
ROWS = 1_000
# Streams whose files are looked at before those of the one that is asked about.
OTHERS = 60
SELECT = "SELECT a FROM s WHERE a % 3 <> 1"


class Accepted:
    """How many rows there are at each position. One publisher, so positions come in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[bytes, int] = {}
        self._answers: dict[bytes, set[tuple[int, ...]]] = {}
        self.answers = 0

    def publish(self, server: ServerProcess, first: int) -> None:
        done = server.publish("s", numbers(first, ROWS))
        with self._lock:
            self._rows[done.position] = first + ROWS

    def answer(self, position: bytes, values: list[int]) -> None:
        with self._lock:
            self.answers += 1
            self._answers.setdefault(position, set()).add(tuple(values))

    def check(self) -> None:
        """Positions of other events than publishes have the rows of the one before them."""
        for position, answers in self._answers.items():
            assert len(answers) == 1, [len(values) for values in answers]
            (answer,) = answers
            rows = self._rows.get(position)
            if rows is not None:
                assert list(answer) == [a for a in range(rows) if a % 3 != 1]


def asking(accepted: Accepted, server: ServerProcess, handle: bytes) -> list[Callable[[], None]]:
    copy = Copy()

    def invoke() -> None:
        header, table = server.invoke(handle)
        accepted.answer(header.position, table["a"].to_pylist())

    def ask() -> None:
        header, table = server.ask(SELECT)
        accepted.answer(header.position, table["a"].to_pylist())

    def sync() -> None:
        recharge(server, handle, copy)
        assert copy.end is not None
        rows = [row.values[0] for _, row in sorted(copy.rows.items())]
        accepted.answer(copy.end.position, rows)

    return [invoke, ask, sync]


def test_every_answer_is_whole(start: Start, tmp_path: Path) -> None:
    steady, sleepy = start("--memory", "4MB"), start("--memory", "4MB")
    store = Store.open(tmp_path / "store")
    engine, accepted, ending = HandMadeEngine(store), Accepted(), threading.Event()
    for number in range(OTHERS):
        steady.define(SQL.replace("STREAM s", f"STREAM other{number}"))
        steady.publish(f"other{number}", numbers(0, 1))
    steady.define(SQL)
    handle = steady.register(SELECT).handle
    accepted.publish(steady, 0)
    engine.step()

    def keep_on(call: Callable[[], None]) -> None:
        while not ending.is_set():
            call()

    calls = [call for server in (steady, sleepy) for call in asking(accepted, server, handle)]
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(keep_on, call) for call in calls]
        try:
            for number in range(1, ROUNDS + 1):
                os.kill(sleepy.pid, signal.SIGSTOP)
                try:
                    accepted.publish(steady, number * ROWS)
                    engine.step()
                    engine.rewrite(engine.state.stream_names["main", "s"])
                    if number % 3 == 0:
                        engine.trim()
                finally:
                    os.kill(sleepy.pid, signal.SIGCONT)
                before = accepted.answers
                while accepted.answers < before + len(calls) and not any(
                    task.done() for task in running
                ):
                    ending.wait(0.01)
        finally:
            ending.set()
        for task in running:
            task.result()
    accepted.check()
    opened = sleepy.errors.read_text().count("opening the store again")
    assert opened, "the log was never trimmed under the server"
