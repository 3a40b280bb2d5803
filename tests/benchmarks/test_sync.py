"""The parts of the benchmark of Sync, on little data: the stand-in for a log per client first."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.sync import away, storage, work
from benchmarks.sync.calls import Received
from benchmarks.sync.changes import SLIDING
from benchmarks.sync.clientlog import ClientLogs, encoded, log_server, packed
from datastem.schema import Column
from psoup.v1 import psoup_pb2 as pb


def test_entries_are_rows_of_the_wire() -> None:
    rows = SLIDING.rows(0, 50)
    entries = encoded(rows, SLIDING.columns)
    back = pb.Rows.FromString(b"".join(entries))
    assert [row.values[0].bigint for row in back.rows] == rows["lane"].to_pylist()
    assert len(packed(b"".join(entries))) < sum(map(len, entries))


@pytest.mark.long
@pytest.mark.process
def test_a_log_is_read_on_from_an_offset(tmp_path: Path) -> None:
    logs = ClientLogs(tmp_path)
    logs.append("one", [b"abc"])
    offset = logs.size("one")
    logs.append("one", [b"de", b"f"])
    with log_server(tmp_path) as reader:
        (message,) = reader.read("one", offset).messages
        assert message == (6).to_bytes(8, "big") + b"def"
        assert reader.read("one", 6).nbytes == 8 + 5


def test_a_log_grows_with_clients_and_bitmaps_less(tmp_path: Path) -> None:
    few, many = (storage._written(tmp_path / str(count), count, 2) for count in (2, 40))
    assert few.row_bytes == many.row_bytes
    assert many.log_bytes > 10 * few.log_bytes
    assert many.bitmap_bytes < many.log_bytes / 5


def test_a_compacted_log_leaves_out_what_was_replaced_or_has_left() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    hours = [start + timedelta(hours=hour) for hour in range(72)]
    table = pa.table(
        {
            "ts": pa.array(hours, pa.timestamp("us", tz="UTC")),
            "place_id": [f"place {hour % 3}" for hour in range(72)],
            "free_places": pa.array(range(72)),
        }
    )
    by_key = next(case for case in away.CASES if case.key)
    window = next(case for case in away.CASES if case.stream == "changes" and case.window)
    window = replace(window, where=("free_places", "<", 1000))
    unread = Received([], 0, 0.0)
    for case, rows in ((by_key, 3), (window, 24)):
        full, compacted = away._log(case, table, hours[-1], unread)
        assert compacted < full
        columns = [Column(name, away.TYPES[name]) for name in table.column_names]
        assert compacted == away._size(encoded(table.slice(72 - rows), columns))


@pytest.mark.parametrize("kind", work.KINDS, ids=lambda kind: kind.title)
def test_the_server_s_work_is_measured(kind: work.Kind, tmp_path: Path) -> None:
    measured = asyncio.run(work._measured(kind, tmp_path / "store", 500, 2))
    assert set(measured) == set(work.CHANGED)
    assert all(seconds > 0 for seconds in measured.values())
