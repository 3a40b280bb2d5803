"""Joins that the engine finds ahead: what a step, an answer and a registration of them cost.

One server and one engine run as a user runs them. Every setting has two streams of its own, with as
many rows, each of which has one partner; its queries share the equality and differ in the rows of
one stream that they are about. Joins by an inequality, a band and an OR have selective predicates
on both streams instead. The machine may be busy: costs are processor time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import workload
from benchmarks.duck import Duck
from benchmarks.join_cases import sparse
from benchmarks.memory import processor
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from client_sdk import Client
from psoup.answers import Question
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from tests.support.system.processes import RunningStore

BATCH_ROWS = 8_192
INVOKE_AIM, SAME_AIM = 3.0, 1.3
_WAIT_SECONDS = 600.0
_JOIN = "SELECT x.v AS v, y.v AS w FROM {l} x, {r} y WHERE x.k = y.k AND x.g = "
_ONE = "SELECT v, w FROM {s} WHERE g = "
_WINDOW = " RANGE 1 HOUR"


@dataclass(frozen=True)
class Scale:
    """How much of it: rows of a stream, (queries, different ones among them), stretches that the
    second half of the rows comes in, rounds of answers, and how many registrations there are before
    and among those that are measured."""

    rows: int
    sharing: tuple[tuple[int, int], ...]
    stretches: int
    rounds: int
    before: int
    registered: int


WHOLE = Scale(
    rows=65_536,
    sharing=((1, 1), (16, 16), (256, 16), (256, 256), (4_096, 256), (4_096, 4_096)),
    stretches=4,
    rounds=21,
    before=1_000,
    registered=200,
)
QUICK = Scale(
    rows=8_192,
    sharing=((1, 1), (16, 16), (256, 16)),
    stretches=2,
    rounds=5,
    before=100,
    registered=40,
)


@dataclass(frozen=True)
class Sharing:
    """Queries over two streams, `different` of them, and a third stream that has their answers as
    rows. The rows of each are alike in number."""

    queries: int
    different: int
    rows: int

    @property
    def streams(self) -> dict[str, str]:
        return {name: f"{name}_{self.queries}_{self.different}" for name in "lrs"}

    @property
    def title(self) -> str:
        if self.queries == self.different:
            return f"{self.queries:,} queries"
        return f"{self.queries:,} queries, {self.different:,} different"

    def text(self, group: object, kind: str = _JOIN) -> str:
        return kind.format(**self.streams) + f"{group}" + _WINDOW

    def tables(self) -> dict[str, pa.Table]:
        random = np.random.default_rng(self.different)
        numbers = np.arange(self.rows)
        keys, groups = sparse(numbers), numbers % self.different
        partners = random.permutation(self.rows)
        return {
            self.streams["l"]: pa.table({"k": keys, "g": groups, "v": numbers}),
            self.streams["r"]: pa.table({"k": keys[partners], "v": numbers}),
            self.streams["s"]: pa.table({"g": groups, "v": numbers, "w": np.argsort(partners)}),
        }


def run(folder: Path, quick: bool) -> Report:
    scale = QUICK if quick else WHOLE
    setting = f"{scale.rows:,} rows of each stream, the best of {scale.stretches} stretches"
    report = Report("joins_ahead", f"{setting}; answers: the least of {scale.rounds} rounds")
    cases = [Sharing(*sharing, scale.rows) for sharing in scale.sharing]
    place = folder / "served"
    place.mkdir()
    with RunningStore(place) as store:
        store.start_server("--memory", "1GB")
        store.start_engine()
        with store.client() as client:
            _stepped(store, client, Sharing(2, 1, scale.rows), scale.stretches)
            costs = {case: _stepped(store, client, case, scale.stretches) for case in cases}
            _add_steps(report, costs)
            ranges = [RangedJoin(name, scale.rows) for name in _CONDITIONS]
            range_costs = {case: _ranged(store, client, case, scale.stretches) for case in ranges}
            _add_ranges(report, range_costs)
            asyncio.run(_invoked(report, store, cases, ranges, scale.rounds))
            _registered(report, store, client, scale)
    return report


# ---- steps


@dataclass(frozen=True)
class StepCost:
    """Seconds for a row, until it was in an epoch, and of the engine's processor."""

    waited: float
    used: float


def _stepped(store: RunningStore, client: Client, case: Sharing, stretches: int) -> StepCost:
    """The least that a stretch of rows cost, each of which goes to both streams."""
    tables = case.tables()
    _define(client, tables)
    groups = pa.table({"g": np.arange(case.queries) % case.different})
    client.register_many(case.text(":g"), groups)
    client.register_many(case.text(":g", _ONE), groups.slice(0, case.different))
    half = case.rows // 2
    joined = {case.streams[name]: tables[case.streams[name]] for name in "lr"}
    _publish(client, {name: rows.slice(0, half) for name, rows in joined.items()})
    _publish(client, {case.streams["s"]: tables[case.streams["s"]]})
    _settled(store, client, case)
    return _stretched(store, client, joined, stretches, lambda: _settled(store, client, case))


def _stretched(
    store: RunningStore,
    client: Client,
    tables: dict[str, pa.Table],
    stretches: int,
    settle: Callable[[], None],
) -> StepCost:
    """The least that a stretch of the second half of the rows cost until it was settled."""
    count = next(iter(tables.values())).num_rows
    half = count // 2
    size, waited, used = (count - half) // stretches, [], []
    for start in range(half, half + stretches * size, size):
        began, before = time.perf_counter(), _engine_seconds(store)
        _publish(client, {name: rows.slice(start, size) for name, rows in tables.items()})
        settle()
        waited.append(time.perf_counter() - began)
        used.append(_engine_seconds(store) - before)
    rows = 2 * size
    return StepCost(min(waited) / rows, min(used) / rows)


def _add_steps(report: Report, costs: dict[Sharing, StepCost]) -> None:
    """Add the steps, and what more queries cost if no more of them are different."""
    for case, cost in costs.items():
        alike = [candidate for candidate in costs if candidate.different == case.different]
        fewer = next((candidate for candidate in alike if candidate.queries < case.queries), None)
        judged = {}
        if fewer is not None:
            ratio = cost.used / costs[fewer].used
            judged = {"ratio": ratio, "beside": fewer.title, "aim": f"≤ {SAME_AIM} ×"}
            judged["met"] = ratio <= SAME_AIM
        report.add(f"{case.title}: published until in an epoch", 1 / cost.waited, "rows/s")
        what = f"{case.title}: the engine's processor for 1,000 rows"
        report.add(what, cost.used * 1e6, "ms", **judged)


# ---- joins without an equality

# By name: the condition, and of how many groups of rows the join has one.
_CONDITIONS = {
    "an inequality": ("x.a > y.a", 4_096),
    "a band": ("x.a >= y.a AND x.a < y.a + 64", 8),
    "an OR": ("(x.a = y.a OR x.b = y.b)", 32),
}
_VALUES = 1 << 20


@dataclass(frozen=True)
class RangedJoin:
    """A join of the rows of one group in each of two streams, by the condition of this name."""

    name: str
    rows: int

    @property
    def groups(self) -> int:
        return _CONDITIONS[self.name][1]

    @property
    def streams(self) -> dict[str, str]:
        return {side: f"{side}_{self.name.split()[1]}" for side in "lr"}

    @property
    def text(self) -> str:
        source = "SELECT x.v AS v, y.v AS w FROM {l} x, {r} y WHERE ".format(**self.streams)
        return f"{source}{_CONDITIONS[self.name][0]} AND x.g = 3 AND y.g = 3"

    def tables(self) -> dict[str, pa.Table]:
        tables = {}
        for seed, stream in enumerate(self.streams.values()):
            random = np.random.default_rng(seed)
            values = {name: random.integers(0, _VALUES, self.rows) for name in "ab"}
            groups = random.integers(0, self.groups, self.rows)
            tables[stream] = pa.table({"g": groups, **values, "v": np.arange(self.rows)})
        return tables


def _ranged(store: RunningStore, client: Client, case: RangedJoin, stretches: int) -> StepCost:
    """The least that a stretch of rows cost, each of which goes to both streams."""
    tables, half = case.tables(), case.rows // 2
    _define(client, tables)
    client.register(case.text + _WINDOW)
    _publish(client, {name: rows.slice(0, half) for name, rows in tables.items()})
    _joined(store, client, case.text)
    return _stretched(store, client, tables, stretches, lambda: _joined(store, client, case.text))


def _joined(store: RunningStore, client: Client, text: str) -> None:
    """Waits until nothing of a join is left to be done at invoke."""
    store.wait_until_matched(client, _WAIT_SECONDS)
    deadline = time.monotonic() + _WAIT_SECONDS
    while client.ask(text + _WINDOW).joined_pairs:
        if time.monotonic() > deadline:
            raise AssertionError(f"the engine has not found the combinations of {text}")
        time.sleep(0.05)


def _add_ranges(report: Report, costs: dict[RangedJoin, StepCost]) -> None:
    for case, cost in costs.items():
        what = f"{case.name}, one group of {case.groups}: the engine's processor for 1,000 rows"
        report.add(what, cost.used * 1e6, "ms")


def _add_range_answers(report: Report, core: Core, case: RangedJoin, rounds: int) -> None:
    question = Question.of_text(case.text + _WINDOW, core.follower.state)
    calls: dict[str, Callable[[], int]] = {
        "found ahead": partial(_answer, core, question),
        "joined at invoke": partial(_join_now, core, question),
        "DuckDB": Duck(case.tables(), case.text),
    }
    (count,) = {call() for call in calls.values()}
    seconds = least_cpu(calls, rounds)
    for name, used in seconds.items():
        title = f"{name}: {case.name}, {count:,} pairs of {case.rows:,} × {case.rows:,} rows"
        ratio = used / seconds["found ahead"]
        report.add(title, used * 1e3, "ms", ratio=ratio, beside="found ahead")


def _define(client: Client, tables: dict[str, pa.Table]) -> None:
    for name, rows in tables.items():
        columns = ", ".join(f"{column} BIGINT" for column in rows.schema.names)
        client.define(f"CREATE STREAM {name} ({columns})")


def _publish(client: Client, tables: dict[str, pa.Table]) -> None:
    """Publishes the streams in turns, as they would come."""
    parts = {name: workload.batches(rows, BATCH_ROWS) for name, rows in tables.items()}
    for several in zip(*parts.values(), strict=True):
        for name, batch in zip(parts, several, strict=True):
            client.publish(name, batch)


def _settled(store: RunningStore, client: Client, case: Sharing) -> None:
    """Waits until the engine has matched everything and found all combinations."""
    store.wait_until_matched(client, _WAIT_SECONDS)
    deadline = time.monotonic() + _WAIT_SECONDS
    for group in _a_few_groups(case.different):
        while client.ask(case.text(group)).joined_pairs:
            if time.monotonic() > deadline:
                raise AssertionError(f"the engine has not found the combinations of {case}")
            time.sleep(0.05)


def _a_few_groups(different: int) -> Iterator[int]:
    """A few of the groups: the first, one in the middle, the last."""
    yield from sorted({0, different // 2, different - 1})


def _engine_seconds(store: RunningStore) -> float:
    assert store.engine is not None
    return processor([store.engine.pid, *store.engine.children()])


# ---- answers


async def _invoked(
    report: Report,
    store: RunningStore,
    cases: list[Sharing],
    ranges: list[RangedJoin],
    rounds: int,
) -> None:
    """Answers in this process, by a server that has nothing else to do."""
    settings = Settings(store=store.store, memory=1 << 30)
    core = Core(Store.open(store.store), settings)
    await core.start()
    await core.follower.catch_up()
    for case in cases:
        if case.queries == case.different:
            _add_answers(report, core, case, rounds)
    for range_case in ranges:
        _add_range_answers(report, core, range_case, rounds)
    await core.stop()


def _add_answers(report: Report, core: Core, case: Sharing, rounds: int) -> None:
    group, rows = case.different // 2, case.rows // case.different
    state = core.follower.state
    selection, join = (Question.of_text(case.text(group, kind), state) for kind in (_ONE, _JOIN))
    calls: dict[str, Callable[[], int]] = {
        "a selection": partial(_answer, core, selection),
        "found ahead": partial(_answer, core, join),
        "our join": partial(_join_now, core, join),
        "DuckDB": Duck(case.tables(), _JOIN.format(**case.streams) + str(group)),
    }
    assert all(call() == rows for call in calls.values()), case
    seconds = least_cpu(calls, rounds)
    title = f"{rows:,} of {case.rows:,} × {case.rows:,}"
    for name in ("a selection", "our join", "DuckDB"):
        what = {"our join": "joined at invoke", "DuckDB": "DuckDB joins"}.get(name, name)
        ratio = seconds[name] / seconds["found ahead"]
        beside = {"ratio": ratio, "beside": "found ahead"}
        report.add(f"{what}: {title}", seconds[name] * 1e3, "ms", **beside)
    ratio = seconds["found ahead"] / seconds["a selection"]
    judged = {"aim": f"≤ {INVOKE_AIM:.0f} ×", "met": ratio <= INVOKE_AIM}
    what = f"answer, found ahead: {title}"
    report.add(
        what, seconds["found ahead"] * 1e3, "ms", ratio=ratio, beside="a selection", **judged
    )


def _answer(core: Core, question: Question) -> int:
    """The rows of an answer, which was found ahead."""
    answer = core.maker.answer(core.follower.view, question)
    assert not answer.joined_pairs and not answer.computed_rows
    return answer.row_count


def _join_now(core: Core, question: Question) -> int:
    """The rows of an answer for which the legs are joined, as if nothing had been found ahead."""
    plan = core.maker.plan(core.follower.view, question)
    return core.maker.evaluate(replace(plan, composite=None), core.maker.work()).row_count


# ---- registrations


def _registered(report: Report, store: RunningStore, client: Client, scale: Scale) -> None:
    """Registers joins and selections in turns, each with a text of its own."""
    case = Sharing(0, scale.before, scale.rows)
    _define(client, case.tables())
    before = pa.table({"g": np.arange(scale.before)})
    kinds = {"a join": _JOIN, "a selection": _ONE}
    for kind in kinds.values():
        client.register_many(case.text(":g", kind), before)
    _publish(client, case.tables())
    store.wait_until_matched(client, _WAIT_SECONDS)
    server, engine = dict.fromkeys(kinds, 0.0), dict.fromkeys(kinds, 0.0)
    for turn in range(4):
        for name, kind in kinds.items():
            used = processor([store.servers[0].pid]), _engine_seconds(store)
            for number in range(turn * scale.registered // 4, (turn + 1) * scale.registered // 4):
                client.register(case.text(scale.before + number, kind))
            server[name] += processor([store.servers[0].pid]) - used[0]
            store.wait_until_matched(client, _WAIT_SECONDS)
            engine[name] += _engine_seconds(store) - used[1]
    for who, cost in {"server": server, "engine": engine}.items():
        for name, seconds in cost.items():
            what = f"registering {name} after {scale.before:,}: the {who}'s processor"
            ratio = seconds / max(cost["a selection"], 1e-9)
            judged = {"aim": f"≤ {SAME_AIM} ×", "met": ratio <= SAME_AIM}
            comparison = (
                {"ratio": ratio, "beside": "a selection", **judged} if name == "a join" else {}
            )
            report.add(what, seconds / scale.registered * 1e3, "ms", **comparison)
