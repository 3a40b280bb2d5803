"""The result as a picture. It needs matplotlib, which is optional."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from benchmarks.store.result import Result
from psoup.cli.problems import fail

_COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#8a5a9e", "#c77d0a", "#4d4d4d")


def require_matplotlib() -> None:
    """Raise a Problem if matplotlib is missing; call it before measuring, not after."""
    if importlib.util.find_spec("matplotlib") is None:
        fail(
            "--plot needs matplotlib, which the base install leaves out:\n  pip install matplotlib"
        )


def plot(result: Result, path: Path) -> None:
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(11, 7.5), layout="constrained")
    canvas.suptitle(result.setting(), fontsize=10)
    times = result.times
    calls = [name for name in times if not name.startswith("publish")]
    publishes = [name for name in times if name.startswith("publish")]
    _shares(canvas.add_subplot(2, 2, 1), "a call takes", {name: times[name] for name in calls})
    _shares(canvas.add_subplot(2, 2, 2), "freshness", {name: times[name] for name in publishes})
    rates = {name.replace(", ", ",\n"): rate for name, rate in result.rates.items()}
    _bars(canvas.add_subplot(2, 2, 3), "rows a second", rates)
    memory = {name: size / 2**20 for name, size in result.memory.items()}
    if memory:
        _bars(canvas.add_subplot(2, 2, 4), "resident memory, MiB", memory)
    canvas.savefig(path, dpi=110)


def _shares(axes: Any, title: str, times: dict[str, Any]) -> None:
    """Draw the share of calls that took at most x milliseconds."""
    for colour, (name, measured) in zip(_COLOURS, times.items(), strict=False):
        ordered = sorted(seconds * 1e3 for seconds in measured.seconds)
        shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
        axes.step(ordered, shares, where="post", color=colour, label=name)
    axes.set(title=title, xlabel="ms", ylabel="share of calls", xscale="log", ylim=(0, 1.02))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(True, which="both", alpha=0.25)
    axes.legend(fontsize=8, frameon=False)


def _bars(axes: Any, title: str, values: dict[str, float]) -> None:
    bars = axes.bar(list(values), list(values.values()), color=_COLOURS[0], width=0.5)
    axes.bar_label(bars, [f"{value:,.0f}" for value in values.values()])
    axes.set_title(title)
    axes.margins(y=0.15)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(True, axis="y", alpha=0.25)
