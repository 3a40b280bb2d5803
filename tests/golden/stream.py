"""The papers' rows as a stream: one time unit is a second, rows come at whole seconds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from querystem.expressions import Scalar
from querystem.language import CreateStream, bind_query, parse_statement
from tests.evaluation import evaluate_parts
from tests.oracle import naive_answer
from tests.oracle.keyed import Keyed
from tests.oracle.strategies import to_batch

SECOND = 1_000_000


class Stream:
    """Rows are given with `at` in seconds, and `_op` where the stream is keyed. Arrival order is
    the order given."""

    def __init__(self, sql: str, rows: Iterable[dict[str, Any]]) -> None:
        statement = parse_statement(sql)
        assert isinstance(statement, CreateStream)
        self.schema = statement.schema
        self.rows = [
            {**row, "at": datetime.fromtimestamp(row["at"], UTC), "row_id": place}
            | {"ts": row["at"] * SECOND}
            for place, row in enumerate(rows)
        ]

    def ask(self, sql: str, at: int) -> list[tuple[Scalar, ...]]:
        """The answer at a second: the kernel's over two parts, which must be the oracle's."""
        query = bind_query(sql, {self.schema.name: self.schema}.get)
        batch = to_batch(self.schema, self.rows)
        half = batch.num_rows // 2
        keyed = Keyed(self.schema.key) if self.schema.key else None
        if keyed is not None:
            ops = pa.array([row["_op"] for row in self.rows], pa.string())
            batch = batch.append_column("_op", ops)
        parts = [batch.slice(0, half), batch.slice(half)]
        found = evaluate_parts(query, parts, at * SECOND, keyed=keyed)
        answer = [tuple(row.values()) for row in found.to_pylist()]
        assert answer == naive_answer(query, self.rows, at * SECOND, keyed=keyed)
        return answer
