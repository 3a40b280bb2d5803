"""Own edits against the store that is given them: what a device shows is what the store answers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.client_sdk.copies.overlay.world import World
from tests.support.lengths import short_first

LONG_ANSWERS = 100_000


@pytest.mark.parametrize("seed", short_first([1, 2]))
def test_oracle_own_edits(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, answers=120)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_oracle_own_edits_for_long(tmp_path: Path) -> None:
    compared = seed = 0
    while compared < LONG_ANSWERS:
        seed += 1
        compared += run(tmp_path / str(seed), 1000 + seed, answers=5000)


def run(folder: Path, seed: int, answers: int) -> int:
    """Compare at least this number of answers, most of which own edits have changed."""
    world = World(folder, random.Random(seed))
    try:
        while world.compared < answers:
            world.turn()
    finally:
        world.close()
    assert world.changed > answers / 3
    return world.compared
