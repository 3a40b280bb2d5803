"""benchmarks/run store: a short real run, what remains of it, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from benchmarks.store import workload
from benchmarks.store.command import measure_store
from benchmarks.store.memory import _from_ps, resident
from benchmarks.store.result import Times
from psoup.cli.problems import USAGE, Problem
from tests.cli.conftest import TRADES
from tests.support.system.processes import RunningStore

ROOT = Path(__file__).parents[2]
QUERIES = """
SELECT symbol, price FROM trades WHERE symbol = 'a;b' RANGE 10 MINUTES;
SELECT count(*) AS n FROM trades WHERE price > 100
"""
ROWS = "at,symbol,price,size\n2026-01-05T09:00,a;b,99.5,1\n2026-01-05T09:01,IBM,101,2\n"


@pytest.fixture
def workload_options(tmp_path: Path) -> list[str]:
    """Options for a stream, two queries and two rows of one's own."""
    (tmp_path / "queries.sql").write_text(QUERIES)
    (tmp_path / "rows.csv").write_text(ROWS)
    files = ["--queries", str(tmp_path / "queries.sql"), "--data", str(tmp_path / "rows.csv")]
    return ["--stream", TRADES, *files]


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """The command, with a place for temporary files that can be looked at afterwards."""
    (folder / "tmp").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "store", *options],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], seconds: float) -> tuple[str, str]:
    """What it has written. One that takes too long is told to end, and ends its store."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)
        raise


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(660)
def test_a_short_run_measures_and_leaves_nothing(
    tmp_path: Path, workload_options: list[str]
) -> None:
    written, drawn = tmp_path / "result.json", tmp_path / "result.png"
    options = ["--quick", "--master", "local[2]", "--json", str(written), "--plot", str(drawn)]
    process = started(tmp_path, *options, *workload_options)
    out, err = ended(process, 540)
    assert process.returncode == 0, err
    assert "publish → epoch" in out
    assert "2 rows, 2 queries" in err
    result: dict[str, Any] = json.loads(written.read_text())
    assert set(result["rows_per_second"]) == {
        "published, acknowledged",
        "published, matched by the engine",
    }
    assert result["computed_rows"] == 0
    assert result["memory_bytes"]["server"] > 1 << 20
    assert result["memory_bytes"]["engine"] > result["memory_bytes"]["server"]
    assert 0 < result["milliseconds"]["invoke"]["p50"] <= result["milliseconds"]["invoke"]["p99"]
    assert drawn.read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.process
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    process = started(tmp_path, "--no-engine", "--quick")
    while not list((tmp_path / "tmp").glob("psoup-bench-*/store/log")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = ended(process, 240)
    assert process.returncode == 130, err
    assert "ended with Ctrl-C" in err
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.long
@pytest.mark.process
def test_a_running_store_is_as_it_was(tmp_path: Path, workload_options: list[str]) -> None:
    with RunningStore(tmp_path) as store:
        target = store.start_server()
        process = started(tmp_path, "--quick", "--no-engine", "--server", target, *workload_options)
        out, err = ended(process, 160)
        assert process.returncode == 0, err
        assert "publish → answer" in out
        assert "memory" not in out
        with store.client() as client:
            assert client.streams() == []
            assert list(client.registrations()) == []


def refused(*options: str) -> str:
    """Run the command, which must refuse the options; return what it prints to standard error."""
    result = CliRunner().invoke(measure_store, list(options))
    assert result.exit_code == USAGE, result.output
    return result.stderr


def test_an_incomplete_workload_is_refused(workload_options: list[str]) -> None:
    assert "belong together" in refused(*workload_options[:2])
    assert "belong together" in refused(*workload_options[2:])


def test_queries_end_at_a_semicolon_at_the_end_of_a_line(workload_options: list[str]) -> None:
    parsed = workload.user_workload(
        workload_options[1], Path(workload_options[3]), Path(workload_options[5])
    )
    assert len(parsed.queries) == 2
    assert "'a;b'" in parsed.queries[0]
    assert parsed.stream == "trades"
    with pytest.raises(Problem, match="CREATE STREAM"):
        _ = workload.Workload("SELECT 1", ()).stream


def test_made_up_rows_end_now_and_match() -> None:
    generated = workload.traffic(3)
    table = generated.rows(None, 1000)  # type: ignore[arg-type]
    assert table.num_rows == 1000
    assert pa.compute.min_max(table["lane"]).as_py() == {"min": 1, "max": workload.LANES}
    assert len(set(generated.queries)) == 3


def test_a_missing_matplotlib_is_reported_before_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install matplotlib" in refused("--plot", "x.png")


def test_percentiles_and_memory() -> None:
    assert Times([0.002]).percentile(99) == 2.0
    assert Times([n / 1000 for n in range(1, 102)]).percentile(50) == pytest.approx(51.0)
    own_bytes = resident(os.getpid())
    assert own_bytes > 1 << 20
    if listed := _from_ps():
        assert listed[os.getpid()][1] > 1 << 20
