"""The cost of a log for each client while nobody asks: bytes written and kept, by clients.

Client c follows one of 82 stations, with a predicate that no other has, so that our bitmaps share
nothing either. Matching is left out on both sides; writing is what is compared.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import workload
from benchmarks.figures import Figure, Panel, Series
from benchmarks.report import Report
from benchmarks.sync.changes import SLIDING
from benchmarks.sync.clientlog import ClientLogs, encoded
from results.bitmaps import encode

BATCH = 1_000


@dataclass(frozen=True)
class Written:
    """For so many clients and each row published: bytes, files touched, processor time."""

    clients: int
    log_bytes: float
    log_files: float
    log_seconds: float
    bitmap_bytes: float
    row_bytes: float


def measure(report: Report, folder: Path, quick: bool) -> None:
    counts = [1, 10, 100] if quick else [1, 10, 100, 1_000]
    found = [_written(folder / f"of-{count}", count, 20) for count in counts]
    for one in found:
        name = f"{one.clients:,} clients, for each row published"
        report.add(f"{name}: bytes written to logs", one.log_bytes, "bytes", **_beside(one))
        report.add(f"{name}: logs appended to", one.log_files, "")
        report.add(f"{name}: processor time of appending", one.log_seconds * 1e3, "ms")
        ratio = {"ratio": one.bitmap_bytes / one.log_bytes, "beside": "logs"}
        report.add(f"{name}: bytes of bitmaps", one.bitmap_bytes, "bytes", **ratio)
    report.figures.append(_figure(found))


def _beside(one: Written) -> dict[str, object]:
    return {"ratio": one.log_bytes / one.row_bytes, "beside": "the row"}


def _written(folder: Path, clients: int, batches: int) -> Written:
    """One block's worth of rows or less, in batches."""
    rows = workload.rows(batches * BATCH)
    entries = encoded(rows, SLIDING.columns)
    station = rows["station"].to_numpy()
    speed = rows["speed"].to_numpy()
    logs, written, touched, took = ClientLogs(folder), 0, 0, 0.0
    kept = 0
    for client in range(clients):
        matching = np.flatnonzero(
            (station == client % workload.STATIONS + 1) & (speed > client / 1e4)
        )
        kept += len(encode(matching.astype(np.uint16)))
        for start in range(0, len(rows), BATCH):
            low, high = np.searchsorted(matching, [start, start + BATCH])
            mine = [entries[place] for place in matching[low:high]]
            began = time.process_time()
            written += logs.append(str(client), mine) if mine else 0
            took += time.process_time() - began
            touched += bool(mine)
    count = len(rows)
    own = sum(map(len, entries)) / count
    return Written(clients, written / count, touched / count, took / count, kept / count, own)


def _figure(found: list[Written]) -> Figure:
    clients = [one.clients for one in found]
    per_row = [
        Series("a log per client", clients, [one.log_bytes for one in found], 3),
        Series("our bitmaps", clients, [one.bitmap_bytes for one in found], 0),
        Series("the row itself", clients, [one.row_bytes for one in found], 5, "dashed"),
    ]
    writes = [Series("a log per client", clients, [one.log_files for one in found], 3)]
    panels = [
        Panel("bytes", "clients", "bytes for each row published", per_row, True, True, clients),
        Panel("appends", "clients", "for each row published", writes, True, True, clients),
    ]
    return Figure("sync-logs", "What is written for clients that are away", panels, 2)
