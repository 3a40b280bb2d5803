"""All of the paper's experiments on single streams, and what is reported of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paper import drawing, workload
from benchmarks.paper.published import SHARED_GAIN, TABLE_2
from benchmarks.paper.rates import KINDS, Rates, rates
from benchmarks.paper.response import STRATEGIES, STREAM_ROWS, Response, responses
from benchmarks.paper.storage import Storage, storage
from benchmarks.report import Report

RATE_ROWS = 1 << 16
WINDOW = 1_000
LONG_WINDOW = 10_000
BATCH = 1_024
QUERIES = 1_024
TABLE_2_WINDOW = 1 << 15
# Of the index over each query by itself, with the most queries: an order of magnitude, or nearly.
MOST_QUERIES, MATCHING_GAIN = 1 << 12, 8.0
KINDS_OF_TIME = {"find_ms": "which rows", "take_ms": "the answer"}


@dataclass(frozen=True)
class Scale:
    """How much of it: queries invoked, rounds of them, seconds for a rate, and the points."""

    invoked: int
    rounds: int
    seconds: float
    windows: Sequence[int]
    queries: Sequence[int]
    factors: Sequence[int]
    batches: Sequence[int]


WHOLE = Scale(
    invoked=1_024,
    rounds=3,
    seconds=0.3,
    windows=[1 << bits for bits in range(7, 17)],
    queries=[1 << bits for bits in range(7, 13)],
    factors=list(range(1, 9)),
    batches=[1 << bits for bits in range(6, 15, 2)],
)
QUICK = Scale(
    invoked=32,
    rounds=2,
    seconds=0.02,
    windows=[1 << bits for bits in (7, 15, 16)],
    queries=[128, 1_024],
    factors=[8],
    batches=[16_384],
)


def run(_folder: Path, quick: bool) -> Report:
    scale = QUICK if quick else WHOLE
    setting = f"{scale.invoked:,} queries invoked {scale.rounds} times, windows 2^7 to 2^16"
    report = Report("paper", f"{setting}; rates in batches of {BATCH:,} rows")
    _figure_7(scale, report)
    _table_2(scale, report)
    _figure_9(scale, report)
    _figure_12(scale, report)
    _figure_13(scale, report)
    _storage(scale, report)
    return report


def _figure_7(scale: Scale, report: Report) -> None:
    panels = {
        f"{letter}: {name} predicates": _responses(make(STREAM_ROWS, scale.invoked), scale)
        for letter, name, make in (
            ("a", "equality", workload.equality),
            ("b", "interval", workload.intervals),
        )
    }
    title = "Response time by window, one to four predicates (figure 7)"
    report.figures.append(drawing.by_window("paper-figure-7", title, panels))
    for name, measured in panels.items():
        _add_response(report, f"7{name[0]}", measured[-1])
        _add_ahead(report, f"7{name[0]}", measured)


def _table_2(scale: Scale, report: Report) -> None:
    measured = {
        count: responses(
            workload.intervals(STREAM_ROWS, scale.invoked, count), [TABLE_2_WINDOW], scale.rounds
        )[0]
        for count in TABLE_2
    }
    report.figures.append(drawing.table_2(measured))
    for count, response in measured.items():
        _add_response(report, f"Table 2, {count} intervals", response, TABLE_2[count])
    _add_shape(report, measured, "NoMat", "find_ms", rises=True)
    _add_shape(report, measured, "PSoup-P", "take_ms", rises=False)
    _add_shape(report, measured, "PSoup-C", "take_ms", rises=False)


def _add_shape(
    report: Report, measured: Mapping[int, Response], strategy: str, what: str, rises: bool
) -> None:
    """Whether more predicates make it slower, or faster, as in the paper."""
    single, four = (getattr(measured[count], what)[strategy] for count in (1, 4))
    report.add(
        f"Table 2: {strategy}, {KINDS_OF_TIME[what]}, 4 intervals",
        four,
        "ms",
        ratio=four / single,
        beside="1 interval",
        aim="slower with predicates" if rises else "faster with predicates",
        met=(four > single) is rises,
    )


def _figure_9(scale: Scale, report: Report) -> None:
    def measure(
        x: int, queries: int = QUERIES, count: int | None = None, batch: int = BATCH
    ) -> Rates:
        queries_and_rows = workload.inequalities(RATE_ROWS, queries, count)
        return rates(queries_and_rows, x, batch, WINDOW, scale.seconds)

    by_queries = [measure(n, queries=n) for n in scale.queries]
    panels = {
        ("1 to 8 comparisons a query", "queries"): by_queries,
        (f"{QUERIES:,} queries", "comparisons in a query"): [
            measure(n, count=n) for n in scale.factors
        ],
        (f"{QUERIES:,} queries, by batch", "rows in a batch"): [
            measure(n, batch=n) for n in scale.batches
        ],
    }
    title = f"Rows that can come in, window of {WINDOW:,} rows (figure 9)"
    report.figures.append(drawing.by_rate("paper-figure-9", title, panels))
    _add_rates(report, "9", by_queries)


def _figure_12(scale: Scale, report: Report) -> None:
    measured = _responses(workload.traffic(STREAM_ROWS, scale.invoked), scale)
    title = "Traffic: lane = ? AND station = ? AND speed > ? (figure 12)"
    panels = {"response time by window": measured}
    report.figures.append(drawing.by_window("paper-figure-12", title, panels))
    _add_response(report, "12", measured[-1])
    _add_ahead(report, "12", measured)


def _figure_13(scale: Scale, report: Report) -> None:
    panels = {}
    for window in (WINDOW, LONG_WINDOW):
        measured = [
            rates(workload.traffic(RATE_ROWS, n), n, BATCH, window, scale.seconds)
            for n in scale.queries
        ]
        panels[f"window of {window:,} rows", "queries"] = measured
        _add_rates(report, f"13, window {window:,}", measured)
    title = "Traffic: rows that can come in (figure 13)"
    report.figures.append(drawing.by_rate("paper-figure-13", title, panels, columns=2))


def _storage(scale: Scale, report: Report) -> None:
    panels = {
        "equality predicates": storage(
            workload.equality(STREAM_ROWS, scale.invoked), scale.windows
        ),
        "interval predicates": storage(
            workload.intervals(STREAM_ROWS, scale.invoked), scale.windows
        ),
    }
    report.figures.append(drawing.by_storage(panels, scale.invoked))
    for name, measured in panels.items():
        _add_storage(report, name, next(s for s in measured if s.window == TABLE_2_WINDOW))


def _responses(load: workload.Workload, scale: Scale) -> list[Response]:
    return responses(load, scale.windows, scale.rounds)


def _add_response(
    report: Report, figure: str, response: Response, paper: Mapping[str, float] | None = None
) -> None:
    """Two lines a strategy: which rows, and the answer."""
    for what, kind in KINDS_OF_TIME.items():
        times = getattr(response, what)
        for strategy in STRATEGIES:
            name = f"{figure}, window {response.window:,}: {strategy}, {kind}"
            ratio = {"ratio": times[strategy] / times["NoMat"], "beside": "NoMat"}
            beside = ratio if strategy != "NoMat" else {}
            aim = f"the paper's: {paper[strategy]:.4f} ms" if paper else ""
            report.add(name, times[strategy], "ms", **beside, aim=aim)


def _add_ahead(report: Report, figure: str, measured: Sequence[Response]) -> None:
    """How many times longer NoMat takes to know which rows, window by window."""
    for strategy in STRATEGIES[1:]:
        ahead = [response.find_ms["NoMat"] / response.find_ms[strategy] for response in measured]
        ratios = " → ".join(f"{response:.1f}" for response in ahead)
        report.add(
            f"{figure}: {strategy} ahead of NoMat, which rows, by window ({ratios})",
            ahead[-1],
            "×",
            aim="ahead, and more so with the window",
            met=ahead[-1] > max(1.0, ahead[0]),
        )


def _add_rates(report: Report, figure: str, measured: Sequence[Rates]) -> None:
    last = measured[-1]
    for kind in KINDS:
        what = f"{figure}, {last.x:,} queries: {kind}, shared"
        ratio = {"ratio": last.gain(kind), "beside": "unshared"}
        aim = f"the paper's P: about {SHARED_GAIN:.0f} ×" if kind == "PSoup-P" else ""
        report.add(what, last.shared[kind], "rows/s", **ratio, aim=aim)
    gains = " → ".join(f"{rate.gain('matching alone'):.1f}" for rate in measured)
    what = f"{figure}: matching alone, shared against unshared, by queries ({gains})"
    gain, fewest = last.gain("matching alone"), measured[0].gain("matching alone")
    least = MATCHING_GAIN if last.x == MOST_QUERIES else 1.0
    aim = f"≥ {least:g} ×, and grows with queries"
    report.add(what, gain, "×", aim=aim, met=gain >= max(least, fewest))


def _add_storage(report: Report, workload_name: str, storage: Storage) -> None:
    for what, count in (
        ("the rows", storage.data),
        ("the queries", storage.queries),
        ("NoMat adds", storage.nomat),
        ("PSoup-P adds", storage.partial),
        ("PSoup-P as the paper's bit array", storage.bit_array),
        ("PSoup-C adds", storage.complete),
    ):
        name = f"storage, {workload_name}, window {storage.window:,}: {what}"
        report.add(name, count / 1024, "kB", ratio=count / storage.data, beside="the rows")
