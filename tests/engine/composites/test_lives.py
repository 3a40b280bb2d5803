"""Composites through the life of a store: rows on all legs, late rows and deletes of keys, joins
that come, change and go, an engine that is killed, copies; each answer is the naive one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from pyspark.sql import SparkSession

from tests.support.engine.composed_life import ComposedLife

pytestmark = pytest.mark.spark


def lived(spark: SparkSession, seeds: Iterable[int], steps: int) -> Counter[str]:
    """Return what happened in several lives of `steps` steps."""
    tally: Counter[str] = Counter()
    for seed in seeds:
        life = ComposedLife()
        life.begin(seed, spark)
        try:
            life.live(steps)
        finally:
            life.teardown()
        tally += life.tally
    return tally


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_oracle_composites_through_lives_of_a_store(spark: SparkSession) -> None:
    tally = lived(spark, range(3), 60)
    print(dict(tally))
    assert tally["deaths"] > 1 and tally["finished"] > 3
    assert tally["by composite"] > tally["asked"] / 4 and tally["with rows"] > tally["asked"] / 4


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 1100, 10))
def test_oracle_composites_through_longer_lives(spark: SparkSession, first: int) -> None:
    lived(spark, range(first, first + 10), 150)
