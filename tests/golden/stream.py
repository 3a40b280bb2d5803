"""The papers' rows as a stream: one time unit is a second, rows come at whole seconds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from datastem.instants import SECOND, from_micros, to_micros
from querystem.language import CreateStream, parse_statement

Moment = int | datetime


class Stream:
    """Rows are given with `at`, in seconds or as an instant, and `_op` where the stream is keyed.
    Arrival order is the order given."""

    def __init__(self, sql: str, rows: Iterable[dict[str, Any]]) -> None:
        statement = parse_statement(sql)
        assert isinstance(statement, CreateStream)
        self.sql = sql
        self.schema = statement.schema
        self.rows = [
            {**row, "at": from_micros(micros(row["at"])), "row_id": place, "ts": micros(row["at"])}
            for place, row in enumerate(rows)
        ]


def micros(moment: Moment) -> int:
    return moment * SECOND if isinstance(moment, int) else to_micros(moment)
