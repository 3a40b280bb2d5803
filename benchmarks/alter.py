"""ALTER STREAM … ADD and RENAME COLUMN over many rows: what the statement takes, which files it
writes again, and what answers take after it beside those of a replica that has not heard of it.

The store is made by hand, without Spark. Times are processor time in one process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.report import Report
from benchmarks.timing import least_cpu
from datastem.memory import Memory
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.answers.replicas.replica import read_commit, read_epoch
from psoup.server.calls.define import define
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.store.definitions import stem_table
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

STREAM = "CREATE STREAM trades (symbol BIGINT, price DOUBLE, at TIMESTAMP) ORDERED BY at"
ALTERATIONS = (
    "ALTER STREAM trades ADD COLUMN venue TEXT",
    "ALTER STREAM trades ADD COLUMN fee DOUBLE DEFAULT 0.5",
    "ALTER STREAM trades RENAME COLUMN symbol TO instrument",
)
ANSWERS = {
    "a selection of 100 rows": "SELECT symbol, price FROM trades WHERE symbol = 7 RANGE 10 SECONDS",
    "the last 100 rows": "SELECT symbol, price FROM trades ROWS 100",
    "an aggregate over 65,536 rows": "SELECT sum(price) AS s FROM trades RANGE 66 SECONDS",
}
NEW_COLUMN = "SELECT sum(fee) AS s FROM trades RANGE 66 SECONDS"
MAX_SECONDS, MAX_RATIO = 1.0, 1.1
_BATCH_ROWS = 1_000_000
_MEMORY_BYTES = 2 << 30


def run(folder: Path, quick: bool) -> Report:
    rows, rounds = (1_000_000, 20) if quick else (10_000_000, 200)
    report = Report("alter", f"a stream of {rows:,} rows; processor time in one process")
    store = asyncio.run(_altered(report, folder / "store", rows))
    end = store.log.latest_version()
    replicas = {
        "before": opened_at(store, end - len(ALTERATIONS)),
        "after": opened_at(store, end),
    }
    _report_stem(report, store, replicas["after"])
    answer = {name: asker(store, replica) for name, replica in replicas.items()}
    for what, sql in ANSWERS.items():
        texts = {"before": sql, "after": sql.replace("symbol", "instrument")}
        asks = {name: partial(ask, texts[name]) for name, ask in answer.items()}
        least = least_cpu(asks, rounds)
        _add(report, what, least["after"], least["before"], "before", MAX_RATIO)
    new = partial(answer["after"], NEW_COLUMN)
    old = partial(answer["after"], ANSWERS["an aggregate over 65,536 rows"])
    least = least_cpu({"new": new, "old": old}, rounds)
    _add(report, "  the same of the new column", least["new"], least["old"], "an old column", None)
    return report


def _add(
    report: Report, what: str, seconds: float, beside: float, name: str, aim: float | None
) -> None:
    ratio = seconds / beside
    report.add(
        what, 1000 * seconds, "ms", ratio=ratio, beside=name,
        aim="" if aim is None else f"≤ {aim} ×", met=None if aim is None else ratio <= aim,
    )  # fmt: skip


async def _altered(report: Report, path: Path, count: int) -> Store:
    """Return a store with rows in an epoch, whose log ends with the alterations. The first of them
    is made by a server that has all rows in memory."""
    settings = Settings(path, memory=_MEMORY_BYTES)
    core = Core(Store.open(path, create=True, sync=False), settings)
    await core.start()
    await define(core, new_call(), pb.DefineRequest(sql=STREAM))
    engine, dice = HandMadeEngine(core.store), np.random.default_rng(1)
    first = time.time_ns() // 1000 - count * 1000
    for begin in range(0, count, _BATCH_ROWS):
        size = min(_BATCH_ROWS, count - begin)
        at = first + 1000 * np.arange(begin, begin + size)
        columns = {
            "symbol": dice.integers(0, 100, size),
            "price": dice.random(size),
            "at": pa.array(at).view(pa.timestamp("us", "UTC")),
        }
        request = pb.PublishRequest(stream="trades", arrow=ipc(pa.table(columns)))
        await publish(core, new_call(), request)
        engine.step()
    await core.follower.refresh()
    began = time.process_time()
    for sql in ALTERATIONS:
        await define(core, new_call(), pb.DefineRequest(sql=sql))
    seconds = (time.process_time() - began) / len(ALTERATIONS)
    report.add(
        "ALTER STREAM, by a server with the newest rows in memory", 1000 * seconds, "ms",
        aim=f"≤ {MAX_SECONDS:g} s", met=seconds <= MAX_SECONDS,
    )  # fmt: skip
    await core.stop()
    return core.store


def _report_stem(report: Report, store: Store, after: Replica) -> None:
    """Make the commit that the engine's next step makes; report it, and the files it touches."""
    (stream,) = after.state.streams.values()
    folder = store.stem(stream.id)
    before = folder.snapshot()
    began = time.process_time()
    folder.commit(before.version + 1, operation="ALTER", definition=stem_table(stream.schema))
    report.add("the commit to the stem's table", 1000 * (time.process_time() - began), "ms")
    changed = set(before.files) ^ set(folder.snapshot().files)
    report.add("files written again", len(changed), "files", aim="0", met=not changed)


def opened_at(store: Store, version: int) -> Replica:
    """Return the store up to a version of its log."""
    state, epoch = read_epoch(store)
    replica = Replica(store, Memory(_MEMORY_BYTES), state, epoch.epoch.log_version)
    replica.show(epoch, replica.reader(epoch)())
    while replica.version < version:
        number = replica.version + 1
        replica.apply(number, *read_commit(store, number, replica.state))
    return replica


def asker(store: Store, replica: Replica) -> Callable[[str], None]:
    """Return a function that makes the answer of a text."""
    view, maker = View.at(replica, replica.state.clock), AnswerMaker(store, _MEMORY_BYTES // 4)
    questions: dict[str, Question] = {}

    def ask(sql: str) -> None:
        question = questions.get(sql) or Question.of_text(sql, replica.state)
        questions[sql] = question
        plan = maker.plan(view, question)
        work = maker.work(bound=plan.bound)
        if maker.evaluate_at_once(plan, work) is None:
            maker.evaluate(maker.settle(plan, work), work)

    return ask
