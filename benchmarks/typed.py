"""Typed values: rows of an answer encoded in columns, beside a message for each value and Arrow;
and the rows of the SDK as dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import client_sdk
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from client_sdk._wire.answers import python_rows
from datastem.schema import Column
from datastem.types import BIGINT, DOUBLE, TEXT, TIMESTAMP, decimal_type
from psoup.server.wire.arrow import pieces
from psoup.server.wire.typed import row_fields
from psoup.server.wire.values import to_rows
from psoup.v1 import psoup_pb2 as pb

ROWS = (10, 40, 100, 1_000, 10_000)
# Rows that each measured call encodes in all, so that small answers are measured as exactly.
WORK_ROWS = 10_000
PIECE_BYTES = 1 << 20
COLUMNS = [
    Column("id", BIGINT),
    Column("price", DOUBLE),
    Column("name", TEXT),
    Column("at", TIMESTAMP),
    Column("amount", decimal_type(18, 4)),
]


def run(folder: Path, quick: bool) -> Report:
    rounds = 3 if quick else 15
    report = Report("typed", f"{len(COLUMNS)} columns, {rounds} rounds, processor time")
    for count in ROWS:
        batch = sample_rows(count)
        calls: dict[str, Callable[[], Any]] = {
            "a message for each value": partial(_messages, batch),
            "in columns": partial(row_fields, batch, COLUMNS),
            "as answers are": partial(_pieces, batch, pb.ENCODING_UNSPECIFIED),
            "Arrow": partial(_pieces, batch, pb.ENCODING_ARROW),
        }
        _report(report, f"encode {count:,} rows", calls, WORK_ROWS // count, rounds)
    columns = tuple(client_sdk.Column(column.name, str(column.type)) for column in COLUMNS)
    table = pa.Table.from_batches([sample_rows(WORK_ROWS)])
    calls = {
        "by to_pylist": partial(_by_pylist, table),
        "ours": partial(python_rows, table, columns),
    }
    _report(report, f"{WORK_ROWS:,} rows as dicts, SDK,", calls, 1, rounds)
    return report


def _report(
    report: Report, what: str, calls: dict[str, Callable[[], Any]], repeats: int, rounds: int
) -> None:
    """Add a line for each call, beside the first of them."""
    least = least_cpu(
        {name: partial(_repeat, call, repeats) for name, call in calls.items()}, rounds
    )
    base = next(iter(least))
    for name, seconds in least.items():
        ratio = {} if name == base else {"ratio": seconds / least[base], "beside": base}
        report.add(f"{what} {name}", seconds / repeats * 1e3, "ms", **ratio)


def _repeat(call: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        call()


def _messages(batch: pa.RecordBatch) -> list[bytes]:
    return [rows.SerializeToString() for rows in to_rows([batch], COLUMNS, PIECE_BYTES)]


def _pieces(batch: pa.RecordBatch, encoding: int) -> list[Any]:
    return list(pieces([batch], COLUMNS, encoding, PIECE_BYTES))


def _by_pylist(table: pa.Table) -> Sequence[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        row["at"] = row["at"].replace(tzinfo=UTC)
    return rows


def sample_rows(count: int) -> pa.RecordBatch:
    random = np.random.default_rng(0)
    start = int(datetime(2026, 11, 16, tzinfo=UTC).timestamp() * 1e6)
    amounts = [Decimal(int(cents)).scaleb(-4) for cents in random.integers(0, 10**9, count)]
    arrays = [
        pa.array(random.integers(0, 10**9, count)),
        pa.array(random.uniform(0, 1000, count)),
        pa.array([f"name {number}" for number in random.integers(0, 10**6, count)]),
        pa.array(start + random.integers(0, 10**12, count)).view(TIMESTAMP.arrow),
        pa.array(amounts, pa.decimal128(18, 4)),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in COLUMNS])
