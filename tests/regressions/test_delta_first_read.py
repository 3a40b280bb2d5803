"""A source that was killed within the first read of a Delta table counted its rows in another
version: the table had grown, its files were in another order, and rows came twice."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from client_sdk import Column, Stream
from psoup.source.connectors.delta import DeltaReader
from psoup.source.connectors.delta_log import DeltaLog
from psoup.source.feeding import batches
from psoup.source.feeding.batches import Assembler, own_mark
from psoup.source.readers import Options

deltalake = pytest.importorskip("deltalake")

STREAM = Stream("t", 1, (Column("k", "BIGINT"),), None, None, timedelta(0), 0, None, "", 0)


def test_the_first_read_goes_on_in_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_ROWS", 7)
    monkeypatch.setattr("psoup.source.connectors.delta.POLL_SECONDS", 0.0)
    path = str(tmp_path / "t")

    def append(first: int) -> None:
        deltalake.write_deltalake(path, pa.table({"k": range(first, first + 10)}), mode="append")

    for first in (0, 10, 20):
        append(first)
    log = DeltaLog(path)
    mark = {"table": log.table_id, "version": log.latest(), "snapshot": True}
    keys = list[int]()
    for kill in range(20):
        reader = DeltaReader(DeltaLog(path), STREAM, Options(lenient=True), False, own_mark(mark))
        batch = Assembler(reader, mark, STREAM.schema).next()
        if batch is None:
            break
        keys += batch.table.column("k").to_pylist()
        mark = dict(batch.mark)
        if kill < 3:
            append(30 + 10 * kill)
    assert sorted(keys) == list(range(60))
