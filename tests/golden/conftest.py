"""Every example is answered twice: by the pure parts and by a running store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.golden.evaluators import Ask, StoreEvaluator, ask_pure

# The group by hand: these tests ask for the running store only when they run, and a run of several
# processes must not start one for each of them.
_STORE = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("running"),
]


@pytest.fixture(scope="session")
def store_evaluator(request: pytest.FixtureRequest) -> Iterator[StoreEvaluator]:
    evaluator = StoreEvaluator(request.getfixturevalue("running").targets[0])
    yield evaluator
    evaluator.close()


@pytest.fixture(params=["pure", pytest.param("store", marks=_STORE)])
def ask(request: pytest.FixtureRequest) -> Ask:
    if request.param == "pure":
        return ask_pure
    evaluator: StoreEvaluator = request.getfixturevalue("store_evaluator")
    return evaluator.ask
