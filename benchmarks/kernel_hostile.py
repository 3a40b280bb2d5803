"""Queries and rows that are bad for one method or another, beside every method alone.

The index picks a method by what queries and rows are like. It must not be much slower than the best
single method, nor than each query evaluated by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks.kernel_families import Thresholds
from benchmarks.kernel_shapes import ALONE_QUERIES, alone
from benchmarks.kernel_texts import CODE, NAME, PRICE, call, like_pieces, random_rows
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from datastem.types import DOUBLE, TEXT
from querystem.expressions import ColumnRef, Expression, Literal, Op, predicate_key
from querystem.index import QueryStem

BATCHES = (1, 1000, 10_000)
_MOST_RATIO = 1.3
_X, _Y = ColumnRef("x", DOUBLE), ColumnRef("y", DOUBLE)
_NEVER = 1 << 60
# What has to be otherwise so that queries are matched by bitmaps only, or never by bitmaps.
_METHODS: Mapping[str, Mapping[str, Any]] = {
    "bitmaps": {
        "family.HASHED_COMBINATIONS": _NEVER,
        "built.reading.MIN_PREDICATES": _NEVER,
        "built.boxes._MIN_BOXES": _NEVER,
    },
    "lists": {
        "family.HASHED_COMBINATIONS": 1,
        "built.reading.MIN_PREDICATES": 1,
        "built.alternatives.most_pairs": lambda *_: _NEVER,
        "built.boxes.most_pairs": lambda *_: _NEVER,
    },
}


@dataclass(frozen=True)
class HostileShape:
    queries: pa.Array
    rows: pa.RecordBatch


def _wheres(wheres: list[Expression], rows: pa.RecordBatch) -> HostileShape:
    return HostileShape(pa.array([predicate_key(where) for where in wheres]), rows)


def _number(value: float) -> Literal:
    return Literal(value, DOUBLE)


def _below(value: float) -> Expression:
    return call(Op.LT, PRICE, _number(value))


def _like(pattern: str) -> Expression:
    return call(Op.LIKE, NAME, Literal(pattern, TEXT))


def _equal_queries() -> HostileShape:
    where = call(Op.AND, call(Op.EQ, CODE, Literal("c00007", TEXT)), _below(50.0))
    return _wheres([where] * 5000, random_rows())


def _one_value() -> HostileShape:
    thresholds = Thresholds.make(20_000, 200, 97.0)
    rows = thresholds.rows()
    symbols = pa.repeat(rows["symbol"][0], rows.num_rows)
    return HostileShape(thresholds.texts(), pa.record_batch([symbols, rows["price"]], rows.schema))


def _zipf() -> HostileShape:
    thresholds = Thresholds.make(20_000, 500, 110.0, zipf=True)
    return HostileShape(thresholds.texts(), thresholds.rows())


def _wide_boxes() -> HostileShape:
    random = np.random.default_rng(1)
    low, high = random.uniform(0, 0.3, (2000, 2)), random.uniform(0.6, 1, (2000, 2))
    wheres: list[Expression] = [
        call(
            Op.AND,
            call(Op.GE, _X, _number(x0)),
            call(Op.LT, _X, _number(x1)),
            call(Op.GE, _Y, _number(y0)),
            call(Op.LT, _Y, _number(y1)),
        )
        for (x0, y0), (x1, y1) in zip(low.tolist(), high.tolist(), strict=True)
    ]
    rows = pa.record_batch({name: random.uniform(0, 1, 1 << 14) for name in ("x", "y")})
    return _wheres(wheres, rows)


def _any_text() -> HostileShape:
    wheres: list[Expression] = [
        call(Op.AND, _like("%" * (1 + n % 40)), _below(n / 20)) for n in range(2000)
    ]
    return _wheres(wheres, random_rows())


def _long_texts() -> HostileShape:
    rows = random_rows().slice(0, 200)
    texts = pa.array([name * 1000 for name in rows["name"].to_pylist()])
    return HostileShape(like_pieces(1000).texts(), pa.record_batch({"name": texts}))


def _odd_letters() -> HostileShape:
    letters = "aé\u0301\U0001f600\u200d\ufb01İ"
    random = np.random.default_rng(1)
    words = ["".join(letters[n] for n in row) for row in random.integers(0, 7, (1 << 14, 12))]
    wheres = [_like(f"%{word[:3]}_{word[5:7]}%") for word in words[:500]]
    return _wheres(list(wheres), pa.record_batch({"name": pa.array(words)}))


def _nan() -> HostileShape:
    rows = random_rows()
    prices, bound = np.full(rows.num_rows, np.nan), _number(float("nan"))
    wheres: list[Expression] = [
        call(Op.AND, call(Op.EQ, CODE, Literal(f"c{n:05}", TEXT)), call(Op.GE, PRICE, bound))
        for n in range(5000)
    ]
    return _wheres(wheres, pa.record_batch({"code": rows["code"], "price": prices}))


def _nulls() -> HostileShape:
    rows = random_rows()
    nothing = pa.nulls(rows.num_rows, pa.string())
    wheres: list[Expression] = [
        call(Op.OR, _like(f"%{n}%"), call(Op.EQ, CODE, Literal(f"{n}", TEXT))) for n in range(2000)
    ]
    return _wheres(wheres, pa.record_batch({"name": nothing, "code": nothing}))


SHAPES: Mapping[str, Callable[[], HostileShape]] = {
    "5,000 equal queries": _equal_queries,
    "20,000 thresholds, rows of one value": _one_value,
    "20,000 thresholds by Zipf": _zipf,
    "2,000 wide boxes": _wide_boxes,
    "1 query": lambda: _wheres([_below(50.0)], random_rows()),
    "13 patterns": lambda: _wheres([_like(f"%{n}a%") for n in "abcdefghijklm"], random_rows()),
    "2,000 patterns of % and a price": _any_text,
    "1,000 pieces in texts of 20 KB": _long_texts,
    "500 patterns of odd letters": _odd_letters,
    "5,000 of NaN": _nan,
    "2,000 OR, all rows NULL": _nulls,
}


def measure_hostile(report: Report, quick: bool, rounds: int) -> None:
    """Add the index beside each method alone to a report."""
    for name, make in SHAPES.items():
        shape = make()
        for size in (1, 1000) if quick else BATCHES:
            if size <= max(shape.rows.num_rows, 1000):
                _measure(report, name, shape, shape.rows.slice(0, size), rounds)


def _measure(
    report: Report, name: str, shape: HostileShape, rows: pa.RecordBatch, rounds: int
) -> None:
    repeats = 20 if rows.num_rows == 1 else 1
    calls: dict[str, Callable[[], object]] = {
        "index": partial(_probe, _stem(shape), rows, repeats),
        "each by itself": partial(alone, shape.queries, rows),
    }
    for method, constants in _METHODS.items():
        with _changed(constants):
            stem = _stem(shape)
        calls[method] = partial(_probe_by, constants, stem, rows, repeats)
    took = least_cpu(calls, rounds)
    # Of many queries only some were evaluated by themselves, and once.
    took["each by itself"] *= repeats * len(shape.queries) / min(len(shape.queries), ALONE_QUERIES)
    best = min(set(took) - {"index"}, key=took.__getitem__)
    ratio = took["index"] / took[best]
    goal = {"aim": f"≤ {_MOST_RATIO} ×", "met": ratio <= _MOST_RATIO}
    cost = took["index"] / repeats * 1e3
    what = f"{name}, {rows.num_rows:,} rows a batch"
    report.add(what, cost, "ms", ratio=ratio, beside=f"the cost of {best}", **goal)


def _stem(shape: HostileShape) -> QueryStem:
    stem = QueryStem()
    stem.insert_texts(np.arange(len(shape.queries)), shape.queries)
    return stem


def _probe(stem: QueryStem, rows: pa.RecordBatch, repeats: int) -> None:
    for _ in range(repeats):
        stem.probe(rows)


def _probe_by(
    constants: Mapping[str, Any], stem: QueryStem, rows: pa.RecordBatch, repeats: int
) -> None:
    with _changed(constants):
        _probe(stem, rows, repeats)


@contextmanager
def _changed(constants: Mapping[str, Any]) -> Iterator[None]:
    """Give constants of the index other values while this lasts."""
    with ExitStack() as stack:
        for name, value in constants.items():
            stack.enter_context(patch(f"querystem.index.{name}", value))
        yield
