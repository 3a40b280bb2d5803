"""A sync with nothing new of `WHERE due < NOW`, beside one of a sliding window over the same rows.

NOW is a minute later at each sync, so rows become visible and leave by time. Also measured: a
condition whose rows stop being visible, and invokes. Times are processor time in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.report import Report
from benchmarks.timing import least_cpu
from datastem.instants import DAY, MINUTE
from datastem.memory import Memory
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.answers.difference import Claim, Mark, Repair, WholeReason, copier_of
from psoup.answers.difference.job import make_job
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

STREAM = "CREATE STREAM tasks (id BIGINT, due TIMESTAMP)"
SLIDING = "RANGE 10 DAYS"
QUERIES = {
    SLIDING: "SELECT id FROM tasks RANGE 10 DAYS",
    "due < NOW": "SELECT id FROM tasks WHERE due < NOW",
    "due > NOW": "SELECT id FROM tasks WHERE due > NOW",
    "due < NOW RANGE 10 DAYS": "SELECT id FROM tasks WHERE due < NOW RANGE 10 DAYS",
}
MAX_RATIO = 1.0
_BATCHES, _MEMORY_BYTES = 20, 1 << 30
_START = 1_700_000_000_000_000
_END = _START + _BATCHES * DAY
_NO_REPAIR = Repair(np.empty(0, np.int64), None)


def run(folder: Path, quick: bool) -> Report:
    rows, rounds = (200_000, 20) if quick else (1_000_000, 100)
    report = Report("overdue", f"a stream of {rows:,} rows; processor time in one process")
    store = asyncio.run(_filled(folder / "store", rows))
    replica = Replica.open(store, Memory(_MEMORY_BYTES))
    maker = AnswerMaker(store, _MEMORY_BYTES)
    syncs = {name: syncing(maker, replica, text) for name, text in QUERIES.items()}
    counts = {
        name: asking(maker, replica, text.replace("SELECT id", "SELECT count(*) AS n"))
        for name, text in QUERIES.items()
    }
    for what, calls, aimed in (
        ("sync with nothing new", syncs, "due < NOW"),
        ("count", counts, ""),
    ):
        times = least_cpu(calls, rounds)
        for name, seconds in times.items():
            ratio = seconds / times[SLIDING]
            is_aim = name == aimed
            report.add(
                f"{what}, {name}",
                seconds * 1e3,
                "ms",
                ratio=ratio,
                beside=SLIDING,
                aim=f"≤ {MAX_RATIO:g} ×" if is_aim else "",
                met=ratio <= MAX_RATIO if is_aim else None,
            )
    return report


async def _filled(path: Path, rows: int) -> Store:
    """Make a store with rows of 20 days, due from 10 days before their end to 10 days after."""
    clock = [_START]
    core = Core(Store.open(path, create=True, sync=False), Settings(path), lambda: clock[0])
    await core.start()
    statement = parse_statement(STREAM)
    assert isinstance(statement, CreateStream)
    await core.appender.submit(Define("main", "main", statement.schema))
    random = np.random.default_rng(1)
    count = rows // _BATCHES
    for number in range(_BATCHES):
        clock[0] = _START + number * DAY
        due = _END + random.integers(-10 * DAY, 10 * DAY, count)
        columns = {
            "id": pa.array(np.arange(count)),
            "due": pa.array(due, pa.timestamp("us", "UTC")),
        }
        await publish(
            core, new_call(), pb.PublishRequest(stream="tasks", arrow=ipc(pa.table(columns)))
        )
    HandMadeEngine(core.store).step()
    store = core.store
    await core.stop()
    return store


def syncing(maker: AnswerMaker, replica: Replica, text: str, end: int = _END) -> Callable[[], None]:
    """Return a call that syncs a copy, a minute later each time, from an instant on."""
    mark: Mark | None = None
    now = end

    def sync() -> None:
        nonlocal mark, now
        now += MINUTE
        view = View.at(replica, now)
        question = replace(Question.of_text(text, view.state), ahead=True)
        plan = maker.plan(view, question)
        reason = WholeReason.FIRST if mark is None else WholeReason.NONE
        job = make_job(question, plan, Claim(mark), reason, _NO_REPAIR, None)
        difference = copier_of(maker, plan, job).difference()
        assert mark is None or difference.nothing
        mark = difference.job.target

    sync()
    return sync


def asking(maker: AnswerMaker, replica: Replica, text: str, end: int = _END) -> Callable[[], None]:
    """Return a call that asks for an answer, a minute later each time, from an instant on."""
    now = end

    def ask() -> None:
        nonlocal now
        now += MINUTE
        view = View.at(replica, now)
        assert maker.answer(view, Question.of_text(text, view.state)).row_count

    ask()
    return ask
