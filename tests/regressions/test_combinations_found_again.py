"""A composite was suspended for combinations that it had no more: they were counted by their ids,
of which none is given twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from datastem.schema import StreamSchema
from psoup.engine.repair.mend import mend
from psoup.store import Store
from querystem.expressions import TRUE
from tests.support.engine.author import READINGS, Author, readings
from tests.support.engine.composites import combinations, equal, mark_of, register_join
from tests.support.engine.pump import QUIET, Pump

pytestmark = pytest.mark.spark


def test_combinations_that_are_found_again_are_not_too_many(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Thirty-six of twelve rows, where six for each row are allowed, found three times."""
    store = Store.open(tmp_path / "store", create=True, sync=False)
    author = Author(store)
    first = author.create(READINGS)
    second = author.create(StreamSchema("other", READINGS.columns))
    author.publish(first, readings([1] * 6, [1.0] * 6))
    author.publish(second, readings([1] * 6, [1.0] * 6))
    join = register_join(author, [(first, TRUE), (second, TRUE)], [equal(0, 1)])
    pump = Pump(store, spark, replace(QUIET, max_combinations=6))
    pump.run()
    assert len(combinations(store, join.composite_id)) == 36
    name = f"stems/{join.composite_id}"
    for _ in range(2):
        path = next(iter(pump.ledger.tables[name].files))
        (store.root / name / path).unlink()
        mend(pump.ledger, f"{name}/{path}")
        pump.run()
    assert not mark_of(store, join.composite_id).suspended
    assert len(combinations(store, join.composite_id)) == 36
