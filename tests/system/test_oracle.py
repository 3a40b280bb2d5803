"""Every answer of a running store equals the naive evaluation of the prefix it names.

Two servers and an engine as processes; one random run after another on the same store, each as a
tenant of its own, while servers and the engine are stopped, killed and started again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.processes import RunningStore
from tests.system.scenario import OPTIONS, Scenario

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(900)]

STEPS = 150


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    with RunningStore(tmp_path_factory.mktemp("oracle")) as running:
        running.start_server(*OPTIONS)
        running.start_server(*OPTIONS)
        running.start_engine(ready=False)
        yield running


@pytest.mark.parametrize("seed", range(1, 7))
def test_answers_are_the_naive_evaluation(store: RunningStore, seed: int) -> None:
    tally = Scenario(store, seed, engine_restarts=seed % 3 == 2).run(STEPS)
    print(dict(tally))
    assert tally["with rows"] >= tally["invoked"] / 4


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_answers_are_the_naive_evaluation_for_longer(store: RunningStore, seed: int) -> None:
    Scenario(store, seed, engine_restarts=3).run(4 * STEPS)
