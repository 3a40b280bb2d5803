"""What a calendar window costs an answer: the same answers over the same explicit window, in turns.

The store is made by hand, without Spark or a wire. Measured is the making of an answer, from
question to rows, in processor time.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.report import Report
from benchmarks.timing import least_cpu
from datastem.instants import SECOND, format_instant, to_micros
from datastem.memory import Memory
from datastem.zones import machine_rules
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.server.calls.define import define
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.zones import DefineZone
from querystem.language.tokens.literals import read_timestamp
from tests.support.server.callers import new_call
from tests.support.server.process import ipc

MAX_RATIO = 1.1
_ZONE = "Europe/Madrid"
# The last row is of noon in UTC, the day before began and ended at 22:00.
_LAST, _BEGIN, _END = (
    to_micros(read_timestamp(text))
    for text in ("2026-07-16 12:00", "2026-07-14 22:00", "2026-07-15 21:59:59.999999")
)
_STREAM = "CREATE STREAM sales (region BIGINT, n BIGINT, at TIMESTAMP) ORDERED BY at AHEAD 7 DAYS"
_ANSWERS = {
    "about 100 rows": "SELECT region, n FROM sales WHERE region = 7 AND n % 25 = 0",
    "totals of all rows": "SELECT count(*) AS c, sum(n) AS s FROM sales",
    "totals per region": "SELECT region, sum(n) AS s FROM sales GROUP BY region",
}
_WINDOWS = {
    "calendar": f"DURING YESTERDAY AT TIME ZONE '{_ZONE}'",
    "explicit": f"BEGIN '{format_instant(_BEGIN)}' END '{format_instant(_END)}'",
}
_MEMORY = 1 << 30


def run(folder: Path, quick: bool) -> Report:
    rows, rounds = (100_000, 100) if quick else (400_000, 400)
    report = Report("calendar", f"{rows:,} rows in two days; processor time in one process")
    store = asyncio.run(_filled(folder / "store", rows))
    replica = Replica.open(store, Memory(_MEMORY))
    view, maker = View.at(replica, replica.state.clock), AnswerMaker(store, _MEMORY // 4)
    for name, text in _ANSWERS.items():
        questions = {
            window: Question.of_text(f"{text} {written}", replica.state)
            for window, written in _WINDOWS.items()
        }
        answers = [maker.answer(view, question).table for question in questions.values()]
        assert answers[0].equals(answers[1]) and answers[0].num_rows, name
        calls = {
            window: partial(_answer, maker, view, question)
            for window, question in questions.items()
        }
        least = least_cpu({**calls}, rounds)
        ratio = least["calendar"] / least["explicit"]
        report.add(
            name,
            1000 * least["calendar"],
            "ms",
            ratio=ratio,
            beside="the same explicit window",
            aim=f"≤ {MAX_RATIO:g} ×",
            met=ratio <= MAX_RATIO,
        )
    return report


def _answer(maker: AnswerMaker, view: View, question: Question) -> None:
    plan = maker.plan(view, question)
    work = maker.work(bound=plan.bound)
    if maker.evaluate_at_once(plan, work) is None:
        maker.evaluate(maker.settle(plan, work), work)


async def _filled(path: Path, count: int) -> Store:
    """Return a store with rows of the two days before the last one, in even distances."""
    core = Core(Store.open(path, create=True, sync=False), Settings(path), lambda: _LAST)
    await core.start()
    await define(core, new_call(), pb.DefineRequest(sql=_STREAM))
    await core.appender.submit(DefineZone(machine_rules(_ZONE)))
    numbers = np.arange(count)
    at = _LAST - (count - 1 - numbers) * (48 * 3600 * SECOND // count)
    columns = {
        "region": numbers % 40,
        "n": numbers // 40,
        "at": pa.array(at).view("timestamp[us]"),
    }
    for begin in range(0, count, 50_000):
        batch = pa.table(columns).slice(begin, 50_000)
        await publish(core, new_call(), pb.PublishRequest(stream="sales", arrow=ipc(batch)))
    store = core.store
    await core.stop()
    return store
