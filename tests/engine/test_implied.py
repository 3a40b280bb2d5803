"""Back-fill of a predicate that implies a matched one reads only the rows of that one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from psoup.engine.engine import Engine
from psoup.engine.matching import backfill as backfill_module
from psoup.engine.matching import implied
from psoup.engine.matching.implied import matched_ids
from psoup.engine.spark import jobs
from psoup.engine.steps.worker import Slice
from psoup.store import DataFile, Store
from psoup.store.delta.checksums import Checks
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is
from tests.support.engine.reading import assert_joined

pytestmark = pytest.mark.spark

VALUES = np.random.default_rng(5).uniform(0, 100, 400)


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[Slice]:
    """The slices that back-fill has made."""
    noted: list[Slice] = []
    run_tasks = jobs.run_tasks

    def noting(spark, job, work, units):
        noted.extend(units)
        return run_tasks(spark, job, work, units)

    monkeypatch.setattr(backfill_module, "run_tasks", noting)
    monkeypatch.setattr(implied, "_SEARCH_SECONDS", 60.0)
    return noted


def test_every_predicate_of_the_pass_has_one(
    store: Store, author: Author, spark: SparkSession, slices: list[Slice]
) -> None:
    """The tightest implied predicate is used; if a predicate implies none, all rows are read."""
    stream = author.create(READINGS)
    thresholds = {author.register(stream, above(least))[1]: least for least in (50.0, 80.0)}
    tight = max(thresholds)
    engine = Engine(store, spark, None)
    engine.start()
    try:
        engine.wait_for(author.publish(stream, readings([1] * len(VALUES), VALUES.tolist())))
        thresholds[author.register(stream, above(90.0))[1]] = 90.0
        engine.wait_for(author.state.position)
        engine.wait_idle()
        assert {unit.wider for unit in slices} == {(tight,)}
        slices.clear()
        thresholds[author.register(stream, above(95.0))[1]] = 95.0
        _, by_sensor = author.register(stream, sensor_is(1))
        engine.wait_for(author.state.position)
        engine.wait_idle()
        # They may share a pass or not.
        wider = {unit.wider for unit in slices}
        assert () in wider and wider <= {
            (),
            (max(thresholds, key=lambda id_: thresholds[id_] == 90.0),),
        }
    finally:
        engine.stop()
    expected = {
        id_: (lambda row, least=least: row["value"] > least) for id_, least in thresholds.items()
    }
    assert_joined(store, stream, {**expected, by_sensor: lambda row: row["sensor"] == 1})


def test_a_file_that_is_gone_is_no_answer(tmp_path: Path, store: Store) -> None:
    missing = DataFile("gone.parquet", 1, 1, Checks(0, 0))
    assert matched_ids(store.table("matches").root, [missing], [1], 0, 10) is None
    ids = matched_ids(store.table("matches").root, [], [1], 0, 10)
    assert ids is not None and not len(ids)
