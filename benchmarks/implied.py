"""The first answer of a query that implies one the engine has matched, with and without that.

The store is made by hand, without Spark: what is measured is the making of an answer.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.report import Report
from benchmarks.timing import least_cpu
from datastem.memory import Memory
from psoup.answers import AnswerMaker, Plan, Question, Replica, View
from psoup.answers.matching.implied import ImpliedFinder
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import State, Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

STREAM = "CREATE STREAM room (temp DOUBLE, name TEXT, n BIGINT)"
# One row in a hundred is above.
KNOWN, MOST = 80.0, 80.0 / 0.99
CONDITIONS = {
    "a comparison": "temp > 80.5",
    "and arithmetic": "temp > 80.5 AND n % 7 = 3",
    "and LIKE": "temp > 80.5 AND name LIKE '%7%'",
    "and a function of a text": "temp > 80.5 AND lower(name) LIKE '%m 4_%'",
}
_BATCH = 100_000
_MEMORY = 1 << 30


class _NothingImplied(ImpliedFinder):
    """Finds nothing, so that all rows are looked at."""

    def prepared(self, plan: Plan, state: State) -> Plan:
        return plan


def run(folder: Path, quick: bool) -> Report:
    rows, rounds = (200_000, 3) if quick else (1_000_000, 9)
    report = Report("implied", f"{rows:,} rows, 1 % of them match the query that is implied")
    store = asyncio.run(_filled(folder / "store", rows))
    replica = Replica.open(store, Memory(_MEMORY))
    view = View.at(replica, replica.state.clock)
    matched_question = Question.of_text(f"SELECT n FROM room WHERE temp > {KNOWN}", replica.state)
    for name, where in CONDITIONS.items():
        question = Question.of_text(f"SELECT n FROM room WHERE {where}", replica.state)
        least = {
            helped: min(
                _first(store, view, matched_question, question, helped) for _ in range(rounds)
            )
            for helped in (True, False)
        }
        ratio = least[True] / least[False]
        report.add(
            f"first answer, {name}", 1000 * least[True], "ms", ratio=ratio,
            beside="all rows looked at", aim="≤ 0.2 ×", met=ratio <= 0.2,
        )  # fmt: skip
    return report


def _first(
    store: Store, view: View, matched_question: Question, question: Question, helped: bool
) -> float:
    """Seconds of processor time for an answer by a maker that has answered the known query only."""
    maker = AnswerMaker(store, _MEMORY // 4)
    if not helped:
        maker.implied = _NothingImplied()
    maker.answer(view, matched_question)
    return least_cpu({"answer": lambda: maker.answer(view, question)}, 1)["answer"]


async def _filled(path: Path, count: int) -> Store:
    """A store whose engine has matched the known query over all rows."""
    core = Core(Store.open(path, create=True, sync=False), Settings(path))
    await core.start()
    statement = parse_statement(STREAM)
    assert isinstance(statement, CreateStream)
    await core.appender.submit(Define("main", "main", statement.schema))
    sql = f"SELECT n FROM room WHERE temp > {KNOWN}"
    await register(core, new_call(), pb.RegisterRequest(sql=sql))
    temps = np.random.default_rng(1).uniform(0, MOST, count)
    for begin in range(0, count, _BATCH):
        batch_temps = temps[begin : begin + _BATCH]
        names = [f"room {n % 500}" for n in range(len(batch_temps))]
        numbers = range(begin, begin + len(batch_temps))
        table = pa.table({"temp": batch_temps, "name": names, "n": numbers})
        await publish(core, new_call(), pb.PublishRequest(stream="room", arrow=ipc(table)))
    HandMadeEngine(core.store).step()
    await core.stop()
    return core.store
