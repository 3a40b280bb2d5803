"""The load that clients put on a store all the time: they publish, register and unregister, invoke.

Each is a thread with a client of its own; what it measured is taken from it by `drain`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import workload
from client_sdk import Client

BATCH_ROWS = 500
BATCHES_PER_SECOND = 10
LIVE_QUERIES = 1_024
CHANGES_PER_SECOND = 10
INVOKES_PER_SECOND = 20
QUERY = (
    "SELECT lane, station, speed FROM traffic WHERE lane = :lane AND station = :station "
    "AND speed > :speed RANGE 30 SECONDS"
)


class Load(threading.Thread):
    """`turn` again and again at a pace, as far as the store keeps up, until `end` or a failure."""

    per_second: float

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ending = threading.Event()
        self._problem: BaseException | None = None

    def run(self) -> None:
        due = time.perf_counter()
        try:
            while not self._ending.is_set():
                self.turn()
                due = max(due + 1 / self.per_second, time.perf_counter() - 1.0)
                self._ending.wait(max(0.0, due - time.perf_counter()))
        except BaseException as problem:
            self._problem = problem

    def turn(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        """Raises what has ended the thread, if anything has."""
        if self._problem is not None:
            raise self._problem

    def end(self) -> None:
        self._ending.set()
        self.join()


@contextmanager
def running(*loads: Load) -> Iterator[Callable[[], None]]:
    """All at once; call what it gives to hear of one that has failed."""

    def check() -> None:
        for load in loads:
            load.check()

    for load in loads:
        load.start()
    try:
        yield check
    finally:
        for load in loads:
            load.end()


class Publishing(Load):
    """A batch at a time; then an answer is asked for that has it."""

    per_second = BATCHES_PER_SECOND

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self._handle = client.register("SELECT speed FROM traffic WHERE lane = 1 ROWS 1000").handle
        self._answers: deque[float] = deque()
        self._waiting: deque[tuple[float, bytes]] = deque()
        self.rows = 0

    def turn(self) -> None:
        began = time.perf_counter()
        published = self._client.publish("traffic", _rows(self.rows))
        self._client.invoke(self._handle, least_position=published.position)
        self._answers.append(time.perf_counter() - began)
        self._waiting.append((began, published.position))
        self.rows += BATCH_ROWS

    def drain(self, when: Callable[[bytes], float | None]) -> tuple[list[float], list[float]]:
        """Seconds until an answer had each batch, and until an epoch had it (`when` says)."""
        answers = [self._answers.popleft() for _ in range(len(self._answers))]
        epochs = []
        while self._waiting and (at := when(self._waiting[0][1])) is not None:
            epochs.append(at - self._waiting.popleft()[0])
        return answers, epochs


class Churn(Load):
    """Registers a query with a new predicate, and unregisters the oldest one."""

    per_second = CHANGES_PER_SECOND

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        table = [_parameters(number) for number in range(LIVE_QUERIES)]
        self.live = deque(client.register_many(QUERY, table).handles)
        self.changes = 0

    def turn(self) -> None:
        parameters = _parameters(LIVE_QUERIES + self.changes)
        self.live.append(self._client.register(QUERY, parameters=parameters).handle)
        self._client.unregister(self.live.popleft())
        self.changes += 1


def _parameters(number: int) -> dict[str, Any]:
    """No two alike."""
    return {
        "lane": number % workload.LANES + 1,
        "station": number % workload.STATIONS + 1,
        "speed": number % 100 + number / 1e9,
    }


class Invoking(Load):
    """Queries that are to stay a while, in turn."""

    per_second = INVOKES_PER_SECOND

    def __init__(self, client: Client, churn: Churn) -> None:
        super().__init__()
        self._client = client
        self._churn = churn
        self._seconds: deque[float] = deque()
        self._turns = 0

    def turn(self) -> None:
        handle = self._churn.live[-1 - self._turns % (LIVE_QUERIES // 2)]
        self._turns += 1
        began = time.perf_counter()
        self._client.invoke(handle, least_position=None)
        self._seconds.append(time.perf_counter() - began)

    def drain(self) -> list[float]:
        return [self._seconds.popleft() for _ in range(len(self._seconds))]


def _rows(seed: int) -> pa.Table:
    """Dated now."""
    random = np.random.default_rng(seed)
    now = pa.scalar(datetime.now(UTC), pa.timestamp("us", tz="UTC"))
    return pa.table(
        {
            "lane": random.integers(1, workload.LANES + 1, BATCH_ROWS),
            "station": random.integers(1, workload.STATIONS + 1, BATCH_ROWS),
            "speed": random.uniform(0, 100, BATCH_ROWS),
            "at": pa.repeat(now, BATCH_ROWS),
        }
    )
