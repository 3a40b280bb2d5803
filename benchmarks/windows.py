"""Windows: how long an answer takes by the length of its window, and by what is asked.

Aggregates over 2^12 to 2^22 rows, beside DuckDB over the same rows; ROWS n PARTITION BY over few
and many keys; and every kind of invoke as a multiple of the plain selection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks import partitions, workload
from benchmarks.figures import Bars, Figure, Panel, Series
from benchmarks.partitions import Partitioned
from benchmarks.report import Report
from benchmarks.rerun import Rerun
from benchmarks.stub import Stub
from benchmarks.timing import Times, interleaved, repeated, timed
from client_sdk import Client
from psoup.v1 import psoup_pb2 as pb
from tests.support.system.processes import RunningStore

AGGREGATES = {
    "count and avg": "SELECT count(*) AS n, avg(speed) AS mean FROM traffic WHERE {}",
    "avg by lane": "SELECT lane, avg(speed) AS mean FROM traffic WHERE {} GROUP BY lane",
}


@dataclass(frozen=True)
class Sizes:
    """Windows of 2^least to 2^greatest rows. The last row is dated `ahead` seconds after the start,
    when all of them have been published."""

    least: int
    greatest: int
    rounds: int
    ahead: int

    @property
    def powers(self) -> range:
        return range(self.least, self.greatest + 1)

    @property
    def rows(self) -> int:
        """Some more than the longest window, so that it can be set back."""
        return (1 << self.greatest) + (1 << 17)


def run(folder: Path, quick: bool) -> Report:
    sizes = Sizes(12, 16, 20, 5) if quick else Sizes(12, 22, 100, 60)
    report = Report("windows", f"{sizes.rows:,} rows, {sizes.rounds} rounds")
    with RunningStore(folder) as store:
        target = store.start_server("--memory", "1GB")
        engine = store.start_engine(ready=False)
        rows = workload.rows(sizes.rows, datetime.now(UTC) + timedelta(seconds=sizes.ahead))
        with store.client() as client, grpc.insecure_channel(target) as channel:
            client.define(workload.STREAM)
            handles = _register(client, sizes)
            kinds = _register_kinds(client)
            client.publisher("benchmark").publish_many("traffic", workload.batches(rows, 20_000))
            count = min(sizes.rows, 1_000_000)
            keyed = [Partitioned.publish(client, keys, count) for keys in partitions.KEYS]
            store.wait_until_matched(client, 1200)
            engine.stop()
            stub, now = Stub(channel), rows["at"][-1].as_py()
            _pass(client, now)
            lengths = Lengths(stub, handles, now, sizes)
            duckdb = lengths.beside(Rerun(rows))
            _report_lengths(report, lengths, duckdb)
            _report_kinds(report, _kinds(stub, kinds, now), sizes)
            partitions.measure(report, client, stub, keyed, sizes.rounds)
    return report


# ---- by length


class Lengths:
    """Seconds by aggregate and window: the first call, and later ones at other instants."""

    def __init__(
        self, stub: Stub, handles: dict[tuple[str, int], bytes], now: datetime, sizes: Sizes
    ) -> None:
        self.sizes = sizes
        self._now = now
        self.first = {
            key: timed(partial(stub.invoke, registered))[0] for key, registered in handles.items()
        }
        instants = _instants(now, sizes.rounds + 5)

        def shifted(handle: bytes, number: int) -> None:
            stub.invoke(handle, as_of=instants[number], knowledge=pb.KNOWLEDGE_TODAY)

        calls = {key: partial(shifted, registered) for key, registered in handles.items()}
        interleaved(calls, 5)
        self.warm = interleaved(calls, sizes.rounds)

    def beside(self, duckdb: Rerun) -> dict[int, Times]:
        """The first aggregate over the same windows."""
        calls = {power: repeated(self._rerun, duckdb, power) for power in self.sizes.powers}
        interleaved(calls, 2)
        return interleaved(calls, max(5, self.sizes.rounds // 10))

    def _rerun(self, duckdb: Rerun, power: int) -> None:
        since = self._now - (1 << power) * workload.EVERY
        duckdb.select("count(*), avg(speed)", "speed > ?", since, (50.0,))


def _register(client: Client, sizes: Sizes) -> dict[tuple[str, int], bytes]:
    """Each with a predicate of its own, so that no window finds what another has computed."""
    handles = {}
    for number, (name, text) in enumerate(AGGREGATES.items()):
        for power in sizes.powers:
            where = f"speed > {50 + (100 * number + power) / 1e6}"
            sql = f"{text.format(where)} RANGE {1 << power} MILLISECONDS"
            handles[name, power] = client.register(sql).handle
    return handles


def _instants(now: datetime, count: int) -> list[Any]:
    """Some way back each, so that the window's edges are new every time."""
    back = np.random.default_rng(0).integers(0, 1 << 16, count).tolist()
    return [now - timedelta(milliseconds=milliseconds) for milliseconds in back]


def _report_lengths(report: Report, lengths: Lengths, duckdb: dict[int, Times]) -> None:
    powers = list(lengths.sizes.powers)
    for name in AGGREGATES:
        least = lengths.warm[name, powers[0]].p50
        for power in powers:
            first, warm = lengths.first[name, power], lengths.warm[name, power]
            report.add(f"{name}, 2^{power} rows, first call", first * 1e3, "ms")
            ratio = {"ratio": warm.p50 / least, "beside": f"2^{powers[0]}"}
            report.add(f"{name}, 2^{power} rows, warm p50", warm.p50 * 1e3, "ms", **ratio)
    for power in powers:
        report.add(f"DuckDB, count and avg, 2^{power} rows p50", duckdb[power].p50 * 1e3, "ms")
    report.figures.append(_by_length(lengths, duckdb))


def _by_length(lengths: Lengths, duckdb: dict[int, Times]) -> Figure:
    powers = list(lengths.sizes.powers)
    sizes = [1 << power for power in powers]
    series = []
    for colour, name in enumerate(AGGREGATES):
        first = [lengths.first[name, power] * 1e3 for power in powers]
        warm = [lengths.warm[name, power].p50 * 1e3 for power in powers]
        series.append(Series(f"{name}, first call", sizes, first, colour, "dashed"))
        series.append(Series(f"{name}, warm", sizes, warm, colour))
    again = [duckdb[power].p50 * 1e3 for power in powers]
    series.append(Series("DuckDB, count and avg", sizes, again, len(AGGREGATES)))
    axes = ("rows in the window", "ms, as the client sees it")
    panel = Panel("", *axes, series, x_log=True, y_log=True, ticks=sizes[::2])
    return Figure("windows", "Aggregates by the length of their window", [panel])


# ---- by kind


PLAIN = "selection"
SELECTED = "lane, station, speed, at"
KINDS = {
    PLAIN: workload.pair_query(0),
    "projection of expressions": workload.pair_query(
        0, "lane * 100 + station AS place, round(speed) AS speed, date_trunc('minute', at) AS at"
    ),
    "count": workload.pair_query(0, "count(*) AS n"),
    "avg": workload.pair_query(0, "avg(speed) AS mean"),
    "group by, 82 groups": "SELECT station, avg(speed) AS mean FROM traffic WHERE lane = 1 "
    f"GROUP BY station RANGE {workload.WINDOW_ROWS} MILLISECONDS",
    "distinct, 82 rows": "SELECT DISTINCT station FROM traffic WHERE lane = 1 "
    f"RANGE {workload.WINDOW_ROWS} MILLISECONDS",
    "order by, limit 100": f"SELECT {SELECTED} FROM traffic WHERE lane = 1 "
    f"ORDER BY speed DESC LIMIT 100 RANGE {workload.WINDOW_ROWS} MILLISECONDS",
    "rows n": f"SELECT {SELECTED} FROM traffic WHERE lane = 1 AND station = 1 "
    f"ROWS {workload.WINDOW_ROWS}",
    "rows n partition by": f"SELECT {SELECTED} FROM traffic WHERE lane = 1 AND station = 1 "
    "ROWS 100 PARTITION BY lane, station",
}


def _register_kinds(client: Client) -> dict[str, bytes]:
    return {name: client.register(sql).handle for name, sql in KINDS.items()}


def _kinds(stub: Stub, handles: dict[str, bytes], now: datetime) -> dict[str, Callable[[int], Any]]:
    plain = handles[PLAIN]
    return {
        **{name: repeated(stub.invoke, handle) for name, handle in handles.items()},
        "as of, known then": repeated(stub.invoke, plain, as_of=now),
        "as of, known today": repeated(stub.invoke, plain, as_of=now, knowledge=pb.KNOWLEDGE_TODAY),
        "ask": repeated(stub.ask, KINDS[PLAIN]),
    }


def _pass(client: Client, instant: datetime) -> None:
    """Until it is past, for the clock and for the store, which then can be asked about it."""
    time.sleep(max(0.0, (instant - datetime.now(UTC)).total_seconds() + 0.1))
    client.unregister(client.register(KINDS[PLAIN]).handle)


def _report_kinds(report: Report, calls: dict[str, Callable[[int], Any]], sizes: Sizes) -> None:
    interleaved(calls, 10)
    times = interleaved(calls, 2 * sizes.rounds)
    plain = times[PLAIN].p50
    for name, measured in times.items():
        ratio = measured.p50 / plain
        report.add(f"{name} p50", measured.p50 * 1e3, "ms", ratio=ratio, beside=PLAIN)
    ratios = [measured.p50 / plain for measured in times.values()]
    notes = [
        f"{ratio:.1f} ×  ({measured.p50 * 1e3:.2f} ms)"
        for ratio, measured in zip(ratios, times.values(), strict=True)
    ]
    bars = Bars("", f"times the {PLAIN}, p50", list(times), ratios, notes, 1.0)
    title = f"Kinds of invoke, as multiples of a plain {PLAIN}"
    report.figures.append(Figure("kinds", title, [bars]))
