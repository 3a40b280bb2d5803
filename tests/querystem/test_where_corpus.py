"""Thousands of WHERE clauses that other people wrote, with the rows they expect."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa

from querystem.kernel import evaluate, matches
from querystem.language import QueryError, bind_query
from tests.oracle.strategies import to_batch
from tests.oracle.where_corpus import Case, Table, load

LEAST_COVERED = 6_074
LEAST_NON_EMPTY = 2_410


def batch_of(table: Table) -> pa.RecordBatch:
    numbered = [{**row, "ts": place, "row_id": place} for place, row in enumerate(table.rows)]
    return to_batch(table.schema, numbered)


def bound(case: Case, batch: pa.RecordBatch) -> list[tuple[object, ...]]:
    query = bind_query(case.sql, {case.table.schema.name: case.table.schema}.get)
    chosen = batch.filter(pa.array(matches(query.where, batch)))
    columns = [evaluate(output.expression, chosen).to_pylist() for output in query.outputs]
    return list(zip(*columns, strict=True))


def test_every_clause_our_language_covers(shared_data: Path) -> None:
    covered = non_empty = 0
    left_out: Counter[str] = Counter()
    wrong: list[str] = []
    batches: dict[int, tuple[Table, pa.RecordBatch]] = {}
    for case in load(shared_data / "where" / "where.jsonl.gz"):
        _, batch = batches.setdefault(id(case.table), (case.table, batch_of(case.table)))
        try:
            answer = bound(case, batch)
        except QueryError as problem:
            left_out[f"{type(problem).__name__}: {problem.message}"] += 1
            continue
        covered += 1
        non_empty += bool(case.expected)
        if case.shown(answer) != case.expected:
            wrong.append(case.sql)
    print(f"covered {covered}, of which {non_empty} have rows; left out {left_out.total()}")
    for reason, count in left_out.most_common():
        print(f"  {count:5} {reason}")
    assert not wrong, wrong[:5]
    assert covered >= LEAST_COVERED and non_empty >= LEAST_NON_EMPTY
