"""Disk: the bytes of matches for each row, with 100,000 registered queries of some shapes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.cluster.store import DOMAIN, POINTS, intervals, template, texts_of
from benchmarks.report import Report
from datastem.arrays import Int64s
from datastem.codec import INSTANT
from datastem.schema import OP
from psoup.engine.spark.jobs import SparkJob, by_table
from psoup.engine.steps import pieces
from psoup.engine.steps.worker import write_pieces
from querystem.expressions import Op
from querystem.index import QueryStem

MAX_BYTES = 100.0
# Rows of a step, and of all steps that are merged afterwards.
STEPS = ((1_000, 16_000), (8_192, 65_536), (65_536, 65_536))


def run(folder: Path, quick: bool) -> Report:
    queries = 10_000 if quick else 100_000
    report = Report("disk", f"bytes of matches a row, {queries:,} registered queries")
    for symbols, (index, what) in _shapes(queries).items():
        for step_rows, rows in STEPS:
            batches = (_rows(first, step_rows, symbols) for first in range(0, rows, step_rows))
            tables = [table for batch in batches for table in pieces.probe(index, 1, batch)]
            matches = sum(int(table.column("count").to_numpy().sum()) for table in tables)
            name = f"{what}, {matches / rows:.1f} matches a row, steps of {step_rows:,}"
            _report(report, name, _size(folder, tables) / rows)
            if step_rows < rows:
                merged = pieces.merge(pa.concat_tables(tables), pa.array(np.arange(queries)))
                _report(report, f"  merged, {rows:,} rows", _size(folder, [merged]) / rows)
    return report


def _report(report: Report, what: str, size: float) -> None:
    report.add(what, size, "bytes", aim=f"≤ {MAX_BYTES:g} bytes", met=size <= MAX_BYTES)


def _shapes(queries: int) -> dict[int, tuple[QueryStem, str]]:
    """Return indexes and what they hold, by the number of values of column z in the rows."""
    rng, ids = np.random.default_rng(0), np.arange(queries)
    equal = template(("z", Op.EQ), ("x", Op.GT))
    few = [rng.integers(0, queries // 100, queries), rng.integers(0, DOMAIN, queries)]
    many = [ids, np.zeros(queries, np.int64)]
    return {
        DOMAIN: (_index(texts_of(*intervals(queries))), "two intervals"),
        queries // 100: (_index(texts_of(equal, few)), "z = ? AND x > ?, 100 queries a value"),
        queries: (_index(texts_of(equal, many)), "z = ? AND x > 0, a query a value"),
    }


def _index(texts: list[str]) -> QueryStem:
    index = QueryStem()
    index.insert_texts(np.arange(len(texts)), pa.array(texts))
    return index


def _rows(first: int, count: int, symbols: int) -> pa.RecordBatch:
    rng, ids = np.random.default_rng(first), np.arange(first, first + count)
    columns: dict[str, Int64s] = {
        column.name: rng.integers(0, symbols if column.name == "z" else DOMAIN, count)
        for column in POINTS.columns
    }
    system = {"_row_id": ids, "_ts": pa.array(ids).view(INSTANT), OP: np.zeros(count, np.int8)}
    return pa.RecordBatch.from_pydict({**system, **columns})


def _size(folder: Path, tables: Iterable[pa.Table]) -> int:
    with tempfile.TemporaryDirectory(dir=folder) as root:
        job = SparkJob(root, 0, sync=False)
        written = [outcome for table in tables for outcome in write_pieces(job, 1, table)]
        return sum(file.size for file in by_table(written)["matches"])
