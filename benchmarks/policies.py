"""What a row policy costs an answer: the same answers with and without one that binds, in turns.

The store is made by hand, without Spark: what is measured is the making of an answer, from question
to rows, in processor time.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.report import Report
from benchmarks.timing import least_cpu
from datastem.memory import Memory
from psoup.access.principal import ANYONE, Principal
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.server.calls.define import define
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.policies import FillPolicy
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

STREAM = "CREATE STREAM orders (region BIGINT, shop BIGINT, n BIGINT, at TIMESTAMP) ORDERED BY at"
POLICY = "CREATE POLICY mine ON orders USING (region < claim('regions'))"
# Of a hundred regions the caller sees half.
CALLER = Principal("main", "main", claims={"regions": 50})
TOTALS = "SELECT count(*) AS c, sum(n) AS s"
ANSWERS = {
    "a selection of 100 rows": "SELECT region, n FROM orders WHERE shop = 7 RANGE 100 SECONDS",
    "an aggregate over 1 % of all rows": f"{TOTALS} FROM orders WHERE shop = 7",
    "an aggregate over all rows": f"{TOTALS} FROM orders",
    "the last 100 rows": "SELECT region, n FROM orders ROWS 100",
}
_AIMS = {"a selection of 100 rows": 1.5, "an aggregate over 1 % of all rows": 1.5}
_BATCH = 100_000
_MEMORY = 1 << 30


def run(folder: Path, quick: bool) -> Report:
    rows, rounds = (200_000, 20) if quick else (1_000_000, 200)
    report = Report("policies", f"{rows:,} rows, of which the caller sees half")
    store = asyncio.run(_filled(folder / "store", rows))
    replica = Replica.open(store, Memory(_MEMORY))
    view, maker = View.at(replica, replica.state.clock), AnswerMaker(store, _MEMORY // 4)
    for name, sql in ANSWERS.items():
        calls = {
            who: partial(_answer, maker, view, Question.of_text(sql, replica.state, reader=reader))
            for who, reader in (("bound", CALLER), ("free", ANYONE))
        }
        least = least_cpu({**calls}, rounds)
        ratio, aim = least["bound"] / least["free"], _AIMS.get(name)
        report.add(
            name, 1000 * least["bound"], "ms", ratio=ratio, beside="without a policy",
            aim="" if aim is None else f"≤ {aim} ×", met=None if aim is None else ratio <= aim,
        )  # fmt: skip
    report.add("the first answer with new claims", 1000 * _first(store, view, replica), "ms")
    return report


def _answer(maker: AnswerMaker, view: View, question: Question) -> None:
    plan = maker.plan(view, question)
    work = maker.work(bound=plan.bound)
    if maker.evaluate_at_once(plan, work) is None:
        maker.evaluate(maker.settle(plan, work), work)


def _first(store: Store, view: View, replica: Replica) -> float:
    """Return the seconds until the answer of a caller with new claims: all rows are evaluated."""
    maker = AnswerMaker(store, _MEMORY // 4)
    sql = ANSWERS["a selection of 100 rows"].replace("RANGE 100 SECONDS", "")
    maker.answer(view, Question.of_text(sql, replica.state))
    reader = Principal("main", "main", claims={"regions": 51})
    question = Question.of_text(sql, replica.state, reader=reader)
    return least_cpu({"first": lambda: maker.answer(view, question)}, 1)["first"]


async def _filled(path: Path, count: int) -> Store:
    """A store whose engine has matched the policy with the caller's claims over all rows."""
    core = Core(Store.open(path, create=True, sync=False), Settings(path))
    await core.start()
    for sql in (STREAM, POLICY):
        await define(core, new_call(), pb.DefineRequest(sql=sql))
    engine = HandMadeEngine(core.store)
    (policy,) = core.follower.state.access.policies.values()
    question = Question.of_text("SELECT n FROM orders", core.follower.state, reader=CALLER)
    (condition,) = core.maker.plan(core.follower.view, question).conditions
    await core.appender.submit(FillPolicy(policy.policy_id, condition.key))
    engine.step()
    dice = np.random.default_rng(1)
    for begin in range(0, count, _BATCH):
        batch_rows = min(_BATCH, count - begin)
        # A hundred rows a second, one of them of each shop.
        numbers = np.arange(begin, begin + batch_rows)
        at = pa.array(1_700_000_000_000_000 + numbers * 10_000).view("timestamp[us]")
        table = pa.table(
            {
                "region": dice.integers(0, 100, batch_rows),
                "shop": numbers % 100,
                "n": numbers,
                "at": at,
            }
        )
        await publish(core, new_call(), pb.PublishRequest(stream="orders", arrow=ipc(table)))
    engine.step()
    await core.stop()
    return core.store
