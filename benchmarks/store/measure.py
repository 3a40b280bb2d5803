"""The measuring itself, by an ordinary client of a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from benchmarks.store.result import Times
from benchmarks.store.workload import Workload, batches
from client_sdk import Client, PsoupError, Published
from psoup.cli.output import note
from psoup.cli.problems import refuse

# How long to wait for the engine: for its first epoch, for all rows, for one batch.
FIRST_EPOCH_SECONDS = 60.0
CATCH_UP_SECONDS = 600.0
BATCH_EPOCH_SECONDS = 60.0
FRESH_BATCH_ROWS = 1_000
ENGINE_POLL_SECONDS = 0.005
_LEAST_REPETITIONS = 3

# Called with the name of a step, how much of it is done, and how much there is to do.
ReportProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Amount:
    """How much to measure: these counts, or as many as `seconds` allow for each."""

    rows: int
    invokes: int
    batches: int
    seconds: float

    def turns(self, count: int) -> Iterator[int]:
        """Yield 0, 1, … below `count` until the time is over; the first few in any case."""
        began = time.monotonic()
        for number in range(count):
            if number >= _LEAST_REPETITIONS and time.monotonic() - began > self.seconds:
                return
            yield number


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured. Rates are per second.

    `consumed` and `to_epoch` are None if no engine runs.
    """

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
    """Create the stream and register the queries; remove all of them afterwards.

    Yields the handles, and how many queries were registered per second.
    """
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
    """One client that measures one stream and its queries."""

    def __init__(
        self,
        client: Client,
        workload: Workload,
        amount: Amount,
        engine: bool,
        report_progress: ReportProgress,
    ) -> None:
        self._client = client
        self._workload = workload
        self._amount = amount
        self._engine = engine
        self._report_progress = report_progress

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
        """Publish one row, since the engine's first step is the slowest; note if no engine runs."""
        self._report_progress("warming up", 0, 1)
        self._client.publish(self._workload.stream, table.slice(0, 1))
        if self._engine and not self._engine_is_done(FIRST_EPOCH_SECONDS):
            note(f"no engine caught up in {FIRST_EPOCH_SECONDS:.0f} s; measured without one")
            self._engine = False

    def _publish(self, table: pa.Table) -> tuple[float, float | None]:
        """Return the rows per second until all are acknowledged, and until the engine has them."""
        done = 0

        def progress(published: Published) -> None:
            nonlocal done
            done += published.row_count
            self._report_progress("publishing", done, table.num_rows)

        began = time.perf_counter()
        publisher = self._client.publisher(f"bench-{self._workload.stream}")
        publisher.publish_many(self._workload.stream, batches(table), progress=progress)
        acknowledged = table.num_rows / (time.perf_counter() - began)
        if not self._engine:
            return acknowledged, None
        self._report_progress("waiting for the engine", 0, 1)
        self._wait_for_engine(CATCH_UP_SECONDS)
        return acknowledged, table.num_rows / (time.perf_counter() - began)

    def _invoke(self, handles: list[bytes]) -> tuple[Times, Times, Times, float, float]:
        """Return the times of the smallest call, of Invoke and of its part in the server,
        and the average number of rows answered and computed.
        """
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
            self._report_progress("invoking", number + 1, self._amount.invokes)
        count = len(invoke.seconds)
        return call, invoke, in_server, rows / count, computed / count

    def _fresh(self, table: pa.Table, handle: bytes) -> tuple[Times, Times, Times | None]:
        """Return the times until a batch is acknowledged, in an answer, and in an epoch."""
        acknowledged, answered, epochs = Times(), Times(), Times()
        batch = table.slice(max(0, table.num_rows - FRESH_BATCH_ROWS))
        for number in self._amount.turns(self._amount.batches):
            began = time.perf_counter()
            published = self._client.publish(self._workload.stream, batch)
            acknowledged.add(time.perf_counter() - began)
            self._client.invoke(handle, least_position=published.position)
            answered.add(time.perf_counter() - began)
            if self._engine:
                self._wait_for_engine(BATCH_EPOCH_SECONDS)
                epochs.add(time.perf_counter() - began)
            self._report_progress("publishing batch by batch", number + 1, self._amount.batches)
        return acknowledged, answered, epochs if self._engine else None

    def _wait_for_engine(self, seconds: float) -> None:
        if not self._engine_is_done(seconds):
            refuse(
                f"the engine did not catch up in {seconds:.0f} s; publish less with --rows, or "
                "measure without it with --no-engine"
            )

    def _engine_is_done(self, seconds: float) -> bool:
        """Return whether the engine consumes the log within `seconds`, back-fill included."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = self._client.status()
            if status.epoch and not status.behind_rows and not status.backfill_rows:
                return True
            time.sleep(ENGINE_POLL_SECONDS)
        return False
