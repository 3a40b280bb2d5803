"""What a server answers from kept summaries is what all rows say, whatever was asked before."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from datastem.blocks import SplitRows
from datastem.codec import decode, encode, query_view
from datastem.memory import Memory
from datastem.schema import StreamSchema
from datastem.segments import RowSegment
from datastem.stem import DataStem
from psoup.answers.caches import Memo
from psoup.answers.evaluate import evaluate, evaluate_at_once
from psoup.answers.joins.join_limits import JoinLimits
from psoup.answers.matching.match_files import MatchFileCache
from psoup.answers.matching.matcher import Matcher, Work
from psoup.answers.planning.plan import CompositePlan, LegPlan, Plan
from psoup.answers.replicas.epoch_files import EMPTY
from psoup.store import START
from querystem.aggregate import partial
from querystem.evaluate import answer_at
from querystem.language import CreateStream, bind_query, bind_window, parse_statement
from results.match_cache import MatchCache
from tests.support.lengths import short_first

ROWS = 3 * 65536 + 30_000
BATCH = 10_000
QUERIES = [
    "SELECT count(*) AS n, sum(x) AS total, avg(x) AS mean FROM s WHERE b > 20",
    "SELECT k, max(x) AS most, last(b) AS newest FROM s WHERE b > 20 GROUP BY k ORDER BY k",
    "SELECT count(DISTINCT k) AS n, stddev(x) AS spread FROM s",
    "SELECT k, row_id FROM s WHERE b > 97 ORDER BY x DESC LIMIT 7",
    "SELECT at AS instant, k, x, row_id FROM s WHERE b > 97",
    "SELECT sum(row_id) AS total, avg(row_id) AS mean, count(*) AS n FROM s WHERE b > 97",
    "SELECT max(ts) AS newest, count(row_id) AS n FROM s WHERE b > 97",
]
# Equal WHERE, equal predicate.
PREDICATES = [0, 0, 1, 2, 2, 2, 2]
WINDOWS = [
    "RANGE {0} MILLISECONDS",
    "BEGIN NOW - {1} MILLISECONDS END NOW - {0} MILLISECONDS",
    "RANGE 3 SECONDS",
    "ROWS {0}",
    "ROWS {0} SLIDE 1000",
    "BEGIN ROW {0} END ROW {1}",
    "BEGIN ROW LAST - {0} END ROW LAST",
    "ROWS 3 PARTITION BY k",
    "UNBOUNDED",
]


def schema() -> StreamSchema:
    sql = "CREATE STREAM s (k TEXT, x DOUBLE, b BIGINT, at TIMESTAMP) ORDERED BY at"
    statement = parse_statement(sql)
    assert isinstance(statement, CreateStream)
    return statement.schema


def batch(first: int, count: int, seed: int) -> pa.RecordBatch:
    """Row n is of millisecond n, some are up to 20 seconds late."""
    generator = np.random.default_rng(seed + first)
    at = np.arange(first, first + count) * 1000
    late = generator.random(count) < 0.02
    at = np.where(late, np.maximum(at - generator.integers(0, 20_000_000, count), 0), at)
    columns = [
        pa.array([f"key-{n}" for n in generator.integers(0, 50, count)]),
        pa.array(generator.normal(100, 20, count)),
        pa.array(generator.integers(0, 100, count)),
        pa.array(at).view(pa.timestamp("us", "UTC")),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema().arrow)
    return decode(schema(), encode(rows), first, first, first)


class OneMatcher:
    """The matcher of the only leg there is; nothing is combined."""

    def __init__(self, matcher: Matcher) -> None:
        self.work, self._matcher = matcher.work, matcher

    def of(self, leg: LegPlan) -> Matcher:
        return self._matcher

    def of_combinations(self, plan: Plan, composite: CompositePlan) -> Matcher:
        return self._matcher


class Bench:
    """A stem whose first block is in files only, and what a server keeps beside it."""

    def __init__(self) -> None:
        self.schema = schema()
        self.rows: list[pa.RecordBatch] = []
        self.stem = DataStem(Memory(1 << 20), self._read)
        self.known = MatchCache(1 << 26)
        self.memo = Memo(1 << 26)
        self.quick = 0

    def grow(self, count: int) -> None:
        rows = batch(self.stem.high, count, 1)
        self.rows.append(rows)
        self.stem.insert(SplitRows.of(rows), self.stem.high, self.stem.high + count)

    def cover(self, high: int) -> None:
        self.stem.cover(self.stem.indexed(high, [RowSegment(0, high, 0, 1 << 60, "file")]))

    def _read(self, segments: Any, lo: int, hi: int, names: Any = None) -> pa.RecordBatch:
        return pa.concat_batches(self.rows).slice(lo, hi - lo)

    def ask(
        self, sql: str, window: str, now: int, predicate: int, retain: int | None = None
    ) -> pa.RecordBatch:
        query = bind_query(sql, {"s": self.schema}.get)
        query = query.with_window(bind_window(window, self.schema))
        stored = MatchFileCache(Path(), 1 << 20)
        matcher = Matcher(predicate, 1, query.leg.where, EMPTY, self.known, stored, Work(1 << 60))
        oldest = None if retain is None else now - retain + 1
        stem = self.stem.view()
        leg = LegPlan(query.leg, self.schema, 1, predicate, stem, None, now, oldest, ())
        plan, matchers = Plan(query, (leg,), EMPTY, START, now, ()), OneMatcher(matcher)
        answer = pa.concat_batches(evaluate(plan, matchers, self.memo, JoinLimits()).batches)
        quick = evaluate_at_once(plan, matchers, self.memo)
        assert quick is None or pa.concat_batches(quick.batches).equals(answer)
        self.quick += quick is not None
        return answer

    def expected(self, sql: str, window: str, now: int, retain: int | None) -> pa.RecordBatch:
        query = bind_query(f"{sql} {window}", {"s": self.schema}.get)
        return answer_at(query, [query_view(rows) for rows in self.rows], now, retain)


@pytest.mark.parametrize("seed", short_first(range(3), 2))
def test_differential_summaries_and_all_rows(seed: int) -> None:
    dice, bench = random.Random(seed), Bench()
    while bench.stem.high < ROWS:
        bench.grow(BATCH if bench.stem.high < 3 * 65536 else dice.randrange(1, BATCH))
        if bench.stem.high > 140_000:
            bench.cover(131_072)
        for _ in range(4 if bench.stem.high > 3 * 65536 else 0):
            number = dice.randrange(len(QUERIES))
            low, high = sorted(dice.randrange(1, bench.stem.high) for _ in range(2))
            window = dice.choice(WINDOWS).format(low, high)
            now = (bench.stem.high - dice.choice([1, 1, 5000])) * 1000
            retain = dice.choice([None, None, 100_000_000])
            answer = bench.ask(QUERIES[number], window, now, PREDICATES[number], retain)
            expected = bench.expected(QUERIES[number], window, now, retain)
            assert answer.equals(expected), (number, window, now, retain)


@pytest.mark.parametrize("seed", short_first(range(3), 2))
def test_differential_partitions_and_all_rows(seed: int) -> None:
    """Rows come late, NOW is set back, the retention comes and goes, between two growths."""
    dice, bench = random.Random(seed), Bench()
    bench.grow(60_000)
    windows = ["ROWS 3 PARTITION BY k", "ROWS 40 PARTITION BY b, k"]
    for _ in range(12):
        bench.grow(dice.choice([1, 40, 3000]))
        for _ in range(2):
            number, window = dice.choice([3, 4]), dice.choice(windows)
            now = (bench.stem.high - dice.choice([1, 1, 1, 30])) * 1000
            retain = dice.choice([None, 30_000_000, 30_000_000])
            answer = bench.ask(QUERIES[number], window, now, PREDICATES[number], retain)
            expected = bench.expected(QUERIES[number], window, now, retain)
            assert answer.equals(expected), (number, window, now, retain)


def test_differential_quick_answers_and_all_rows() -> None:
    dice, bench = random.Random(0), Bench()
    bench.grow(50_000)
    bench.grow(30_000)
    windows = ["RANGE {0} MILLISECONDS", "BEGIN ROW {0} END ROW {1}", "RANGE 1 SECOND"]
    for _ in range(60):
        number, now = dice.randrange(len(QUERIES)), (bench.stem.high - dice.choice([1, 900])) * 1000
        low, high = sorted(dice.randrange(1, 4000) for _ in range(2))
        window = dice.choice(windows).format(low, high)
        answer = bench.ask(QUERIES[number], window, now, PREDICATES[number])
        assert answer.equals(bench.expected(QUERIES[number], window, now, None)), (number, window)
    assert bench.quick > 30


def test_what_is_kept_serves_other_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second window over the same blocks aggregates the chunks at its edges, and no more."""
    bench, sizes = Bench(), []

    def counting(grouping: Any, rows: pa.RecordBatch) -> Any:
        sizes.append(rows.num_rows)
        return partial(grouping, rows)

    while bench.stem.high < ROWS:
        bench.grow(BATCH)
    now = (bench.stem.high - 1) * 1000
    bench.ask(QUERIES[0], "RANGE 150000 MILLISECONDS", now, 0)
    monkeypatch.setattr("psoup.answers.evaluate.partial", counting)
    bench.ask(QUERIES[0], "RANGE 149999 MILLISECONDS", now, 0)
    assert sum(sizes) < 5 * 4096
