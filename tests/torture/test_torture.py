"""A store survives every fault, and its answers are proved afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.faults import FAULTS
from tests.torture.life import Life

pytestmark = [pytest.mark.process, pytest.mark.spark]

_LIFE_SECONDS = 600.0
_LIVES = 6


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_minute_of_every_fault_loses_nothing_and_every_answer_is_right(tmp_path: Path) -> None:
    tally = Life(tmp_path / "life", seed=1, seconds=45, least_faults=3).run(print)
    faults = sum(tally[f"fault: {name}"] for name in FAULTS)
    assert faults >= 3 and tally["answers judged"] > 50, tally


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("seed", range(100, 100 + _LIVES))
def test_an_hour_of_every_fault_loses_nothing_and_every_answer_is_right(
    tmp_path: Path, seed: int
) -> None:
    Life(tmp_path / "life", seed, _LIFE_SECONDS).run(print)
