"""Sleepers whose predicate fails: they hear of every row, and nobody else does."""

from __future__ import annotations

import pyarrow as pa

from datastem.types import BIGINT, BOOLEAN, TEXT
from psoup.server.watches.prober import MatchedRows, Prober
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op


def _is(name: str, value: int) -> Expression:
    return Call(Op.EQ, (ColumnRef(name, BIGINT), Literal(value, BIGINT)), BOOLEAN)


UNBUILDABLE = Call(Op.EQ, (ColumnRef("t", TEXT), Literal("\ud800", TEXT)), BOOLEAN)
UNPROBEABLE = _is("nowhere", 1)


def _rows(numbers: list[int], first: int) -> pa.RecordBatch:
    count = len(numbers)
    ids = pa.array(range(first, first + count), pa.int64())
    columns = {
        "_row_id": ids,
        "_ts": ids.cast(pa.timestamp("us", "UTC")),
        "_op": pa.array([0] * count, pa.int8()),
        "n": pa.array(numbers, pa.int64()),
        "t": pa.array(["x"] * count),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


async def test_a_predicate_that_fails_wakes_its_own_sleepers_only() -> None:
    matches: list[MatchedRows] = []
    failures: list[int] = []
    prober = Prober(matches.extend, lambda: failures.append(1))
    try:
        for id_, where in ((1, _is("n", 7)), (2, UNBUILDABLE), (3, UNPROBEABLE), (4, _is("n", 8))):
            prober.insert(5, id_, where)
        prober.probe(5, _rows([6, 7, 6], 10))
        await prober.settled()
        spans = {match.predicate_id: (match.least, match.most) for match in matches}
        assert spans == {1: (11, 11), 2: (10, 12), 3: (10, 12)}
        prober._check({5: {1, 2, 3, 4}})
        matches.clear()
        prober.remove(5, 2)
        prober.remove(5, 4)
        prober.probe(5, _rows([8], 20))
        await prober.settled()
        assert {match.predicate_id for match in matches} == {3} and not failures
        prober.remove(5, 3)
        prober.remove(5, 1)
        prober._check({})
    finally:
        prober.stop()
