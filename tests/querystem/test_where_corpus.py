"""Thousands of WHERE clauses that other people wrote, with the rows they expect.

The short run takes a quarter of them, the long run all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from querystem.index import QueryStem
from querystem.kernel import evaluate, matches
from querystem.language import QueryError, bind_query
from querystem.query import Query
from tests.oracle.where_corpus import Case, Table, load
from tests.support.lengths import short_first

# The cases that are covered if one in so many is taken, and those of them that have rows: all there
# are, at the time of writing.
LEAST_COVERED = {4: 1_519, 1: 6_074}
LEAST_NON_EMPTY = {4: 589, 1: 2_397}

Bound = list[tuple[Case, Query]]


@pytest.fixture(scope="module", params=short_first([4, 1]))
def every(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def bound(shared_data: Path, every: int) -> Bound:
    """The cases our language covers; says how many, and why the others are left out."""
    covered: Bound = []
    left_out: Counter[str] = Counter()
    for case in load(shared_data / "where" / "where.jsonl.gz", every):
        try:
            query = bind_query(case.sql, {case.table.schema.name: case.table.schema}.get)
            covered.append((case, query))
        except QueryError as problem:
            left_out[f"{type(problem).__name__}: {problem.message}"] += 1
    rows = sum(bool(case.expected) for case, _ in covered)
    print(f"covered {len(covered)}, of which {rows} have rows; left out {left_out.total()}")
    for reason, count in left_out.most_common():
        print(f"  {count:5} {reason}")
    return covered


def test_most_of_the_corpus_is_covered(bound: Bound, every: int) -> None:
    assert len(bound) >= LEAST_COVERED[every]
    assert sum(bool(case.expected) for case, _ in bound) >= LEAST_NON_EMPTY[every]


def test_every_clause_finds_its_rows(bound: Bound) -> None:
    wrong = []
    for case, query in bound:
        batch = case.table.batch
        chosen = batch.filter(pa.array(matches(query.leg.where, batch)))
        columns = [evaluate(output.expression, chosen).to_pylist() for output in query.outputs]
        if case.shown(list(zip(*columns, strict=True))) != case.expected:
            wrong.append(case.sql)
    assert not wrong, wrong[:5]


def test_the_query_stem_finds_the_same_rows(bound: Bound) -> None:
    tables: dict[int, Table] = {}
    by_table: dict[int, list[Query]] = defaultdict(list)
    for case, query in bound:
        tables[id(case.table)] = case.table
        by_table[id(case.table)].append(query)
    for key, queries in by_table.items():
        stem, batch = QueryStem(), tables[key].batch
        for id_, query in enumerate(queries):
            stem.insert(id_, query.leg.where)
        matched = {id_: offsets.tolist() for id_, offsets in stem.probe(batch)}
        alone = [np.flatnonzero(matches(query.leg.where, batch)).tolist() for query in queries]
        assert matched == {id_: rows for id_, rows in enumerate(alone) if rows}
