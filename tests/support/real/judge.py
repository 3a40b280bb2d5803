"""DuckDB as judge over several streams: a table for each, the rows its stream shows at NOW."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa

from datastem.schema import OP
from tests.oracle.comparing import Values
from tests.support.real.streams import RealStream


class StreamsJudge:
    """The rows of streams, numbered in their order. A text names a stream by its name, and NOW as
    {now}."""

    def __init__(self, streams: Sequence[RealStream]) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._streams = streams
        for stream in streams:
            self._connection.register("given", _plain(stream.rows))
            self._connection.execute(
                f"CREATE TABLE {stream.name}_rows AS "
                "SELECT *, row_number() OVER () - 1 AS row_id FROM given"
            )
            self._connection.unregister("given")

    def answer(self, sql: str, now: datetime) -> list[Values]:
        """Return the rows of a text; it sees of each stream what its window can hold at NOW."""
        moment = f"TIMESTAMP '{now.replace(tzinfo=None)}'"
        for stream in self._streams:
            view = (
                f"CREATE OR REPLACE TEMP VIEW {stream.name} AS {_visible_rows_sql(stream, moment)}"
            )
            self._connection.execute(view)
        rows = self._connection.execute(sql.replace("{now}", moment)).fetchall()
        return [tuple(map(_aware, row)) for row in rows]


def _visible_rows_sql(stream: RealStream, now: str) -> str:
    """Return the rows dated up to NOW; of a key the last of them, unless it is a delete."""
    dated = f"SELECT * FROM {stream.name}_rows"
    if stream.ts is not None:
        dated += f" WHERE {stream.ts} <= {now}"
    if stream.key is None:
        return dated
    order = "row_id DESC" if stream.ts is None else f"{stream.ts} DESC, row_id DESC"
    newest = f"{dated} QUALIFY row_number() OVER (PARTITION BY {stream.key} ORDER BY {order}) = 1"
    if OP not in stream.rows.column_names:
        return newest
    return f"SELECT * FROM ({newest}) WHERE {OP} <> 'delete'"


def _plain(rows: pa.Table) -> pa.Table:
    """Return the rows with instants that have no zone: DuckDB would show others in that of the
    machine."""
    fields = [
        field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
