"""A benchmark prints a report, and leaves it as JSON in benchmarks/results/."""

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

from benchmarks.figures import Figure, draw

FOLDER = Path(__file__).parent / "results"
COLUMNS = ("what", "measured", "ratio", "aim")


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

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The texts that go under COLUMNS."""
        return self.what, _format_value(self.value, self.unit), _ratio(self), _aim(self)


@dataclass
class Report:
    name: str
    setting: str
    lines: list[Line] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)

    def add(self, what: str, value: float, unit: str, **details: Any) -> None:
        self.lines.append(Line(what, value, unit, **details))

    def show(self) -> None:
        table = Table(title=f"{self.name}: {self.setting}", title_justify="left")
        for title in COLUMNS:
            table.add_column(title, justify="left" if title in ("what", "aim") else "right")
        for line in self.lines:
            table.add_row(*line.cells)
        console = Console(width=None if os.isatty(1) else 140)
        console.print(table)
        if (load := os.getloadavg()[0]) > (cores := os.cpu_count() or 1):
            console.print(f"The machine was busy, with a load of {load:.1f} on {cores} cores.")

    def write(self, path: Path | None = None) -> Path:
        """JSON, and each figure as PNG beside it."""
        now = datetime.now(UTC)
        path = path or FOLDER / f"{self.name}-{now:%Y%m%dT%H%M%S}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(circumstances() | asdict(self), indent=2) + "\n")
        self.draw(path.parent)
        return path

    def draw(self, folder: Path) -> None:
        for figure in self.figures:
            draw(figure, folder)


def circumstances() -> dict[str, Any]:
    """When, on what and of what something was measured."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"at": now, "machine": machine(), "commit": commit()}


def markdown(report: dict[str, Any]) -> str:
    """A report's JSON as a table, under a line that says how it came about."""
    on = report["machine"]
    where = f"{on['cores']} cores ({on['processor']}), {on['memory_gib']} GiB"
    load = f"load {on['load'][0]:.1f}"
    lines = [
        f"*{report['setting']}. {report['at'][:10]}, {where}, {load}, commit {report['commit']}.*",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---|---|---|---|",
        *[f"| {' | '.join(Line(**line).cells)} |" for line in report["lines"]],
    ]
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """The facts that matter for the numbers; nothing that names the machine."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "load": os.getloadavg(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def commit() -> str:
    """Return the measured commit, with + if files differ from it; empty outside git."""
    try:
        root = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=FOLDER.parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return root.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "")


def _format_value(value: float, unit: str) -> str:
    if unit == "ms":
        return f"{value:,.4f} ms" if value < 1 else f"{value:,.2f} ms"
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:,.3g} {unit}"


def _ratio(line: Line) -> str:
    if line.ratio is None:
        return ""
    return f"{line.ratio:,.2f} × {line.beside}"


def _aim(line: Line) -> str:
    if line.met is None:
        return line.aim
    return f"{line.aim}: {'met' if line.met else 'missed'}"
