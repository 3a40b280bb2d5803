"""What a benchmark prints, and the JSON it leaves in benchmarks/results/."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Line:
    """One measured thing. `ratio` is to what `beside` names, measured in the same run."""

    what: str
    value: float
    unit: str
    ratio: float | None = None
    beside: str = ""
    aim: str = ""
    met: bool | None = None


@dataclass
class Report:
    name: str
    setting: str
    lines: list[Line] = field(default_factory=list)

    def add(self, what: str, value: float, unit: str, **rest: Any) -> None:
        self.lines.append(Line(what, value, unit, **rest))

    def show(self) -> None:
        table = Table(title=f"{self.name}: {self.setting}", title_justify="left")
        for title in ("what", "measured", "ratio", "aim"):
            table.add_column(title, justify="left" if title in ("what", "aim") else "right")
        for line in self.lines:
            table.add_row(line.what, _shown(line.value, line.unit), _ratio(line), _aim(line))
        console = Console(width=None if os.isatty(1) else 140)
        console.print(table)
        if (load := os.getloadavg()[0]) > (cores := os.cpu_count() or 1):
            console.print(f"The machine was busy, with a load of {load:.1f} on {cores} cores.")

    def write(self) -> Path:
        FOLDER.mkdir(exist_ok=True)
        now = datetime.now(UTC)
        path = FOLDER / f"{self.name}-{now:%Y%m%dT%H%M%S}.json"
        record = {"at": now.isoformat(timespec="seconds"), "machine": machine(), "commit": commit()}
        path.write_text(json.dumps(record | asdict(self), indent=2) + "\n")
        return path


def machine() -> dict[str, Any]:
    """What matters for the numbers; nothing that names the machine."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "load": os.getloadavg(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def commit() -> str:
    """The commit measured, with + where files differ from it; empty outside git."""
    try:
        here = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=FOLDER.parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return here.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "")


def _shown(value: float, unit: str) -> str:
    if unit == "ms":
        return f"{value:,.2f} ms"
    return f"{value:,.0f} {unit}"


def _ratio(line: Line) -> str:
    if line.ratio is None:
        return ""
    return f"{line.ratio:,.2f} × {line.beside}"


def _aim(line: Line) -> str:
    if line.met is None:
        return line.aim
    return f"{line.aim}: {'met' if line.met else 'missed'}"
