"""Response time of an invoke, by window and by predicates: figures 7 and 12, Table 2.

An answer is found (which rows) and then taken (their values, copied out). Taking is the same code
for all three strategies, so both are shown: how they differ, and what a client would wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.paper.base import INSERT_ROWS, Base, batches
from benchmarks.paper.complete import Complete
from benchmarks.paper.nomat import NoMat
from benchmarks.paper.partial import Partial, query_stem
from benchmarks.paper.workload import Workload
from datastem.arrays import Int64s
from datastem.codec import query_view
from querystem.index import QueryStem

STRATEGIES = ("NoMat", "PSoup-P", "PSoup-C")
# More than two blocks, and its end in the middle of one: windows lie across blocks as they come.
STREAM_ROWS = (1 << 17) + (1 << 15)

Find = Callable[[int], Int64s]


@dataclass(frozen=True)
class Response:
    """Milliseconds an invoke, averaged over all queries: `found` the rows, `taken` them as well."""

    window: int
    rows: float
    find_ms: dict[str, float]
    take_ms: dict[str, float]


def responses(workload: Workload, windows: Sequence[int], rounds: int) -> list[Response]:
    """Return the times for each window; raise AssertionError if the strategies' answers differ."""
    base = Base(workload)
    partial = Partial(base, workload.queries)
    stem = query_stem(workload.queries)
    return [_response(workload, base, partial, stem, window, rounds) for window in windows]


def _response(
    workload: Workload, base: Base, partial: Partial, stem: QueryStem, window: int, rounds: int
) -> Response:
    queries = workload.queries
    bound = base.window(window)
    nomat, complete = NoMat(base, bound), complete_over(base, stem, len(queries), window)
    finds: dict[str, Find] = {
        "NoMat": lambda number: nomat.find(queries[number]),
        "PSoup-P": lambda number: partial.find(number, bound),
        "PSoup-C": complete.find,
    }
    rows = _check(finds, base, len(queries))
    find_ms = {name: float("inf") for name in finds}
    take_ms = dict(find_ms)
    for _ in range(rounds):
        for name, find in finds.items():
            find_ms[name] = min(find_ms[name], milliseconds_each(find, len(queries)))
            take_ms[name] = min(take_ms[name], milliseconds_each(_taking(find, base), len(queries)))
    return Response(window, rows, find_ms, take_ms)


def complete_over(base: Base, stem: QueryStem, queries: int, window: int) -> Complete:
    """As if it had been there from the start; what came before the window is gone anyway."""
    complete = Complete(queries, window)
    lo, hi = base.bounds(base.window(window))
    first = lo
    for batch in batches(base.rows.slice(lo, hi - lo), INSERT_ROWS):
        stop = first + batch.num_rows
        complete.insert(stem.probe(query_view(batch)), first, stop)
        first = stop
    return complete


def _taking(find: Find, base: Base) -> Callable[[int], object]:
    return lambda number: base.take(find(number))


def _check(finds: dict[str, Find], base: Base, queries: int) -> float:
    """Asserts that all find the same rows for every query; gives their number on average."""
    total = 0
    for number in range(queries):
        first, *answers = (find(number) for find in finds.values())
        assert all(np.array_equal(first, answer) for answer in answers), f"query {number}"
        assert base.take(first).num_rows == len(first)
        total += len(first)
    return total / queries


def milliseconds_each(call: Callable[[int], object], count: int) -> float:
    """Milliseconds of processor time a call."""
    start = time.process_time()
    for number in range(count):
        call(number)
    return (time.process_time() - start) * 1e3 / count
