"""The result of `benchmarks/run store`: times and their percentiles, the tables, the JSON."""

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

from psoup.cli.output import counted, echo, grid

if TYPE_CHECKING:
    from benchmarks.store.measure import Measurement

T = TypeVar("T")


@dataclass(slots=True)
class Times:
    """The seconds that each repetition took."""

    seconds: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def take(self, call: Callable[[], T]) -> T:
        """Measure a call and return its result."""
        began = time.perf_counter()
        result = call()
        self.add(time.perf_counter() - began)
        return result

    def percentile(self, share: int) -> float:
        """Return the percentile `share` in milliseconds."""
        if len(self.seconds) == 1:
            return self.seconds[0] * 1e3
        return statistics.quantiles(self.seconds, n=100, method="inclusive")[share - 1] * 1e3


@dataclass(frozen=True, slots=True)
class Result:
    """A measurement with its setting.

    `memory` is bytes by process; empty if the store runs on another machine.
    """

    measured: Measurement
    queries: int
    stream: str
    memory: dict[str, int]

    @property
    def rates(self) -> dict[str, float]:
        """The rows per second, by what happened to them."""
        rates = {"published, acknowledged": self.measured.acknowledged}
        if self.measured.consumed is not None:
            rates["published, matched by the engine"] = self.measured.consumed
        return rates

    @property
    def times(self) -> dict[str, Times]:
        times = {
            "the smallest call (Status)": self.measured.call,
            "invoke": self.measured.invoke,
            "invoke, in the server": self.measured.in_server,
            "publish → acknowledged": self.measured.to_acknowledged,
            "publish → answer": self.measured.to_answer,
        }
        if self.measured.to_epoch is not None:
            times["publish → epoch"] = self.measured.to_epoch
        return times

    def show(self) -> None:
        measured = self.measured
        lines = [[f"rows {name}", f"{rate:,.0f} rows/s"] for name, rate in self.rates.items()]
        lines.append(["queries registered", f"{measured.registered:,.0f} queries/s"])
        lines += [[f"memory: {name}", f"{size >> 20:,} MiB"] for name, size in self.memory.items()]
        grid(["what", "measured"], lines)
        echo()
        grid(
            ["time", "p50", "p99", "times"],
            [
                [name, *[f"{times.percentile(p):,.2f} ms" for p in (50, 99)], len(times.seconds)]
                for name, times in self.times.items()
            ],
        )

    def setting(self) -> str:
        measured = self.measured
        queries = counted(self.queries, "query", "queries")
        return (
            f"{counted(measured.rows, 'row')}, {queries}, answers of "
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
                name: {
                    "p50": times.percentile(50),
                    "p99": times.percentile(99),
                    "all": [round(seconds * 1e3, 4) for seconds in times.seconds],
                }
                for name, times in self.times.items()
            },
        }


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": os.getloadavg(),
    }
