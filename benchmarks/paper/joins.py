"""The paper's experiments on joins, and what is reported of them: figures 8 and 11, table 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paper import drawing
from benchmarks.paper.join_response import (
    STRATEGIES,
    STREAM_ROWS,
    join_responses,
    selective_responses,
)
from benchmarks.paper.join_workload import joins, selective
from benchmarks.paper.probing import WORKLOADS, probes
from benchmarks.paper.published import FIGURE_8, FIGURE_8_WINDOW, FIGURE_11
from benchmarks.paper.response import Response
from benchmarks.report import Report

_KINDS_OF_TIME = {"find_ms": "which pairs", "take_ms": "the answer"}
# Of the size of an answer, to the window squared: at most so far from it.
_SQUARE = 0.2


@dataclass(frozen=True)
class Scale:
    """How much of it: queries invoked, rounds of them, and the points."""

    invoked: int
    rounds: int
    windows: Sequence[int]
    factors: Sequence[int]
    sizes: Sequence[int]
    long_windows: Sequence[int]


WHOLE = Scale(
    invoked=128,
    rounds=3,
    windows=range(64, FIGURE_8_WINDOW + 1, 64),
    factors=range(1, 9),
    sizes=[1 << bits for bits in range(6, 13)],
    long_windows=[1 << bits for bits in range(10, 17, 2)],
)
QUICK = Scale(
    invoked=16,
    rounds=2,
    windows=[64, FIGURE_8_WINDOW],
    factors=[1, 8],
    sizes=[256, 1_024],
    long_windows=[1 << 10, 1 << 14],
)
# Queries with selective local predicates, and the width of their band.
_SELECTIVE_QUERIES = 8
_BANDS = {"inequality": None, "band": 2}


def run(_folder: Path, quick: bool) -> Report:
    scale = QUICK if quick else WHOLE
    setting = f"{scale.invoked} queries invoked {scale.rounds} times, processor time"
    report = Report("paper.joins", setting)
    _figure_8(scale, report)
    _long_windows(scale, report)
    _table_1(scale, report)
    _figure_11(scale, report)
    return report


def _figure_8(scale: Scale, report: Report) -> None:
    measured = join_responses(joins(STREAM_ROWS, scale.invoked), scale.windows, scale.rounds)
    report.figures.append(drawing.by_join_window(measured))
    _add_response(report, "8", measured[-1], FIGURE_8)
    _add_ahead(report, "8", measured, "PSoup-C", "PSoup-P")
    _add_ahead(report, "8", measured, "PSoup-P", "NoMat")
    first, last = measured[0], measured[-1]
    growth = last.rows / first.rows / (last.window / first.window) ** 2
    report.add(
        f"8: pairs of an answer, windows of {last.window} rows",
        last.rows,
        "pairs",
        ratio=growth,
        beside=f"those of {first.window} rows, times the square of the windows",
        aim=f"1 ± {_SQUARE:g} ×",
        met=abs(growth - 1) <= _SQUARE,
    )


def _long_windows(scale: Scale, report: Report) -> None:
    """Figure 8 at long windows, with local predicates that a hundredth of the rows pass."""
    for name, band in _BANDS.items():
        figure, last = f"8, selective, {name}", scale.long_windows[-1]
        workload = selective(last + last // 8, _SELECTIVE_QUERIES, band)
        measured, pairs = selective_responses(workload, scale.long_windows, scale.rounds)
        _add_response(report, figure, measured[-1])
        for strategy in ("NoMat", "joined at invoke"):
            _add_ahead(report, figure, measured, "PSoup-P", strategy)
        report.add(
            f"{figure}: pairs of an answer, windows of {last} rows", measured[-1].rows, "pairs"
        )
        report.add(f"{figure}: pairs stored for {_SELECTIVE_QUERIES} queries", pairs, "pairs")


def _add_response(
    report: Report, figure: str, response: Response, paper: Mapping[str, float] | None = None
) -> None:
    """Two lines a strategy: which pairs, and the answer."""
    for what, kind in _KINDS_OF_TIME.items():
        times = getattr(response, what)
        for strategy in STRATEGIES:
            name = f"{figure}, windows of {response.window} rows: {strategy}, {kind}"
            beside = {"ratio": times[strategy] / times["NoMat"], "beside": "NoMat"}
            published = paper.get(strategy) if paper else None
            aim = f"the paper's: {published:.2f} ms" if published else ""
            comparison = beside if strategy != "NoMat" else {}
            report.add(name, times[strategy], "ms", **comparison, aim=aim)


def _add_ahead(
    report: Report, figure: str, measured: Sequence[Response], strategy: str, baseline: str
) -> None:
    """How many times longer the other takes to know which pairs, window by window."""
    ahead = [response.find_ms[baseline] / response.find_ms[strategy] for response in measured]
    ratios = " → ".join(f"{response:.1f}" for response in ahead)
    what = f"{figure}: {strategy} ahead of {baseline}, which pairs, by window ({ratios})"
    report.add(what, ahead[-1], "×", aim="> 1 ×, as in the paper", met=ahead[-1] > 1)


def _table_1(scale: Scale, report: Report) -> None:
    measured = {
        count: join_responses(
            joins(STREAM_ROWS, scale.invoked, count), [FIGURE_8_WINDOW], scale.rounds
        )[0]
        for count in scale.factors
    }
    report.figures.append(drawing.by_join_factors(measured))
    few, many = min(measured), max(measured)
    for strategy in STRATEGIES:
        fewer_ms, more_ms = (measured[count].take_ms[strategy] for count in (few, many))
        report.add(
            f"Table 1, joins of {many} factors: {strategy}, the answer",
            more_ms,
            "ms",
            ratio=more_ms / fewer_ms,
            beside=f"{few} factor",
            aim="faster with factors",
            met=more_ms < fewer_ms,
        )


def _figure_11(scale: Scale, report: Report) -> None:
    panels = {name: probes(name, scale.sizes, scale.rounds) for name in WORKLOADS}
    report.figures.append(drawing.by_probes(panels))
    for name, measured in panels.items():
        gains = " → ".join(f"{entry.gain:.1f}" for entry in measured)
        report.add(
            f"11, {name}, {measured[-1].size:,} structs: composite (ahead by {gains} ×)",
            measured[-1].take_ms["composite"],
            "ms",
            ratio=1 / measured[-1].gain,
            beside="separate",
            aim=f"the paper's: {FIGURE_11[name]}",
        )
