"""Back-fill of a predicate that implies one that is matched looks only at that one's rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from psoup.engine import backfill as backfill_module
from psoup.engine import implied, jobs
from psoup.engine.engine import Engine
from psoup.engine.implied import matched_ids
from psoup.engine.worker import Slice
from psoup.store import DataFile, Store
from psoup.store.delta.checksums import Checks
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is
from tests.support.engine.reading import assert_joined

pytestmark = pytest.mark.spark

VALUES = np.random.default_rng(5).uniform(0, 100, 400)


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[Slice]:
    """The slices that back-fill has made."""
    found: list[Slice] = []
    run_tasks = jobs.run_tasks

    def noting(spark, job, work, units):
        found.extend(units)
        return run_tasks(spark, job, work, units)

    monkeypatch.setattr(backfill_module, "run_tasks", noting)
    monkeypatch.setattr(implied, "_SECONDS", 60.0)
    return found


def test_every_predicate_of_the_pass_has_one(
    store: Store, author: Author, spark: SparkSession, slices: list[Slice]
) -> None:
    """Of those that are implied the tightest is taken; where one has none, all rows are read."""
    stream = author.create(READINGS)
    kept = {author.register(stream, above(least))[1]: least for least in (50.0, 80.0)}
    tight = max(kept)
    engine = Engine(store, spark, None)
    engine.start()
    try:
        engine.wait_for(author.publish(stream, readings([1] * len(VALUES), VALUES.tolist())))
        kept[author.register(stream, above(90.0))[1]] = 90.0
        engine.wait_for(author.state.position)
        engine.wait_idle()
        assert {one.wider for one in slices} == {(tight,)}
        slices.clear()
        kept[author.register(stream, above(95.0))[1]] = 95.0
        _, other = author.register(stream, sensor_is(1))
        engine.wait_for(author.state.position)
        engine.wait_idle()
        # They may share a pass or not.
        found = {one.wider for one in slices}
        assert () in found and found <= {(), (max(kept, key=lambda id_: kept[id_] == 90.0),)}
    finally:
        engine.stop()
    expected = {id_: (lambda row, least=least: row["value"] > least) for id_, least in kept.items()}
    assert_joined(store, stream, {**expected, other: lambda row: row["sensor"] == 1})


def test_a_file_that_is_gone_is_no_answer(tmp_path: Path, store: Store) -> None:
    gone = DataFile("gone.parquet", 1, 1, Checks(0, 0))
    assert matched_ids(store.table("matches").root, [gone], [1], 0, 10) is None
    found = matched_ids(store.table("matches").root, [], [1], 0, 10)
    assert found is not None and not len(found)
