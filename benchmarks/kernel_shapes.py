"""Every shape of query in batches of every size, beside the best that finds the same matches.

Index and opponents both give the rows of each query. Bitmaps, and pairs in the order of rows, which
nobody sorted by query, have lines of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

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
from benchmarks.kernel_texts import (
    either,
    in_lists,
    like_pieces,
    like_prefixes,
    lowered,
    prefixes_and_prices,
    substrings,
    unlike,
    unlike_of_code,
)
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from querystem.expressions import Expression, from_json
from querystem.index import QueryStem
from querystem.kernel import matches

BATCHES = (1, 1000, 10_000, 1 << 16)
# A call of a batch takes about a millisecond or more if it is repeated so often.
_REPEATS = {1: 100, 1000: 10}
# So many pairs of a query and a row are too many for DuckDB's nested loops, and for Python.
_MOST_SLOW_PAIRS = 20_000_000
# What compares every query with every row, and what takes minutes for many matches.
_PAIRWISE = frozenset({"boxes", "pieces"})
_MOST_SLOW_MATCHES = 2_000_000
_ONE_ROW_MS = 0.1
_READING_US = 10.0
# So many queries of a family are evaluated by themselves, and stand for all.
ALONE_QUERIES = 32


@dataclass(frozen=True)
class MeasuredFamily:
    """A family and its aims: at least `ratio` of the best opponent's rate in batches of 1,000 rows
    and more, at least `share` of the rate of large batches in those, and whether one row is to take
    at most 0.1 ms."""

    name: str
    make: Callable[[], QueryFamily]
    ratio: float = 1
    share: float = 0.5
    is_quick: bool = True


FAMILIES = (
    MeasuredFamily(
        "50,000 thresholds, 24 matches a row", lambda: Thresholds.make(50_000, 1000, 97.0), 0.8
    ),
    MeasuredFamily(
        "100,000 thresholds, 0.09 matches a row", lambda: Thresholds.make(100_000, 5000, 0.9)
    ),
    MeasuredFamily(
        "50,000 Zipf thresholds, 877 matches a row",
        lambda: Thresholds.make(50_000, 1_000, 121.0, zipf=True),
        0.8,
    ),
    MeasuredFamily("10,000 boxes", lambda: Boxes.make(10_000, 0.01)),
    MeasuredFamily(
        "4,096 of two intervals", lambda: PaperIntervals(Intervals.make(4096)), 1, 0.3, False
    ),
    MeasuredFamily("20,000 LIKE prefixes", like_prefixes),
    MeasuredFamily("10,000 LIKE pieces", like_pieces),
    MeasuredFamily("20,000 LIKE prefixes and a price", prefixes_and_prices),
    MeasuredFamily("50,000 lower(code) = ?", lowered),
    MeasuredFamily("20,000 substring(name, 2, 3) = ?", substrings),
    MeasuredFamily("20,000 IN lists of 5", in_lists),
    MeasuredFamily("20,000 code = ? OR other = ?", either, is_quick=False),
    MeasuredFamily("20,000 code = ? AND name NOT LIKE ?", unlike_of_code, is_quick=False),
    MeasuredFamily("1,000 NOT LIKE prefixes", unlike, is_quick=False),
)


def measure_shapes(report: Report, quick: bool, rounds: int) -> None:
    """Add the families of queries to a report."""
    for family in FAMILIES:
        _measure(report, family, rounds=2 if quick else rounds)


def _measure(report: Report, measured: MeasuredFamily, rounds: int) -> None:
    name, family = measured.name, measured.make()
    texts, whole, opponents = family.texts(), family.rows(), family.opponents()
    read = least_cpu({"read": partial(stem_of, texts)}, 2)["read"] / len(texts) * 1e6
    goal = {"aim": f"≤ {_READING_US:g} µs", "met": read <= _READING_US}
    report.add(f"{name}: reading one of their texts", read, "µs", **goal)
    stem = stem_of(texts)
    rates: dict[int, float] = {}
    for size in BATCHES:
        rows = whole.slice(0, size)
        match_count = _pairs(stem, rows)[0]
        present = {
            what: opponent
            for what, opponent in opponents.items()
            if what != "DuckDB" or not _is_slow(name, len(texts) * size, match_count)
        }
        _check(stem, rows, present)
        calls: dict[str, Callable[[], object]] = {
            "index": partial(stem.probe, rows),
            "bitmaps": partial(_bitmaps, stem, rows),
            **{what: partial(opponent, rows) for what, opponent in present.items()},
        }
        if isinstance(family, Thresholds):
            calls["row by row"] = partial(family.rowwise(), rows)
        took = least_of(calls, _REPEATS.get(size, 1), rounds)
        took["each by itself"] = _alone_seconds(texts, rows)
        best = min([*present, "each by itself"], key=took.__getitem__)
        ratio = took[best] / took["index"]
        rates[size] = size / took["index"]
        least = measured.ratio
        goal = {"aim": f"≥ {least} ×", "met": ratio >= least} if size > 1 else {}
        what = f"{name}, {size:,} rows a batch"
        report.add(what, rates[size], "rows/s", ratio=ratio, beside=best, **goal)
        report.add("  and bitmaps", size / took["bitmaps"], "rows/s")
        if size == 1:
            cost = took["index"] * 1e3
            is_met = {"aim": f"≤ {_ONE_ROW_MS} ms", "met": cost <= _ONE_ROW_MS}
            report.add("  processor time", cost, "ms", **(is_met if measured.is_quick else {}))
        if "row by row" in took:
            beside = {"ratio": took["row by row"] / took["index"], "beside": "not by query"}
            report.add(
                "  sorted thresholds, row by row", size / took["row by row"], "rows/s", **beside
            )
    ratio = rates[1000] / rates[BATCHES[-1]]
    goal = {"aim": f"≥ {measured.share} ×", "met": ratio >= measured.share}
    last = f"at {BATCHES[-1]:,}"
    report.add(
        f"{name}, rate at 1,000 rows", rates[1000], "rows/s", ratio=ratio, beside=last, **goal
    )


def _is_slow(name: str, pairs: int, matches: int) -> bool:
    """Whether DuckDB would take minutes."""
    is_pairwise = any(word in name for word in _PAIRWISE)
    return matches > _MOST_SLOW_MATCHES or (is_pairwise and pairs > _MOST_SLOW_PAIRS)


def stem_of(texts: pa.Array) -> QueryStem:
    """Return a query SteM of the queries with these texts."""
    stem = QueryStem()
    stem.insert_texts(np.arange(len(texts)), texts)
    return stem


def _alone_seconds(texts: pa.Array, rows: pa.RecordBatch) -> float:
    took = least_cpu({"alone": partial(alone, texts, rows)}, 2)["alone"]
    return took * len(texts) / min(len(texts), ALONE_QUERIES)


def alone(texts: pa.Array, rows: pa.RecordBatch) -> None:
    """Evaluate some of the queries, each by itself."""
    for where in _some_wheres(texts):
        np.flatnonzero(matches(where, rows))


def _some_wheres(texts: pa.Array) -> list[Expression]:
    step = max(len(texts) // ALONE_QUERIES, 1)
    return [_where(texts[n].as_py()) for n in range(0, len(texts), step)][:ALONE_QUERIES]


@cache
def _where(text: str) -> Expression:
    return from_json(json.loads(text))


def least_of(
    calls: Mapping[str, Callable[[], object]], repeats: int, rounds: int
) -> dict[str, float]:
    """Return the least processor time of each call, in turns."""

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
