"""The rows of one stream of the store in memory, with their ids and ts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa

from client_sdk._wire.values import Column, schema_of
from psoup.v1 import psoup_pb2 as pb


class FakeStream:
    def __init__(self, wire: pb.Stream) -> None:
        self.wire = wire
        self.columns = tuple(Column(item.name, item.type) for item in wire.columns)
        self.schema = schema_of(self.columns)
        times = [("ts", pa.timestamp("us", tz="UTC"))] if wire.ordered_by != "ts" else []
        extra = pa.schema([("_op", pa.string()), *times, ("row_id", pa.int64())])
        self.rows = pa.Table.from_pylist([], schema=pa.schema([*self.schema, *extra]))
        self.now: datetime | None = None

    def current(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """Return the current row of a row's key, as a refusal shows it."""
        key = [(name, row[name]) for name in self.wire.key]
        rows: list[dict[str, Any]] = self.rows.to_pylist()
        of_key = [old for old in rows if all(old[name] == value for name, value in key)]
        last = max(of_key, key=lambda old: (old["ts"], old["row_id"]), default=None)
        if last is None or last.pop("_op") == "delete":
            return None
        return last

    def completed(self, table: pa.Table) -> pa.Table:
        """Return a batch with whole rows in the place of patches."""
        rows: list[dict[str, Any]] = table.to_pylist()
        if all(row.get("_op") != "patch" for row in rows):
            return table
        for row in rows:
            if row["_op"] == "patch":
                current = self.current(row) or {}
                row.update({**current, **row, "_op": "row"})
        extra = [field for field in table.schema if field.name in ("_op", "_expected")]
        return pa.Table.from_pylist(rows, pa.schema([*self.schema, *extra]))

    def append(self, table: pa.Table, stamp: datetime) -> int:
        first = int(self.rows.num_rows)
        if "_expected" in table.column_names:
            table = table.drop_columns(["_expected"])
        if "_op" not in table.column_names:
            table = table.append_column("_op", pa.array(["row"] * table.num_rows, pa.string()))
        if self.wire.ordered_by:
            times = table.column(self.wire.ordered_by)
        else:
            times = pa.array([stamp] * table.num_rows, pa.timestamp("us", tz="UTC"))
        if "ts" not in table.column_names:
            table = table.append_column("ts", times)
        ids = pa.array(range(first, first + table.num_rows), pa.int64())
        self.rows = pa.concat_tables([self.rows, table.append_column("row_id", ids)])
        reached = [value for value in times.to_pylist() if value is not None]
        self.now = max([*reached, *([self.now] if self.now else [])], default=None)
        self.wire.row_count = self.rows.num_rows
        return first
