"""Medians of a window of many rows, beside DuckDB on one thread.

The window is 16 blocks. "first" sorts each of them; "again" merges the sorted runs that an answer
before has cached, as `psoup.answers.rows.folds` does. Times are processor time in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial as bound_to
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.duck import Duck
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, DOUBLE
from querystem.aggregate import Partial, finish, merge, partial
from querystem.grouping import Grouping
from querystem.language import bind_query

_BLOCKS = 16
MAX_RATIO = 2.0
_SCHEMA = StreamSchema("t", (Column("g", BIGINT), Column("x", DOUBLE)))
_QUERIES = {
    "median": "SELECT median(x) AS m FROM t",
    "median and p95": "SELECT median(x) AS m, percentile(x, 0.95) AS p FROM t",
    "median of 100 groups": "SELECT g, median(x) AS m FROM t GROUP BY g",
}


def run(folder: Path, quick: bool) -> Report:
    count, rounds = (200_000, 3) if quick else (1_000_000, 7)
    report = Report("percentiles", f"{count:,} rows; processor time in one process")
    random = np.random.default_rng(3)
    rows = pa.record_batch(
        {
            "g": pa.array(random.integers(0, 100, count)),
            "x": pa.array(random.normal(size=count)),
            "ts": pa.array(np.arange(count), pa.timestamp("us", "UTC")),
            "row_id": pa.array(np.arange(count)),
        }
    )
    size = -(-count // _BLOCKS)
    blocks = [rows.slice(start, size) for start in range(0, count, size)]
    for name, text in _QUERIES.items():
        grouping = bind_query(text, {"t": _SCHEMA}.get).grouping
        assert grouping is not None
        partials = [partial(grouping, block) for block in blocks]
        duck = Duck(
            {"t": pa.Table.from_batches([rows])}, text.replace("percentile", "quantile_cont")
        )
        ways: dict[str, Callable[[], Any]] = {
            "first": bound_to(_first, grouping, blocks),
            "again": bound_to(_again, grouping, partials),
            "DuckDB": duck,
        }
        times = least_cpu(ways, rounds)
        for way in ("first", "again"):
            ratio = times[way] / times["DuckDB"]
            is_aim = name == "median"
            report.add(
                f"{name}, {way}",
                times[way] * 1e3,
                "ms",
                ratio=ratio,
                beside="DuckDB",
                aim=f"≤ {MAX_RATIO:g} ×" if is_aim else "",
                met=ratio <= MAX_RATIO if is_aim else None,
            )
        report.add(f"{name}, DuckDB", times["DuckDB"] * 1e3, "ms")
    return report


def _first(grouping: Grouping, blocks: list[pa.RecordBatch]) -> pa.RecordBatch:
    return _again(grouping, [partial(grouping, block) for block in blocks])


def _again(grouping: Grouping, partials: list[Partial]) -> pa.RecordBatch:
    return finish(grouping, merge(partials))
