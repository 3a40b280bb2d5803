"""The cost of a log for each client while no client calls: bytes written and kept, by clients.

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
    """For `clients` clients and each row published: bytes, files touched, processor time."""

    clients: int
    log_bytes: float
    log_files: float
    log_seconds: float
    bitmap_bytes: float
    row_bytes: float


def measure(report: Report, folder: Path, quick: bool) -> None:
    counts = [1, 10, 100] if quick else [1, 10, 100, 1_000]
    writings = [_written(folder / f"of-{count}", count, 20) for count in counts]
    for written in writings:
        name = f"{written.clients:,} clients, for each row published"
        report.add(f"{name}: bytes written to logs", written.log_bytes, "bytes", **_beside(written))
        report.add(f"{name}: logs appended to", written.log_files, "")
        report.add(f"{name}: processor time of appending", written.log_seconds * 1e3, "ms")
        ratio = {"ratio": written.bitmap_bytes / written.log_bytes, "beside": "logs"}
        report.add(f"{name}: bytes of bitmaps", written.bitmap_bytes, "bytes", **ratio)
    report.figures.append(_figure(writings))


def _beside(written: Written) -> dict[str, object]:
    return {"ratio": written.log_bytes / written.row_bytes, "beside": "the row"}


def _written(folder: Path, clients: int, batches: int) -> Written:
    """One block's worth of rows or less, in batches."""
    rows = workload.rows(batches * BATCH)
    entries = encoded(rows, SLIDING.columns)
    station = rows["station"].to_numpy()
    speed = rows["speed"].to_numpy()
    logs, written, touched, took = ClientLogs(folder), 0, 0, 0.0
    bitmap_bytes = 0
    for client in range(clients):
        matching = np.flatnonzero(
            (station == client % workload.STATIONS + 1) & (speed > client / 1e4)
        )
        bitmap_bytes += len(encode(matching.astype(np.uint16)))
        for start in range(0, len(rows), BATCH):
            low, high = np.searchsorted(matching, [start, start + BATCH])
            client_rows = [entries[place] for place in matching[low:high]]
            began = time.process_time()
            written += logs.append(str(client), client_rows) if client_rows else 0
            took += time.process_time() - began
            touched += bool(client_rows)
    count = len(rows)
    row_bytes = sum(map(len, entries)) / count
    return Written(
        clients, written / count, touched / count, took / count, bitmap_bytes / count, row_bytes
    )


def _figure(writings: list[Written]) -> Figure:
    clients = [written.clients for written in writings]
    per_row = [
        Series("a log per client", clients, [written.log_bytes for written in writings], 3),
        Series("our bitmaps", clients, [written.bitmap_bytes for written in writings], 0),
        Series("the row itself", clients, [written.row_bytes for written in writings], 5, "dashed"),
    ]
    writes = [Series("a log per client", clients, [written.log_files for written in writings], 3)]
    panels = [
        Panel("bytes", "clients", "bytes for each row published", per_row, True, True, clients),
        Panel("appends", "clients", "for each row published", writes, True, True, clients),
    ]
    return Figure("sync-logs", "What is written for clients that are away", panels, 2)
