"""The paper's joins: the strategies agree with each other, on little data."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paper.join_response import STRATEGIES, join_responses, selective_responses
from benchmarks.paper.join_workload import joins, selective
from benchmarks.paper.joins import run
from benchmarks.paper.probing import WAYS, WORKLOADS, probes


@pytest.mark.parametrize("count", [None, 1, 8])
def test_all_strategies_find_the_same_pairs(count: int | None) -> None:
    """`join_responses` compares every answer. There are more pairs than a block has."""
    measured = join_responses(joins(300, 12, count), [7, 128, 300], 1)
    assert [response.window for response in measured] == [7, 128, 300]
    for response in measured:
        assert set(response.find_ms) == set(response.take_ms) == set(STRATEGIES)
    assert measured[-1].rows > measured[0].rows


@pytest.mark.parametrize("band", [None, 2])
def test_all_strategies_find_the_pairs_of_selective_queries(band: int | None) -> None:
    """`selective_responses` compares every answer."""
    measured, stored = selective_responses(selective(6_000, 4, band), [500, 5_000], 1)
    assert 0 < measured[0].rows < measured[-1].rows < stored


@pytest.mark.parametrize("workload", WORKLOADS)
def test_composite_and_separate_find_the_same_pairs(workload: str) -> None:
    """`probes` compares them."""
    measured = probes(workload, [1, 500], 1)
    assert [probe.size for probe in measured] == [1, 500]
    assert measured[-1].pairs > 0 and set(measured[-1].take_ms) == set(WAYS)


@pytest.mark.long
def test_they_are_reported(tmp_path: Path) -> None:
    report = run(tmp_path, quick=True)
    names = {"paper-figure-8", "paper-table-1-joins", "paper-figure-11"}
    assert {figure.name for figure in report.figures} == names
    assert len({line.what for line in report.lines}) == len(report.lines)
