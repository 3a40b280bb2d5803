"""Queries over several streams through the life of a store: two servers that are killed and
come back, no engine, an engine, none again; copies that are synced from either server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.system.several import SeveralLife
from tests.support.system.tenants import store_of

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
]


def live(folder: Path, seeds: range, steps: int) -> Counter[str]:
    with store_of(folder, seeds, SeveralLife) as tenants:
        fleet, dice = tenants.fleet, tenants.dice
        tenants.run(steps)
        fleet.restart_server(0, dice)
        tenants.run(steps)
        tenants.running.start_engine(ready=False)
        tenants.run(steps)
        fleet.settle()
        for tenant in tenants.each:
            tenant.check_everything()
        fleet.end_engine(dice)
        fleet.restart_server(1, dice)
        tenants.run(steps)
        for tenant in tenants.each:
            tenant.check_everything()
        return tenants.tally


@pytest.mark.long
def test_oracle_several_streams_through_the_life_of_a_store(tmp_path: Path) -> None:
    tally = live(tmp_path, range(1, 4), 30)
    print(dict(tally))
    assert tally["judged"] > 300 and tally["synced"] > 100
    assert tally["with rows"] > tally["judged"] / 5


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 1020, 4))
def test_oracle_several_streams_through_longer_lives(tmp_path: Path, first: int) -> None:
    live(tmp_path, range(first, first + 4), 200)
