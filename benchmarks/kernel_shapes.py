"""Every shape of query in batches of every size, beside the best that finds the same matches.

Index and opponents both give the rows of each query. Bitmaps, and pairs in the order of rows, which
nobody sorted by query, have lines of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks.kernel_families import (
    Boxes,
    Opponent,
    PaperIntervals,
    QueryFamily,
    Thresholds,
)
from benchmarks.kernel_queries import Intervals
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from querystem.index import QueryStem

BATCHES = (1, 1000, 10_000, 1 << 16)
# A call of a batch takes about a millisecond or more if it is repeated so often.
_REPEATS = {1: 100, 1000: 10}
# DuckDB takes minutes for the products of larger batches, and numpy for each query by itself.
_MOST_SLOW_ROWS = 10_000
_SLOW_MATCHES = 100
_ONE_ROW_MS = 0.1


def measure_shapes(report: Report, quick: bool, rounds: int) -> None:
    """Add the families of queries to a report."""
    zipf = Thresholds.make(50_000, 1_000, 121.0, zipf=True)
    families: list[tuple[str, QueryFamily, float, float]] = [
        ("50,000 thresholds, 24 matches a row", Thresholds.make(50_000, 1000, 97.0), 0.8, 0.5),
        ("100,000 thresholds, 0.09 matches a row", Thresholds.make(100_000, 5000, 0.9), 1, 0.5),
        ("50,000 Zipf thresholds, 877 matches a row", zipf, 0.8, 0.5),
        ("10,000 boxes", Boxes.make(10_000, 0.01), 1, 0.5),
        ("4,096 of two intervals", PaperIntervals(Intervals.make(4096)), 1, 0.3),
    ]
    for name, family, least, share in families:
        _measure(report, name, family, least, share, rounds=2 if quick else rounds)


def _measure(
    report: Report, name: str, family: QueryFamily, least: float, share: float, rounds: int
) -> None:
    stem, whole, opponents = family.stem(), family.rows(), family.opponents()
    rates: dict[int, float] = {}
    for size in BATCHES:
        rows = whole.slice(0, size)
        slow = size > _MOST_SLOW_ROWS and _pairs(stem, rows)[0] > _SLOW_MATCHES * size
        present = {
            what: call
            for what, call in opponents.items()
            if what != "DuckDB" or not (slow or (isinstance(family, Boxes) and size > 1000))
        }
        _check(stem, rows, present)
        calls: dict[str, Callable[[], object]] = {
            "index": partial(stem.probe, rows),
            "bitmaps": partial(_bitmaps, stem, rows),
            **{what: partial(call, rows) for what, call in present.items()},
        }
        if isinstance(family, Thresholds):
            calls["row by row"] = partial(family.rowwise(), rows)
        took = _least(calls, _REPEATS.get(size, 1), rounds)
        best = min(present, key=took.__getitem__)
        ratio = took[best] / took["index"]
        rates[size] = size / took["index"]
        goal = {"aim": f"≥ {least} ×", "met": ratio >= least} if size > 1 else {}
        what = f"{name}, {size:,} rows a batch"
        report.add(what, rates[size], "rows/s", ratio=ratio, beside=best, **goal)
        report.add("  and bitmaps", size / took["bitmaps"], "rows/s")
        if size == 1:
            cost = took["index"] * 1e3
            aim = {"aim": f"≤ {_ONE_ROW_MS} ms", "met": cost <= _ONE_ROW_MS}
            report.add("  processor time", cost, "ms", **aim)
        if "row by row" in took:
            beside = {"ratio": took["row by row"] / took["index"], "beside": "not by query"}
            report.add(
                "  sorted thresholds, row by row", size / took["row by row"], "rows/s", **beside
            )
    ratio = rates[1000] / rates[BATCHES[-1]]
    goal = {"aim": f"≥ {share} ×", "met": ratio >= share}
    last = f"at {BATCHES[-1]:,}"
    report.add(
        f"{name}, rate at 1,000 rows", rates[1000], "rows/s", ratio=ratio, beside=last, **goal
    )


def _least(
    calls: Mapping[str, Callable[[], object]], repeats: int, rounds: int
) -> dict[str, float]:
    """The least processor time of each call, in turns."""

    def repeated(call: Callable[[], object]) -> None:
        for _ in range(repeats):
            call()

    took = least_cpu({what: partial(repeated, call) for what, call in calls.items()}, rounds)
    return {what: seconds / repeats for what, seconds in took.items()}


def _bitmaps(stem: QueryStem, rows: pa.RecordBatch) -> object:
    return stem.probe(rows).bitmaps()


def _pairs(stem: QueryStem, rows: pa.RecordBatch) -> tuple[int, int]:
    """How many matches there are, and the sum of (query + 1) * (row + 1) over all of them."""
    count = total = 0
    for part in stem.probe(rows).parts:
        lists = part.lists()
        count += len(lists.rows)
        ids = np.repeat(lists.ids, lists.counts).astype(np.uint64)
        total += int(((ids + 1) * (lists.rows.astype(np.uint64) + 1)).sum())
    return count, total


def _check(stem: QueryStem, rows: pa.RecordBatch, opponents: Mapping[str, Opponent]) -> None:
    """Raise an error unless all opponents find the matches that the index finds."""
    expected = _pairs(stem, rows)
    for name, call in opponents.items():
        ids, matched = call(rows)
        total = int(((ids.astype(np.uint64) + 1) * (matched.astype(np.uint64) + 1)).sum())
        if (len(ids), total) != expected:
            raise AssertionError(f"{name} finds {len(ids):,} matches, the index {expected[0]:,}")
