"""The result of `psoup bench`: times and their percentiles, the tables, the JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from psoup.cli.output import echo, grid

if TYPE_CHECKING:
    from psoup.cli.bench.measure import Measurement

T = TypeVar("T")


@dataclass(slots=True)
class Times:
    """Seconds, one for each time."""

    seconds: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def take(self, call: Callable[[], T]) -> T:
        """Measures a call."""
        began = time.perf_counter()
        result = call()
        self.add(time.perf_counter() - began)
        return result

    def percentile(self, share: int) -> float:
        """In milliseconds."""
        if len(self.seconds) == 1:
            return self.seconds[0] * 1e3
        return statistics.quantiles(self.seconds, n=100, method="inclusive")[share - 1] * 1e3


@dataclass(frozen=True, slots=True)
class Result:
    """`memory` is bytes by process; empty where the store runs elsewhere."""

    measured: Measurement
    queries: int
    stream: str
    memory: dict[str, int]

    @property
    def rates(self) -> dict[str, float]:
        """Rows a second."""
        found = {"published, acknowledged": self.measured.acknowledged}
        if self.measured.consumed is not None:
            found["published, matched by the engine"] = self.measured.consumed
        return found

    @property
    def times(self) -> dict[str, Times]:
        found = {
            "the smallest call (Status)": self.measured.call,
            "invoke": self.measured.invoke,
            "invoke, in the server": self.measured.in_server,
            "publish → acknowledged": self.measured.to_acknowledged,
            "publish → answer": self.measured.to_answer,
        }
        if self.measured.to_epoch is not None:
            found["publish → epoch"] = self.measured.to_epoch
        return found

    def show(self) -> None:
        measured = self.measured
        lines = [[f"rows {what}", f"{rate:,.0f} rows/s"] for what, rate in self.rates.items()]
        lines.append(["queries registered", f"{measured.registered:,.0f} queries/s"])
        lines += [[f"memory: {name}", f"{size >> 20:,} MiB"] for name, size in self.memory.items()]
        grid(["what", "measured"], lines)
        echo()
        grid(
            ["time", "p50", "p99", "times"],
            [
                [what, *[f"{each.percentile(p):,.2f} ms" for p in (50, 99)], len(each.seconds)]
                for what, each in self.times.items()
            ],
        )

    def setting(self) -> str:
        measured = self.measured
        return (
            f"{measured.rows:,} rows, {self.queries:,} queries, answers of "
            f"{measured.answer_rows:,.0f} rows ({measured.computed_rows:,.0f} computed on the spot)"
        )

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_dict(), indent=2) + "\n", encoding="utf-8")

    def as_dict(self) -> dict[str, Any]:
        measured = self.measured
        return {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "stream": self.stream,
            "rows": measured.rows,
            "queries": self.queries,
            "answer_rows": measured.answer_rows,
            "computed_rows": measured.computed_rows,
            "rows_per_second": self.rates,
            "registrations_per_second": measured.registered,
            "memory_bytes": self.memory,
            "milliseconds": {
                what: {
                    "p50": each.percentile(50),
                    "p99": each.percentile(99),
                    "all": [round(seconds * 1e3, 4) for seconds in each.seconds],
                }
                for what, each in self.times.items()
            },
        }


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": os.getloadavg(),
    }
