"""Every answer of a running store equals the naive evaluation of the prefix it names.

Random queries over the whole language, to two servers and an engine, through the life of one store:
before it has an engine, while that starts, with it, when it has been ended, with the next.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.system.scenario import Scenario
from tests.support.system.tenants import store_of

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(1200)]


def live(folder: Path, seeds: range, steps: int) -> Counter[str]:
    """The life of a store with a tenant for each seed, all of them in every part of it."""
    with store_of(folder, seeds, Scenario) as tenants:
        fleet, dice = tenants.fleet, tenants.dice

        def computed_afresh() -> int:
            """Use a server that has only what the engine stored."""
            fleet.restart_server(0, dice)
            return sum(tenant.check_everything(0) for tenant in tenants.each)

        tenants.run(steps)
        assert fleet.client("main", 0).status().epoch == 0
        tenants.running.start_engine(ready=False)
        tenants.run(steps)
        fleet.settle()
        assert computed_afresh() == 0
        tenants.run(steps)
        fleet.end_engine(dice)
        fleet.restart_server(1, dice)
        tenants.run(steps)
        assert computed_afresh() > 0
        tenants.running.start_engine("--rest", "idle")
        tenants.run(steps)
        fleet.settle()
        assert computed_afresh() == 0
        return tenants.tally


@pytest.mark.long
def test_oracle_answers_through_the_life_of_a_store(tmp_path: Path) -> None:
    tally = live(tmp_path, range(1, 4), 45)
    print(dict(tally))
    assert tally["registered"] > 200 and tally["asked"] > 100
    assert tally["with rows"] > tally["judged"] / 6


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(1000, 1040, 4))
def test_oracle_answers_through_longer_lives(tmp_path: Path, first: int) -> None:
    live(tmp_path, range(first, first + 4), 400)
