"""A registered query and its naive answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from client_sdk import Answer
from datastem.instants import to_micros
from datastem.schema import StreamSchema
from querystem.language import bind_query
from querystem.query import Query
from results.window import Window
from tests.oracle import naive_answer
from tests.oracle.comparing import Values
from tests.oracle.keyed import Keyed
from tests.oracle.strategies import Row


@dataclass(frozen=True)
class Question:
    """A text over a stream, and what it means."""

    sql: str
    query: Query
    schema: StreamSchema

    @classmethod
    def of(cls, sql: str, schema: StreamSchema) -> Question:
        return cls(sql, bind_query(sql, {schema.name: schema}.get), schema)

    def naive(
        self,
        rows: Sequence[Row],
        now: datetime | None,
        window: Window | None = None,
        current: datetime | None = None,
        every: Sequence[Row] = (),
    ) -> list[Values]:
        """Return the answer over rows whose `ts` is in microseconds.

        Without a NOW there are no rows in any window. `current` is the stream's own NOW where `now`
        is set back: what has left the retention then stays gone. In a keyed stream, retention
        depends on `every` row.
        """
        query = self.query if window is None else self.query.with_window(window)
        if now is None:
            return naive_answer(query, [], 0)
        retain = self.schema.retain
        if self.schema.key:
            reached = None if current is None else to_micros(current)
            keyed = Keyed(self.schema.key, len(rows), reached)
            return naive_answer(query, every, to_micros(now), retain, keyed)
        if retain is not None and current is not None:
            retain -= max(0, to_micros(current) - to_micros(now))
        return naive_answer(query, rows, to_micros(now), retain)


def values_of(answer: Answer) -> list[Values]:
    return [tuple(row.values()) for row in answer.rows]
