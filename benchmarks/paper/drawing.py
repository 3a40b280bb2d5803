"""The paper's figures, from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.figures import Figure, Panel, Series
from benchmarks.paper.probing import WAYS, Probes
from benchmarks.paper.published import FIGURE_8, FIGURE_8_WINDOW, TABLE_2
from benchmarks.paper.rates import KINDS, Rates
from benchmarks.paper.response import STRATEGIES, Response
from benchmarks.paper.storage import Storage

_MS = "ms an invoke, processor time"
_RATE = "rows a second, processor time"
_OF_EACH = "window of each table, rows"


def by_window(name: str, title: str, panels: Mapping[str, Sequence[Response]]) -> Figure:
    """Figures 7 and 12."""
    return Figure(
        name, title, [_response_panel(what, responses) for what, responses in panels.items()]
    )


def _response_panel(title: str, measured: Sequence[Response]) -> Panel:
    windows = [response.window for response in measured]
    series = []
    for colour, strategy in enumerate(STRATEGIES):
        take_ms = [response.take_ms[strategy] for response in measured]
        find_ms = [response.find_ms[strategy] for response in measured]
        series.append(Series(f"{strategy}: the answer", windows, take_ms, colour))
        series.append(Series(f"{strategy}: which rows", windows, find_ms, colour, "dashed"))
    ticks = windows[::3]
    return Panel(title, "window, rows", _MS, series, x_log=True, y_log=True, ticks=ticks)


def table_2(measured: Mapping[int, Response]) -> Figure:
    counts = list(measured)
    panels = []
    for title, what in (("which rows", "find_ms"), ("the answer, rows copied out", "take_ms")):
        series = []
        for colour, strategy in enumerate(STRATEGIES):
            ours = [getattr(measured[count], what)[strategy] for count in counts]
            paper = [TABLE_2[count][strategy] for count in counts]
            series.append(Series(strategy, counts, ours, colour))
            series.append(Series(f"{strategy}, the paper's", counts, paper, colour, "points"))
        panels.append(Panel(title, "intervals in a query", _MS, series, True, True, counts))
    return Figure("paper-table-2", "Response time by predicates, window of 2^15 rows", panels)


def by_rate(
    name: str, title: str, panels: Mapping[tuple[str, str], Sequence[Rates]], columns: int = 3
) -> Figure:
    """Figures 9 and 13; `panels` by title and label of x."""
    return Figure(
        name, title, [_rate_panel(*what, rates) for what, rates in panels.items()], columns
    )


def _rate_panel(title: str, x_label: str, measured: Sequence[Rates]) -> Panel:
    x = [rate.x for rate in measured]
    series = []
    for colour, kind in enumerate(KINDS):
        shared = [rate.shared[kind] for rate in measured]
        unshared = [rate.unshared[kind] for rate in measured]
        series.append(Series(f"{kind}, shared", x, shared, colour))
        series.append(Series(f"{kind}, unshared", x, unshared, colour, "dashed"))
    return Panel(title, x_label, _RATE, series, x_log=True, y_log=True, ticks=x)


def by_storage(panels: Mapping[str, Sequence[Storage]], queries: int) -> Figure:
    return Figure(
        "paper-storage",
        f"Storage by window, {queries:,} queries",
        [_storage_panel(title, storages) for title, storages in panels.items()],
    )


def _storage_panel(title: str, measured: Sequence[Storage]) -> Panel:
    windows = [storage.window for storage in measured]
    lines = {
        "the rows": "data",
        "the queries": "queries",
        "NoMat: indexes of the rows": "nomat",
        "PSoup-P: roaring bitmaps": "partial",
        "PSoup-P: the paper's bit array": "bit_array",
        "PSoup-C: lists of row ids": "complete",
    }
    series = [
        Series(label, windows, [getattr(storage, name) / 1024 for storage in measured], colour)
        for colour, (label, name) in enumerate(lines.items())
    ]
    return Panel(title, "window, rows", "kB", series, x_log=True, y_log=True, ticks=windows[::3])


def by_join_window(measured: Sequence[Response]) -> Figure:
    """Figure 8."""
    windows = [response.window for response in measured]
    panels = []
    for title, what in (("which pairs", "find_ms"), ("the answer, rows copied out", "take_ms")):
        series = _by_strategy(measured, windows, what)
        for colour, strategy in enumerate(measured[0].find_ms):
            if strategy in FIGURE_8:
                at = [FIGURE_8_WINDOW], [FIGURE_8[strategy]]
                series.append(Series(f"{strategy}, the paper's", *at, colour, "points"))
        panels.append(Panel(title, _OF_EACH, _MS, series, y_log=True, ticks=windows))
    pairs = Series("pairs", windows, [response.rows for response in measured])
    panels.append(Panel("the size of an answer", _OF_EACH, "pairs", [pairs], ticks=windows))
    title = "Response time of inequality joins by window (figure 8)"
    return Figure("paper-figure-8", title, panels)


def by_join_factors(measured: Mapping[int, Response]) -> Figure:
    """The range of factors in table 1, for joins."""
    counts = list(measured)
    panels = [
        Panel(
            title,
            "factors in a query, one of which joins",
            _MS,
            _by_strategy(list(measured.values()), counts, what),
            y_log=True,
            ticks=counts,
        )
        for title, what in (("which pairs", "find_ms"), ("the answer, rows copied out", "take_ms"))
    ]
    window = next(iter(measured.values())).window
    title = f"Response time of inequality joins by factors, windows of {window} rows (table 1)"
    return Figure("paper-table-1-joins", title, panels)


def _by_strategy(measured: Sequence[Response], x: Sequence[int], what: str) -> list[Series]:
    return [
        Series(strategy, x, [getattr(response, what)[strategy] for response in measured], colour)
        for colour, strategy in enumerate(measured[0].find_ms)
    ]


def by_probes(panels: Mapping[str, Sequence[Probes]]) -> Figure:
    """Figure 11."""
    title = "A new join probes the second table, composite and separate (figure 11)"
    return Figure("paper-figure-11", title, [_probes_panel(*probes) for probes in panels.items()])


def _probes_panel(title: str, measured: Sequence[Probes]) -> Panel:
    sizes = [probe.size for probe in measured]
    series = [
        Series(way, sizes, [probe.take_ms[way] for probe in measured], colour)
        for colour, way in enumerate(WAYS)
    ]
    label = "hybrid structs, and rows"
    return Panel(title, label, "ms, processor time", series, True, True, sizes)
