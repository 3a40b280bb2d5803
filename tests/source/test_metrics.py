"""The metrics of sources and pulls: what they count, and a scrape of real processes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from client_sdk import PsoupError
from client_sdk.pulls import Pull, PullReport
from psoup.cli import cli
from psoup.cli.pull_metrics import PullMetrics
from psoup.source.feeding.bad_rows import ASIDE_COLUMNS
from psoup.source.lag import _MOST_ENDS, Lag, LagHistory
from psoup.source.metrics import LagWatch
from psoup.source.settings import SourceSettings
from psoup.source.status import StatusFile
from tests.source.conftest import Sources
from tests.support.monitoring import Scrape, scrape_until


def test_a_lag_lasts_since_the_oldest_unread_record_was_seen() -> None:
    history = LagHistory()
    seconds = []
    # At each instant the mark and the end of a busy source that is never at its end.
    for now, (mark, end) in enumerate([(5, 5), (5, 9), (8, 12), (9, 15), (9, 15), (15, 15)]):
        history.look(Lag("messages", mark, end), float(now))
        seconds.append(history.seconds(float(now)))
    assert seconds == [0.0, 0.0, 1.0, 1.0, 2.0, 0.0]
    assert history.seconds(100.0) == 0.0


def test_a_lag_remembers_a_bounded_number_of_ends() -> None:
    history = LagHistory()
    for now in range(5 * _MOST_ENDS):
        history.look(Lag("messages", 0, now + 1), float(now))
    assert history.seconds(5.0 * _MOST_ENDS) == 5.0 * _MOST_ENDS
    assert len(history._ends) <= _MOST_ENDS


def test_a_lag_lasts_over_a_restart(tmp_path: Path) -> None:
    """Also of what is counted from another beginning then."""
    history = LagHistory()
    for now, (mark, end) in enumerate([(5, 9), (5, 12), (8, 15)]):
        history.look(Lag("messages", mark, end), float(now))
    status = StatusFile(tmp_path / "status")
    status.note_lags("s", {"s/0": history.ends(20)})
    status.write()
    later = StatusFile(tmp_path / "status")
    (ends,) = (
        LagWatch(SourceSettings("s", "files", {}, "s", tmp_path), later.lags("s")).ends().values()
    )
    assert ends == [(0.0, 9), (1.0, 12), (2.0, 15)]
    again, anew = LagHistory(ends), LagHistory(ends)
    again.look(Lag("messages", 10, 15), 50.0)
    assert again.seconds(50.0) == 49.0
    anew.look(Lag("files", 0, 2), 50.0)
    assert anew.seconds(50.0) == 50.0
    anew.look(Lag("files", 2, 3), 60.0)
    assert anew.seconds(60.0) == 0.0
    assert len(LagHistory([(float(n), n) for n in range(1000)]).ends(20)) <= 20


def values(metrics: PullMetrics) -> list[float]:
    return [sample.value for family in metrics.collect() for sample in family.samples]


def test_a_pull_that_stays_connected_is_current_until_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("psoup.cli.pull_metrics.time.monotonic", lambda: now)
    pull = Pull("dear", Path("dear.csv"), key="dear")
    good = PullReport(pull, datetime(2026, 1, 5, tzinfo=UTC))
    bad = replace(good, error=PsoupError("away"))
    for stays_connected, ages in (
        (True, [10.0, 0.0, 10.0, 20.0]),
        (False, [10.0, 10.0, 20.0, 30.0]),
    ):
        now, amounts = 0.0, []
        metrics = PullMetrics([pull], stays_connected)
        for report in (None, good, bad, bad):
            if report is not None:
                metrics.note(report)
            now += 10.0
            amounts.append(values(metrics)[0])
        assert amounts == ages and values(metrics)[1] == 2.0


@pytest.mark.process
def test_a_scrape_of_a_source_and_a_pull(sources: Sources) -> None:
    sources.client.define("CREATE STREAM s (k BIGINT)")
    columns = ", ".join(f"{name} TEXT" for name in ASIDE_COLUMNS)
    sources.client.define(f"CREATE STREAM r ({columns})")
    sources.client.register("SELECT k FROM s", key="all")
    (sources.folder / "a.csv").write_text("k\n1\nx\n2\n")
    more = 'bad_rows = "aside"\naside = "r"\n'
    sources.write(f'[sources.f]\nfiles = "*.csv"\nstream = "s"\n{more}')
    source = sources.start("--metrics", "127.0.0.1:0")
    address = source.wait_for(r"metrics ready on (\S+)")[1]
    scrape = scrape_until(address, "psoup_source_bad_rows_total", 1, source="f")
    assert scrape.value("psoup_source_up", source="f") == 1
    assert scrape.value("psoup_source_lag_seconds", source="f") is not None
    assert scrape.value("process_cpu_seconds_total") is not None
    output = str(sources.folder / "all.out.jsonl")
    pull = sources.psoup("pull", "all", "--to", output, "--every", "1s", "--metrics", "127.0.0.1:0")
    address = pull.wait_for(r"metrics ready on (\S+)")[1]
    pull.wait_for(r"all  ?2 rows|2 rows")
    scrape = Scrape(address)
    assert scrape.value("psoup_pull_failures_total", pull="all") == 0
    assert (scrape.value("psoup_pull_age_seconds", pull="all") or 0.0) < 60.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metrics", "127.0.0.1:0"], "give --every or --watch"),
        (["--metrics", "0.0.0.0:0", "--every", "1m"], "--metrics-token-file"),
        (["--metrics", "9183", "--every", "1m"], "write HOST:PORT"),
        (["--metrics-token-file", __file__], "needs --metrics"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: list[str], message: str) -> None:
    run = CliRunner().invoke(cli, ["pull", "k", "--to", str(tmp_path / "k.csv"), *options])
    assert run.exit_code == 2 and message in run.output, run.output
