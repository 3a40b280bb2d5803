"""Figures as data: what a report keeps in its JSON, drawn as PNG when it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Told apart also without colours, by their markers.
_COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#8a5a9e", "#c77d0a", "#4d4d4d")
_MARKERS = "osD^vP"
_LEAST_WIDTH = 8.0


@dataclass(frozen=True)
class Series:
    """One line. `colour` numbers those that belong together; `style` is solid, dashed or points."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int = 0
    style: str = "solid"


@dataclass(frozen=True)
class Panel:
    """`ticks` are the x that get a label, themselves or the one of `labels`; without ticks,
    all that fit."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_log: bool = False
    y_log: bool = False
    ticks: Sequence[float] = ()
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Bars:
    """A panel of bars that lie, the first on top; `notes` stand at their ends, a line at `mark`."""

    title: str
    x_label: str
    names: Sequence[str]
    values: Sequence[float]
    notes: Sequence[str]
    mark: float


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    panels: Sequence[Panel | Bars] = field(default_factory=tuple)
    columns: int = 3


def draw(figure: Figure, folder: Path) -> Path:
    """Writes `folder/name.png`."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib.figure import Figure as Canvas

    columns = min(figure.columns, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    width = max(5.2 * columns, _LEAST_WIDTH)
    canvas = Canvas(figsize=(width, 4.6 * rows), layout="constrained")
    canvas.suptitle(figure.title, fontsize=11)
    for place, panel in enumerate(figure.panels, 1):
        axes = canvas.add_subplot(rows, columns, place)
        if isinstance(panel, Bars):
            _draw_bars(axes, panel)
        else:
            _draw_panel(axes, panel)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{figure.name}.png"
    canvas.savefig(path, dpi=110)
    return path


def _draw_bars(axes: Any, panel: Bars) -> None:
    axes.axvline(panel.mark, color=_COLOURS[-1], linewidth=1, zorder=0)
    drawn = axes.barh(panel.names[::-1], panel.values[::-1], color=_COLOURS[0])
    background = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    axes.bar_label(drawn, panel.notes[::-1], padding=4, fontsize=9, bbox=background)
    axes.set_xlim(0, max(panel.values) * 1.3)
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x_label)


def _draw_panel(axes: Any, panel: Panel) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for series in panel.series:
        _draw_series(axes, series)
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.x_log:
        axes.set_xscale("log", base=2)
    if panel.y_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    if panel.ticks:
        labels = panel.labels or [f"{tick:,.0f}" for tick in panel.ticks]
        axes.set_xticks(panel.ticks, labels, fontsize=8)
    axes.grid(True, which="both", alpha=0.25)
    if len(panel.series) > 1:
        axes.legend(
            fontsize=8, ncols=2, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16)
        )


def _draw_series(axes: Any, series: Series) -> None:
    colour = _COLOURS[series.colour % len(_COLOURS)]
    marker = _MARKERS[series.colour % len(_MARKERS)]
    many = len(series.x) > 40
    look: dict[str, dict[str, Any]] = {
        "solid": {"linestyle": "-", "marker": "" if many else marker},
        "dashed": {"linestyle": "--", "marker": "", "linewidth": 1.2},
        "points": {"linestyle": "", "marker": marker, "markerfacecolor": "none", "markersize": 9},
    }
    axes.plot(
        series.x,
        series.y,
        color=colour,
        label=series.label,
        **{"markersize": 4, **look[series.style]},
    )
