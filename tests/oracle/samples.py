"""Values of a strategy outside of a Hypothesis test, for what is too slow to run for each."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


def sample(strategy: SearchStrategy[T], count: int, number: int) -> list[T]:
    """At most `count` values, the same for the same `number`."""
    values: list[T] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        values.append(value)

    collect()
    return values
