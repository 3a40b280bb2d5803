"""What a client computes from the base rows of its copy, and what it should."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from client_sdk.copies._computing import ROW_ID, Computation, NotComputable, prepare
from datastem.instants import from_micros
from datastem.schema import StreamSchema
from querystem.identity import slides
from querystem.language import bind_window
from querystem.query import Query
from tests.client_sdk.copies.support import wire
from tests.oracle.answers import naive_answer
from tests.oracle.copy import Copy
from tests.oracle.keyed import Keyed
from tests.oracle.refresh import History


@dataclass(frozen=True)
class Computed:
    computation: Computation
    query: Query
    schema: StreamSchema

    @property
    def sync_window(self) -> str:
        return self.computation.sync_window

    def got(self, copy: Copy, now: int | None) -> list[tuple[Any, ...]]:
        names = [column.name for column in copy.columns]
        rows = [row for row in copy.rows.values() if row.visible(-1 if now is None else now)]
        columns = {ROW_ID: pa.array([row.row_id for row in rows], pa.int64())}
        for place, (name, kind) in enumerate(zip(names, copy.types, strict=True)):
            columns[name] = pa.array([row.values[place] for row in rows], kind.arrow)
        answer = self.computation.answer(
            pa.table(columns), None if now is None else from_micros(now)
        )
        return [tuple(row.values()) for row in answer.to_pylist()]

    def expected(self, history: History, rows: list[Any], now: int | None) -> list[Any]:
        if self.query.refresh is not None:
            return history.ask(self.query).answer
        keyed = Keyed(self.schema.key) if self.schema.key else None
        at = 0 if now is None else now
        return naive_answer(self.query, rows, at, self.schema.retain, keyed)


def computed(text: str, query: Query, schema: StreamSchema, window: str) -> Computed | None:
    """None where base rows don't tell the answer, or there is nothing to compute."""
    if slides(query) and query.refresh is None:
        return None
    try:
        computation = prepare(text, None, wire(schema), window)
    except NotComputable:
        assert query.refresh is not None
        return None
    if window:
        query = replace(query, window=bind_window(window, schema, query.period))
    return Computed(computation, query, schema)
