"""Pictures of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_COLOURS = ("#1f6fb2", "#c8553d", "#3a8f5c", "#8a6bbe", "#8c8c8c")


def by_length(path: Path, powers: Sequence[int], lines: Mapping[str, Sequence[float]]) -> None:
    """Seconds by the length of a window, 2^power rows. First calls are dashed."""
    figure, axes = _axes("Aggregates by the length of their window", (8, 4.8))
    names = list(dict.fromkeys(name.split(", first")[0].split(", warm")[0] for name in lines))
    for name, seconds in lines.items():
        colour = _COLOURS[names.index(name.split(", first")[0].split(", warm")[0])]
        style = "--" if "first" in name else "-"
        values = [one * 1e3 for one in seconds]
        axes.plot(powers, values, style, color=colour, marker="o", markersize=4, label=name)
    axes.set_yscale("log")
    axes.set_xticks(powers, [f"$2^{{{power}}}$" for power in powers])
    axes.set_xlabel("rows in the window")
    axes.set_ylabel("ms, as the client sees it")
    axes.grid(axis="y", which="both", alpha=0.25)
    axes.legend(frameon=False, fontsize=9)
    _write(figure, path)


def by_kind(path: Path, seconds: Mapping[str, float], plain: str) -> None:
    """Each kind of invoke as a multiple of one of them."""
    figure, axes = _axes(f"Kinds of invoke, as multiples of a plain {plain}", (8, 4.8))
    names = list(seconds)[::-1]
    ratios = [seconds[name] / seconds[plain] for name in names]
    labels = [
        f"{ratio:.1f} ×  ({seconds[name] * 1e3:.2f} ms)"
        for name, ratio in zip(names, ratios, strict=True)
    ]
    axes.axvline(1, color=_COLOURS[-1], linewidth=1, zorder=0)
    bars = axes.barh(names, ratios, color=_COLOURS[0])
    background = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    axes.bar_label(bars, labels, padding=4, fontsize=9, bbox=background)
    axes.set_xlim(0, max(ratios) * 1.3)
    axes.set_xlabel(f"times the {plain}, p50")
    _write(figure, path)


def _axes(title: str, size: tuple[float, float]) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _write(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
