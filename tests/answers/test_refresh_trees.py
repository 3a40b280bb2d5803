"""REFRESH over several streams, of the whole query and of single streams in it: whatever comes in
which order, late or by a heartbeat, and whoever has it, the answer is the naive one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from datastem.instants import SECOND
from querystem.query import Query
from tests.support.answers.refreshing import RefreshMaker, RefreshWorld


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RefreshWorld]:
    seed = request.node.callspec.params.get("seed", 0) if hasattr(request.node, "callspec") else 0
    found = RefreshWorld(tmp_path / "store", random.Random(seed))
    yield found
    found.close()


@pytest.mark.parametrize("seed", range(4))
def test_oracle_answers_with_refresh(world: RefreshWorld, seed: int) -> None:
    maker = RefreshMaker(world.chance)
    for _ in range(14):
        query = maker.query()
        names = [leg.stream for leg in query.legs]
        for _ in range(8):
            for _ in range(world.chance.choice((1, 2, 5))):
                world.happens(names)
            _check(world, query)


def _check(world: RefreshWorld, query: Query) -> None:
    instant = world.clock - world.chance.randint(0, 30) * SECOND
    for as_of, today in ((None, False), (instant, False), (instant, True)):
        question = world.asked(query, as_of, today)
        assert world.found(question) == world.told(question), (query, as_of, today)
    fresh = world.asked(query, None, False)
    plain = replace(query, refresh=None).with_legs(lambda leg: replace(leg, refresh=None))
    shown = world.found(replace(fresh, unrefreshed=True))
    assert shown == world.found(replace(fresh, query=plain)) and shown.instant is None
