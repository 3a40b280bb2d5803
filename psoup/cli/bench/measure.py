"""The measuring itself, as an ordinary client of a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from client_sdk import Client, PsoupError, Published
from psoup.cli.bench.result import Times
from psoup.cli.bench.workload import Workload, batches
from psoup.cli.output import note
from psoup.cli.problems import refuse

FIRST_SECONDS = 60.0
CONSUME_SECONDS = 600.0
EPOCH_SECONDS = 60.0
FRESH_ROWS = 1_000
_FEWEST = 3

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is done of each: so many, or as many as `seconds` allow."""

    rows: int
    invokes: int
    batches: int
    seconds: float

    def turns(self, count: int) -> Iterator[int]:
        """0, 1, … below `count`; a few of them however long they take."""
        began = time.monotonic()
        for number in range(count):
            if number >= _FEWEST and time.monotonic() - began > self.seconds:
                return
            yield number


@dataclass(frozen=True, slots=True)
class Measurement:
    """`consumed` and `to_epoch` are None where no engine runs."""

    rows: int
    acknowledged: float
    consumed: float | None
    registered: float
    answer_rows: float
    computed_rows: float
    call: Times
    invoke: Times
    in_server: Times
    to_acknowledged: Times
    to_answer: Times
    to_epoch: Times | None


@contextmanager
def prepared(client: Client, workload: Workload) -> Iterator[tuple[list[bytes], float]]:
    """The stream is made and the queries are registered, so many a second; all gone afterwards."""
    client.define(workload.definition)
    handles: list[bytes] = []
    try:
        began = time.perf_counter()
        for number, sql in enumerate(workload.queries, 1):
            try:
                handles.append(client.register(sql).handle)
            except PsoupError:
                note(f"query {number} of {len(workload.queries)} is refused:")
                raise
        yield handles, len(handles) / (time.perf_counter() - began)
    finally:
        _remove(client, workload.stream, handles)


def _remove(client: Client, stream: str, handles: list[bytes]) -> None:
    try:
        for handle in handles:
            client.unregister(handle)
        client.define(f"DROP STREAM {stream}")
    except PsoupError as error:
        note(f"stream {stream} and its queries could not be removed: {error.message}")


class Bench:
    """One client, one stream, its queries; `tell` hears of each step and how far it is."""

    def __init__(
        self, client: Client, workload: Workload, amount: Amount, engine: bool, tell: Tell
    ) -> None:
        self._client = client
        self._workload = workload
        self._amount = amount
        self._engine = engine
        self._tell = tell

    def run(self) -> Measurement:
        with prepared(self._client, self._workload) as (handles, registered):
            stream = self._client.stream(self._workload.stream)
            table = self._workload.rows(stream, self._amount.rows)
            self._warm_up(table)
            acknowledged, consumed = self._publish(table)
            call, invoke, in_server, rows, computed = self._invoke(handles)
            to_acknowledged, to_answer, to_epoch = self._fresh(table, handles[0])
        return Measurement(
            table.num_rows,
            acknowledged,
            consumed,
            registered,
            rows,
            computed,
            call,
            invoke,
            in_server,
            to_acknowledged,
            to_answer,
            to_epoch,
        )

    def _warm_up(self, table: pa.Table) -> None:
        """The first step of an engine costs more than any other; and is there one?"""
        self._tell("warming up", 0, 1)
        self._client.publish(self._workload.stream, table.slice(0, 1))
        if self._engine and not self._engine_is_done(FIRST_SECONDS):
            note(f"no engine has caught up in {FIRST_SECONDS:.0f} s; measured without one")
            self._engine = False

    def _publish(self, table: pa.Table) -> tuple[float, float | None]:
        """Rows a second until all are acknowledged, and until the engine has them."""
        done = 0

        def progress(published: Published) -> None:
            nonlocal done
            done += published.row_count
            self._tell("publishing", done, table.num_rows)

        began = time.perf_counter()
        publisher = self._client.publisher(f"bench-{self._workload.stream}")
        publisher.publish_many(self._workload.stream, batches(table), progress=progress)
        acknowledged = table.num_rows / (time.perf_counter() - began)
        if not self._engine:
            return acknowledged, None
        self._tell("waiting for the engine", 0, 1)
        self._wait_for_engine(CONSUME_SECONDS)
        return acknowledged, table.num_rows / (time.perf_counter() - began)

    def _invoke(self, handles: list[bytes]) -> tuple[Times, Times, Times, float, float]:
        call, invoke, in_server = Times(), Times(), Times()
        rows = computed = 0
        for handle in handles:
            self._client.invoke(handle)
        for number in self._amount.turns(self._amount.invokes):
            call.take(self._client.status)
            answer = invoke.take(partial(self._client.invoke, handles[number % len(handles)]))
            in_server.add(answer.elapsed.total_seconds())
            rows += answer.row_count
            computed += answer.computed_rows
            self._tell("invoking", number + 1, self._amount.invokes)
        count = len(invoke.seconds)
        return call, invoke, in_server, rows / count, computed / count

    def _fresh(self, table: pa.Table, handle: bytes) -> tuple[Times, Times, Times | None]:
        """A batch by itself: until acknowledged, until an answer has it, until an epoch does."""
        acknowledged, answered, epochs = Times(), Times(), Times()
        batch = table.slice(max(0, table.num_rows - FRESH_ROWS))
        for number in self._amount.turns(self._amount.batches):
            began = time.perf_counter()
            published = self._client.publish(self._workload.stream, batch)
            acknowledged.add(time.perf_counter() - began)
            self._client.invoke(handle, least_position=published.position)
            answered.add(time.perf_counter() - began)
            if self._engine:
                self._wait_for_engine(EPOCH_SECONDS)
                epochs.add(time.perf_counter() - began)
            self._tell("publishing batch by batch", number + 1, self._amount.batches)
        return acknowledged, answered, epochs if self._engine else None

    def _wait_for_engine(self, seconds: float) -> None:
        if not self._engine_is_done(seconds):
            refuse(
                f"the engine has not caught up in {seconds:.0f} s; publish less with --rows, or "
                "measure without it with --no-engine"
            )

    def _engine_is_done(self, seconds: float) -> bool:
        """Whether it has consumed the log by then, back-fill included."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = self._client.status()
            if status.epoch and not status.behind_rows and not status.backfill_rows:
                return True
            time.sleep(0.005)
        return False
