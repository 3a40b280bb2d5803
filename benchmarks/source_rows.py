"""The rows that the benchmarks of sources read, and the processor time of other processes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

STREAM = "CREATE STREAM s (symbol TEXT, price DOUBLE, size BIGINT, at TIMESTAMP) ORDERED BY at"


def json_row(number: int) -> str:
    return json.dumps(
        {
            "symbol": f"S{number % 500}",
            "price": number % 997 / 4,
            "size": number,
            "at": f"2023-11-14T22:13:20.{number:06}Z",
        }
    )


def processor_seconds(pids: Sequence[int]) -> float:
    """Return what processes have used so far, together."""
    return sum(map(_seconds, pids))


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
