"""Kernel: rows a second that the predicate index matches on one core, bitmaps included.

Everything is processor time, the least of several rounds in turns with what it is compared to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from intervaltree import IntervalTree

from benchmarks.kernel_hostile import measure_hostile
from benchmarks.kernel_queries import NAMES, ROWS, Intervals, Stations
from benchmarks.kernel_shapes import measure_shapes
from benchmarks.memory import own_bytes
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from querystem.expressions import Expression
from querystem.index import QueryStem
from querystem.kernel import matches
from results.bitmaps import encode

STATIONS = 2000
DUCKDB_ROWS = 1 << 13
TREE_ROWS = 1 << 8
MILLION = 1_000_000


def run(folder: Path, quick: bool) -> Report:
    report = Report("kernel", f"batches of {ROWS:,} rows, one core, processor time")
    rounds = 2 if quick else 9
    # First, while the process holds nothing it could use again.
    _many(report, MILLION // 10 if quick else MILLION, rounds)
    _intervals(report, quick, rounds)
    _stations(report, rounds)
    _few(report, rounds)
    _not_matching(report, rounds)
    measure_shapes(report, quick, rounds // 2)
    measure_hostile(report, quick, rounds // 2)
    return report


def _probe(stem: QueryStem, rows: pa.RecordBatch) -> Callable[[], object]:
    return lambda: stem.probe(rows).bitmaps()


# ---- intervals


def _intervals(report: Report, quick: bool, rounds: int) -> None:
    for count, aim in ((1024, 800_000), (4096, 400_000), (16_384, 100_000)):
        queries = Intervals.make(count)
        rows = queries.rows()
        calls = {"index": _probe(queries.stem(), rows)}
        if count == 4096:
            calls |= {"numpy": partial(_by_numpy, queries, rows)}
        took = least_cpu(calls, rounds)
        rate = ROWS / took["index"]
        goal = {"aim": f"≥ {aim:,} rows/s", "met": rate >= aim}
        report.add(f"two intervals, {count:,} queries", rate, "rows/s", **goal)
        if count == 4096:
            _beside(report, "numpy, query by query", rate, ROWS / took["numpy"], 4)
            join = _range_join(queries, rows.slice(0, DUCKDB_ROWS))
            trees = partial(_by_trees, queries.trees(), rows.slice(0, TREE_ROWS))
            took = least_cpu({"duckdb": join, "trees": trees}, rounds // 2)
            _beside(report, "DuckDB's range join", rate, DUCKDB_ROWS / took["duckdb"], 25)
            _beside(report, "intervaltree, row by row", rate, TREE_ROWS / took["trees"])


def _beside(
    report: Report, what: str, rate: float, compared_rate: float, least: float | None = None
) -> None:
    ratio = rate / compared_rate
    goal = {"aim": f"≥ {least} ×", "met": ratio >= least} if least else {}
    report.add(
        f"  {what}", compared_rate, "rows/s", ratio=ratio, beside="less than the index", **goal
    )


def _by_numpy(queries: Intervals, rows: pa.RecordBatch) -> None:
    columns = [rows.column(name).to_numpy() for name in NAMES]
    tables = queries.tables()
    for (x, y), table in tables.items():
        bounds = [table.column(name).to_pylist() for name in ("lo0", "hi0", "lo1", "hi1")]
        for lo0, hi0, lo1, hi1 in zip(*bounds, strict=True):
            x_values, y_values = columns[x], columns[y]
            mask = (x_values >= lo0) & (x_values <= hi0) & (y_values >= lo1) & (y_values <= hi1)
            encode(np.flatnonzero(mask).astype(np.uint16))


def _by_trees(trees: list[IntervalTree], rows: pa.RecordBatch) -> None:
    """A query of which both intervals hold a row's values matches it."""
    for row in zip(*[rows.column(name).to_pylist() for name in NAMES], strict=True):
        hits = [
            interval.data
            for tree, value in zip(trees, row, strict=True)
            for interval in tree[value]
        ]
        np.flatnonzero(np.bincount(hits) == 2)


def _range_join(queries: Intervals, rows: pa.RecordBatch) -> Callable[[], object]:
    """The pairs of a query and a row, in columns.

    One join for each pair of columns, which is kinder than one with bounds for all four.
    """
    connection = _duckdb(rows)
    joins = []
    for (x, y), table in queries.tables().items():
        x_name, y_name, name = NAMES[x], NAMES[y], f"queries{x}{y}"
        connection.register("given_queries", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given_queries")
        joins.append(
            f"SELECT id, row FROM rows JOIN {name} ON {x_name} BETWEEN lo0 AND hi0 "
            f"AND {y_name} BETWEEN lo1 AND hi1"
        )
    return lambda: [connection.sql(sql).to_arrow_table() for sql in joins]


# ---- equalities


def _stations(report: Report, rounds: int) -> None:
    for count, aim in ((131_072, 1_500_000), (16_384, None)):
        queries = Stations.make(count, STATIONS)
        rows = queries.rows()
        stem = queries.stem()
        calls: dict[str, Callable[[], object]] = {
            "index": _probe(stem, rows),
            "lists": partial(stem.probe, rows),
            "duckdb": _hash_join(queries, rows),
        }
        few = Stations.make(1024, STATIONS * 1024 // count)
        took = least_cpu(calls | {"few": _probe(few.stem(), few.rows())}, rounds)
        rate = ROWS / took["index"]
        goal = {"aim": f"≥ {aim:,} rows/s", "met": rate >= aim} if aim else {}
        what = f"lane, station and speed, {count:,} queries"
        report.add(what, rate, "rows/s", **goal)
        rate = ROWS / took["lists"]
        report.add("  the same without encoding bitmaps", rate, "rows/s")
        _beside(report, "DuckDB's hash join", rate, ROWS / took["duckdb"], 1)
        if aim:
            ratio = took["index"] / took["few"]
            goal = {"aim": "≤ 1.5 ×", "met": ratio <= 1.5}
            what = "  1,024 queries with as many matches"
            report.add(what, ROWS / took["few"], "rows/s", ratio=ratio, beside="the cost", **goal)


def _hash_join(queries: Stations, rows: pa.RecordBatch) -> Callable[[], object]:
    """The pairs of a query and a row, in columns; neither by query nor bitmaps."""
    connection = _duckdb(rows)
    connection.register("given_queries", queries.table())
    connection.execute("CREATE TABLE queries AS SELECT * FROM given_queries")
    sql = "SELECT id, row FROM rows JOIN queries USING (lane, station) WHERE speed > least"
    return lambda: connection.sql(sql).to_arrow_table()


def _duckdb(rows: pa.RecordBatch) -> duckdb.DuckDBPyConnection:
    """With the rows, numbered, in a table; one thread."""
    connection = duckdb.connect(config={"threads": 1})
    numbers = pa.array(np.arange(rows.num_rows))
    connection.register("given", pa.Table.from_batches([rows]).append_column("row", numbers))
    connection.execute("CREATE TABLE rows AS SELECT * FROM given")
    return connection


# ---- few queries, and queries that do not match


def _few(report: Report, rounds: int) -> None:
    """Beside each query evaluated by itself, its bitmap included."""
    for count in (1, 2, 5, 10, 30):
        queries = Intervals.make(count)
        rows, stem = queries.rows(), queries.stem()
        alone = partial(_alone, queries.wheres(), rows)
        took = least_cpu({"index": _probe(stem, rows), "alone": alone}, 3 * rounds)
        ratio = took["index"] / took["alone"]
        goal = {"aim": "≤ 1 ×", "met": ratio <= 1, "beside": "each by itself"}
        what = f"two intervals, {count} queries"
        report.add(what, ROWS / took["index"], "rows/s", ratio=ratio, **goal)


def _alone(wheres: list[Expression], rows: pa.RecordBatch) -> None:
    for where in wheres:
        encode(np.flatnonzero(matches(where, rows)).astype(np.uint16))


def _not_matching(report: Report, rounds: int) -> None:
    """Ten times as many again that the batch rules out."""
    intervals, far = Intervals.make(1024), Intervals.make(10_240, first=1000)
    stem = intervals.stem()
    stem.insert_texts(np.arange(1024, 1024 + 10_240), far.texts())
    _more(report, "1,024 of two intervals", intervals.stem(), stem, intervals.rows(), rounds)
    stations, far_away = Stations.make(16_384, STATIONS), Stations.make(163_840, STATIONS, STATIONS)
    more = stations.stem()
    more.insert_texts(np.arange(16_384, 16_384 + 163_840), far_away.texts())
    _more(report, "16,384 by station", stations.stem(), more, stations.rows(), rounds)


def _more(
    report: Report, what: str, less: QueryStem, more: QueryStem, rows: pa.RecordBatch, rounds: int
) -> None:
    took = least_cpu({"less": _probe(less, rows), "more": _probe(more, rows)}, rounds)
    ratio = took["more"] / took["less"]
    goal = {"aim": "≤ 1.3 ×", "met": ratio <= 1.3, "beside": "without them"}
    what = f"{what}, and 10 × more that don't match"
    report.add(what, ROWS / took["more"], "rows/s", ratio=ratio, **goal)


# ---- very many


def _many(report: Report, count: int, rounds: int) -> None:
    queries = Stations.make(count, count // 64)
    texts, ids = queries.texts(), np.arange(count)
    before, start = own_bytes(), time.process_time()
    stem = QueryStem()
    stem.insert_texts(ids, texts)
    built = time.process_time() - start
    what = f"{count:,} by station"
    report.add(f"{what}: reading their texts", built * 1e3, "ms")
    report.add(f"{what}: memory for each", (own_bytes() - before) / count, "bytes")
    rows = queries.rows()
    probe = least_cpu({"probe": _probe(stem, rows)}, rounds)["probe"]
    report.add(f"{what}: matching", ROWS / probe, "rows/s")
    few = Stations.make(1000, count // 64)
    tiny, places, few_texts = rows.slice(0, 1), iter(range(count, 2 * count, 1000)), few.texts()

    def change() -> None:
        new = np.arange(1000) + next(places)
        stem.insert_texts(new, few_texts)
        stem.probe(tiny)
        for id_ in new.tolist():
            stem.remove(id_)

    took = least_cpu({"change": change}, rounds)["change"]
    goal = {"ratio": took / built, "beside": "reading all"}
    report.add(f"{what}: 1,000 more come and go", took * 1e3, "ms", **goal)
