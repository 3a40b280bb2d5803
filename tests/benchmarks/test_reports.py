"""Reports: JSON, plots, the page, and all benchmarks together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import page, together
from benchmarks.figures import Bars, Figure, Panel, Series
from benchmarks.report import Report


def report() -> Report:
    found = Report("paper", "a few rows")
    found.add("a thing", 0.25, "ms", ratio=2.0, beside="another", aim="≤ 3 ×", met=True)
    series = [Series("ours", [1, 2], [3, 4]), Series("theirs", [1, 2], [5, 6], 1, "points")]
    bars = Bars("b", "x", ["one", "two"], [1.0, 2.0], ["", "twice"], 1.0)
    panels: list[Panel | Bars] = [Panel("a", "x", "y", series, True, True), bars]
    found.figures.append(Figure("drawn", "title", panels))
    return found


def test_a_report_is_json_and_plots(tmp_path: Path) -> None:
    path = report().write(tmp_path / "sub" / "paper.json")
    written = json.loads(path.read_text())
    assert written["figures"][0]["panels"][0]["series"][1]["y"] == [5, 6]
    assert (tmp_path / "sub" / "drawn.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_is_replaced_in_its_place(tmp_path: Path) -> None:
    path = report().write(tmp_path / "paper.json")
    place = tmp_path / "page.md"
    place.write_text("before\n<!-- measured: paper -->\nold\n<!-- end -->\nafter\n")
    for _ in range(2):
        page.put(path, place)
        text = place.read_text()
        assert "| a thing | 0.2500 ms | 2.00 × another | ≤ 3 ×: met |" in text
        assert text.startswith("before\n")
        assert text.endswith("<!-- end -->\nafter\n")
        assert "old" not in text
    place.write_text("another page\n")
    page.put(path, place)
    assert "## paper\n\n<!-- measured: paper -->" in place.read_text()


def test_every_benchmark_has_a_place_on_the_page() -> None:
    from benchmarks.__main__ import BENCHMARKS

    text = page.PAGE.read_text()
    for name in BENCHMARKS:
        assert text.count(f"<!-- measured: {name} -->") == 1, name
    assert text.count("<!-- end -->") == text.count("<!-- measured: ")


def test_one_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, options: list[str], limit: float) -> str:
        if name == "second":
            return "failed with exit code 3"
        report().write(Path(options[-1]))
        return ""

    monkeypatch.setattr(together, "FOLDER", tmp_path)
    monkeypatch.setattr(together, "_run", run)
    assert together.run_all(["first", "second", "third"], True, []) == 1
    summary = json.loads(next(tmp_path.glob("all-*/summary.json")).read_text())
    assert len(summary["reports"]) == 2
    assert summary["failed"] == {"second": "failed with exit code 3"}
    assert "2 measured, 1 failed; 2 aims met, 0 missed" in capsys.readouterr().out


@pytest.mark.process
def test_one_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = "import time\ntime.sleep(600)"
    popen = subprocess.Popen
    monkeypatch.setattr(
        "subprocess.Popen", lambda _, **options: popen([sys.executable, "-c", sleeper], **options)
    )
    assert "took more than 1 s" in together._run("any", [], 1.0)
    assert "was not started" in together._run("any", [], 0.0)
