"""Answers of joins that were found ahead, over legs of up to 16 million rows: the first one after a
start, and warm ones.

Two streams with as many rows, each of which has one partner; an answer has 100 rows, whatever the
size of the legs. A selective join keeps a hundredth of each leg, and the engine stores only the
combinations of those; a wide one is asked of a composite that has a combination for every row.
Beside them: a selection of as many rows from the same stream, our own join at invoke, DuckDB, and
PostgreSQL with indexes if it is installed. The machine may be busy: costs are processor time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.duck import Duck
from benchmarks.join_cases import sparse
from benchmarks.postgres import Postgres, installed
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from client_sdk import Client
from datastem.instants import DAY
from psoup.answers import Question
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from tests.support.system.processes import RunningStore

_MORE_COLUMNS = "price DOUBLE, name TEXT, at TIMESTAMP"
ROWS = 100
SHARE = 100
BATCH_ROWS = 1 << 16
FIRST_AIM_SECONDS, WARM_AIM, GROWTH_AIM = 0.050, 3.0, 1.5
_WAIT_SECONDS = 3600.0
_MEMORY_BYTES = 1 << 30

SELECTION = "SELECT v, g FROM l WHERE c = 7"
_JOIN = "SELECT x.v AS v, y.v AS w FROM l x, r y WHERE x.k = y.k"
JOINS = {
    "selective": (f"{_JOIN} AND x.g = 7 AND y.h = 8", " RANGE 20 DAYS"),
    "wide": (f"{_JOIN} AND x.c = 7", ""),
}
# A query for all rows makes the engine store every combination of the wide composite.
_EVERY = _JOIN
# The rows of a stream are spread over this time, up to the present.
_DAYS = 10
_INDEXES = ("l (c)", "l (g)", "l (k)", "r (h)", "r (k)")


def run(folder: Path, quick: bool) -> Report:
    sizes = (100_000, 400_000) if quick else (1_000_000, 4_000_000, 16_000_000)
    report = Report("found_ahead", f"answers of {ROWS} rows, {_MEMORY_BYTES >> 20} MiB of memory")
    warm: dict[str, list[float]] = {}
    for rows in sizes:
        place = folder / str(rows)
        place.mkdir()
        fill(place, rows)
        for name, seconds in measure(report, place, rows).items():
            warm.setdefault(name, []).append(seconds)
    for name, by_size in warm.items():
        ratio = by_size[-1] / by_size[0]
        report.add(
            f"{name}: from {sizes[0]:,} to {sizes[-1]:,} rows a leg", ratio, "×",
            aim=f"≤ {GROWTH_AIM} ×", met=ratio <= GROWTH_AIM,
        )  # fmt: skip
    return report


# ---- rows


def tables(rows: int) -> dict[str, pa.Table]:
    """The rows of both streams. Of the hundredth of `l` with g = 7, 100 rows have a partner with
    h = 8; so have 100 the value 7 of c."""
    random = np.random.default_rng(rows)
    numbers = np.arange(rows)
    keys, partners = sparse(numbers), random.permutation(rows)
    groups = numbers % SHARE
    # The value of h for each number of a row of `l`, in the order of these numbers.
    chosen = np.flatnonzero(groups == 7)
    unchosen = np.flatnonzero(groups != 7)
    values = np.zeros(rows, np.int64)
    values[chosen[:: len(chosen) // ROWS][:ROWS]] = 8
    values[random.choice(unchosen, rows // SHARE - ROWS, replace=False)] = 8
    prices, names = random.random(rows), [f"name {number}" for number in range(1_000)]
    texts = pa.array(names).take(pa.array(numbers % 1_000))
    left_columns = {"k": keys, "g": groups, "c": numbers % (rows // ROWS), "v": numbers}
    right_columns = {"k": keys[partners], "h": values[partners], "v": numbers}
    begin = datetime.now(UTC) - timedelta(days=_DAYS)
    instants = round(begin.timestamp() * 1e6) + numbers * (_DAYS * DAY // rows)
    at = pa.array(instants).cast(pa.timestamp("us", "UTC"))
    common = {"price": pa.array(prices), "name": texts, "at": at}
    return {"l": pa.table(left_columns | common), "r": pa.table(right_columns | common)}


def fill(folder: Path, rows: int) -> None:
    """Fill a store with the rows and let an engine find all combinations."""
    with RunningStore(folder) as store:
        store.start_server("--memory", "1GB")
        engine = store.start_engine()
        with store.client() as client:
            for name, numbers in (("l", "k, g, c, v"), ("r", "k, h, v")):
                columns = ", ".join(f"{column} BIGINT" for column in numbers.split(", "))
                client.define(f"CREATE STREAM {name} ({columns}, {_MORE_COLUMNS}) ORDERED BY at")
            for name, stream_rows in tables(rows).items():
                publisher = client.publisher(f"of {name}")
                publisher.publish_many(name, _batches(stream_rows))
            client.register(SELECTION)
            client.register(_EVERY)
            for text, window in JOINS.values():
                client.register(text + window)
            store.wait_until_matched(client, _WAIT_SECONDS)
            for text, window in JOINS.values():
                _wait_until_found(client, text + window)
        store.servers[0].stop()
        engine.stop()


def _batches(rows: pa.Table) -> Iterator[pa.Table]:
    for first in range(0, rows.num_rows, BATCH_ROWS):
        yield rows.slice(first, BATCH_ROWS)


def _wait_until_found(client: Client, text: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while client.ask(text).joined_pairs:
        if time.monotonic() > deadline:
            raise AssertionError(f"the engine has not found the combinations of {text}")
        time.sleep(0.2)


# ---- answers


def measure(report: Report, folder: Path, rows: int, rounds: int = 21) -> dict[str, float]:
    """Add the answers over a store that nothing runs on; return the seconds of warm ones."""
    return asyncio.run(_measure(report, folder / "store", rows, rounds))


async def _measure(report: Report, store: Path, rows: int, rounds: int) -> dict[str, float]:
    size = f"{rows:,} × {rows:,}"
    core = await _opened(store)
    questions = {name: _question(core, text + window) for name, (text, window) in JOINS.items()}
    questions["a selection"] = _question(core, SELECTION)
    await core.stop()
    for name, question in questions.items():
        first = min([await _first(store, question) for _ in range(3)])
        aim = {"aim": f"≤ {FIRST_AIM_SECONDS * 1e3:.0f} ms", "met": first <= FIRST_AIM_SECONDS}
        report.add(f"{name}, first after a start: {size}", first * 1e3, "ms", **aim)
    core = await _opened(store)
    legs = tables(rows)
    calls: dict[str, Callable[[], int]] = {
        name: partial(_answer, core, question) for name, question in questions.items()
    }
    for name, (text, _) in JOINS.items():
        calls[f"{name}, joined at invoke"] = partial(_join_now, core, questions[name])
        calls[f"{name}, DuckDB"] = Duck(legs, text)
    counts = {name: call() for name, call in calls.items()}
    assert set(counts.values()) == {ROWS}, counts
    seconds = least_cpu(calls, rounds)
    await core.stop()
    for name, used in seconds.items():
        ratio = used / seconds["a selection"]
        judged = {"aim": f"≤ {WARM_AIM:g} ×", "met": ratio <= WARM_AIM} if name in JOINS else {}
        title = f"{name}{', found ahead, warm' if name in JOINS else ''}: {size}"
        report.add(title, used * 1e3, "ms", ratio=ratio, beside="a selection", **judged)
    if installed():
        with Postgres(store.parent / "postgres", legs, _INDEXES) as postgres:
            for name, (text, _) in JOINS.items():
                used = postgres.least_seconds(text, rounds)
                ratio = used / seconds["a selection"]
                title = f"{name}, PostgreSQL with indexes, elapsed: {size}"
                report.add(title, used * 1e3, "ms", ratio=ratio, beside="a selection")
    return {name: seconds[name] for name in questions}


async def _opened(store: Path) -> Core:
    core = Core(Store.open(store), Settings(store=store, memory=_MEMORY_BYTES))
    await core.start()
    await core.follower.catch_up()
    return core


async def _first(store: Path, question: Question) -> float:
    """The processor time of the first answer of a server that has read nothing but its tables."""
    core = await _opened(store)
    before = time.process_time()
    assert _answer(core, question) == ROWS
    used = time.process_time() - before
    await core.stop()
    return used


def _question(core: Core, text: str) -> Question:
    return Question.of_text(text, core.follower.state)


def _answer(core: Core, question: Question) -> int:
    """The rows of an answer, which was found ahead."""
    answer = core.maker.answer(core.follower.view, question)
    assert not answer.joined_pairs and not answer.computed_rows
    return answer.row_count


def _join_now(core: Core, question: Question) -> int:
    """The rows of an answer for which the legs are joined, as if nothing had been found ahead."""
    plan = core.maker.plan(core.follower.view, question)
    return core.maker.evaluate(replace(plan, composite=None), core.maker.work()).row_count
