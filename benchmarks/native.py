"""The native core beside numpy: the same work in one process, with the core and without."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.kernel_families import Boxes, PaperIntervals, QueryFamily, Thresholds
from benchmarks.kernel_queries import Intervals
from benchmarks.kernel_shapes import stem_of
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from benchmarks.typed import COLUMNS, sample_rows
from datastem import native
from psoup.server.wire.typed import row_fields
from querystem.index import QueryStem

BATCHES = (1, 1000, 10_000, 1 << 16)
ANSWERS = (100, 1000, 10_000)
# Calls of a batch that are measured together, so that each takes a millisecond or more.
_REPEATS = {1: 100, 100: 100, 1000: 10}


def run(folder: Path, quick: bool) -> Report:
    if native.core is None:
        raise SystemExit("the native core was not built, or PSOUP_NATIVE is 0")
    rounds = 3 if quick else 9
    report = Report("native", f"{rounds} rounds, processor time, numpy in turns with the core")
    families: list[tuple[str, QueryFamily]] = [
        ("50,000 thresholds, 24 matches a row", Thresholds.make(50_000, 1000, 97.0)),
        (
            "50,000 Zipf thresholds, 877 matches a row",
            Thresholds.make(50_000, 1_000, 121.0, zipf=True),
        ),
        ("10,000 boxes", Boxes.make(10_000, 0.01)),
        ("4,096 of two intervals", PaperIntervals(Intervals.make(4096))),
    ]
    for name, family in families:
        stem, rows = stem_of(family.texts()), family.rows()
        for size in BATCHES:
            call = partial(_bitmaps, stem, rows.slice(0, size))
            what = f"{name}, {size:,} rows to bitmaps"
            _measure(report, what, call, _REPEATS.get(size, 1), rounds)
    for size in ANSWERS:
        encode = partial(row_fields, sample_rows(size), COLUMNS)
        what = f"typed values, {size:,} rows × {len(COLUMNS)}"
        _measure(report, what, encode, _REPEATS.get(size, 1), rounds)
    return report


def _measure(report: Report, what: str, call: Callable[[], Any], repeats: int, rounds: int) -> None:
    core = native.core

    def repeated(chosen: Any) -> None:
        native.core = chosen
        try:
            for _ in range(repeats):
                call()
        finally:
            native.core = core

    least = least_cpu({"native": partial(repeated, core), "numpy": partial(repeated, None)}, rounds)
    ratio = least["native"] / least["numpy"]
    report.add(what, least["native"] / repeats * 1e3, "ms", ratio=ratio, beside="numpy")


def _bitmaps(stem: QueryStem, rows: pa.RecordBatch) -> object:
    return stem.probe(rows).bitmaps()
