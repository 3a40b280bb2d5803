"""Cold invokes: a server that has opened its tables and holds no row and no match."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import grpc
import pyarrow as pa

from benchmarks import workload
from benchmarks.report import Report
from benchmarks.stub import Stub
from benchmarks.timing import Times, timed
from tests.support.system.processes import RunningStore

AIM = 0.050
SEGMENT_ROWS = 1 << 20
INVOKED = 20


@dataclass(frozen=True)
class Filled:
    """A store with these rows, all matched, that nothing runs on any more."""

    folder: Path
    rows: pa.Table
    handles: list[bytes]


def fill(folder: Path, count: int, queries: int) -> Filled:
    rows = workload.rows(count)
    folder.mkdir()
    with RunningStore(folder) as store:
        store.start_server()
        engine = store.start_engine(ready=False)
        with store.client() as client:
            handles = workload.fill(store, client, rows, queries, INVOKED)
        store.servers[0].stop()
        engine.stop()
    return Filled(folder, rows, handles)


def cold(report: Report, filled: Filled, starts: int) -> None:
    count = filled.rows.num_rows
    middles = range(SEGMENT_ROWS // 2, max(count, SEGMENT_ROWS), SEGMENT_ROWS)
    ends = [filled.rows["at"][min(place, count - 1)].as_py() for place in middles]
    seconds, firsts = [], []
    for start in range(starts):
        with RunningStore(filled.folder) as store:
            target = store.start_server()
            with grpc.insecure_channel(target) as channel:
                stub = Stub(channel)
                stub.connect()
                invoke_seconds = [
                    _invoke(stub, filled.handles[(start + number) % INVOKED], end)
                    for number, end in enumerate(ends)
                ]
        firsts.append(invoke_seconds[0])
        seconds += invoke_seconds[1:] or invoke_seconds
    value = Times(seconds).p50
    setting = f"{count:,} rows stored"
    report.add(f"the very first invoke of a server, {setting} p50", Times(firsts).p50 * 1e3, "ms")
    report.add(
        f"cold invoke, {setting} p50",
        value * 1e3,
        "ms",
        aim=f"≤ {AIM * 1e3:.0f} ms",
        met=value <= AIM,
    )


def _invoke(stub: Stub, handle: bytes, end: datetime) -> float:
    """Over a window in a segment that nothing has been read of yet."""
    begin = end - (workload.WINDOW_ROWS - 1) * workload.EVERY
    window = f"BEGIN '{begin:%Y-%m-%d %H:%M:%S.%f}' END '{end:%Y-%m-%d %H:%M:%S.%f}'"
    seconds, header = timed(lambda: stub.invoke(handle, window=window))
    assert header.computed_rows == 0, "the engine had not caught up"
    return seconds
