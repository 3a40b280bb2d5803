"""Copies of joins and UNION ALL: brought up to date by what changed, they are the naive answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.answers.copies import CopyWorld, TreeCopy
from tests.support.answers.trees import TreeMaker


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CopyWorld]:
    seed = request.node.callspec.params.get("seed", 0) if hasattr(request.node, "callspec") else 0
    found = CopyWorld(tmp_path / "store", random.Random(seed))
    yield found
    found.close()


def _lives(world: CopyWorld, copies: list[TreeCopy], steps: int, cuts: float) -> None:
    for _ in range(steps):
        copy = world.chance.choice(copies)
        for _ in range(world.chance.choice((0, 1, 2, 5))):
            world.happens([leg.stream for leg in copy.query.legs])
        copy.sync(cuts, world.chance.choice((60, 400, 1 << 20)))
        copy.check()


@pytest.mark.parametrize("seed", range(6))
def test_oracle_copies_of_random_combinations(world: CopyWorld, seed: int) -> None:
    for _ in range(12):
        maker = TreeMaker.drawn(world.chance)
        queries = [maker.query(), maker.query(), maker.result()]
        copies = [TreeCopy(world, world.question(query)) for query in queries]
        _lives(world, copies, 14, world.chance.choice((0.0, 0.3)))
