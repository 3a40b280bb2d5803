"""DuckDB as judge over real rows: it reads the file that was published, and never our code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from tests.oracle.comparing import Values, same


class Judge:
    """The file's rows in its order, which is the order they were published in."""

    def __init__(self, path: Path, columns: Mapping[str, str]) -> None:
        """`columns` are the file's, with their types in DuckDB; one of them is `ts`."""
        self._connection = duckdb.connect()
        types = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
        self._connection.execute(
            "CREATE TABLE file AS SELECT *, row_number() OVER () - 1 AS row_id FROM "
            f"read_csv('{path}', header = true, columns = {{{types}}}, parallel = false)"
        )
        ((self.now,),) = self._connection.execute("SELECT max(ts) FROM file").fetchall()

    def answer(self, sql: str, now: datetime | None = None) -> list[Values]:
        """`sql` is over `known`, the rows with ts up to NOW, which it may name as {now}."""
        moment = f"TIMESTAMP '{(now or self.now).replace(tzinfo=None)}'"
        known_rows = f"WITH known AS (SELECT * FROM file WHERE ts <= {moment}) "
        rows = self._connection.execute(known_rows + sql.replace("{now}", moment)).fetchall()
        return [tuple(map(_aware, row)) for row in rows]


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def close(ours: Sequence[Values], expected: Sequence[Values]) -> bool:
    """Return the same rows in the same order; DuckDB's sums of DOUBLE are not exact."""
    return len(ours) == len(expected) and all(
        same(value, expected_value)
        or (
            isinstance(value, float)
            and math.isclose(value, expected_value, rel_tol=1e-9, abs_tol=1e-9)
        )
        for row, expected_row in zip(ours, expected, strict=True)
        for value, expected_value in zip(row, expected_row, strict=True)
    )
