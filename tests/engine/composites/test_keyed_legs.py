"""A keyed leg: every combination that an answer ever had is kept, and few others."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.codec import INSTANT
from datastem.instants import MINUTE
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from querystem.expressions import TRUE
from tests.engine.test_keyed import KEYED, Story, keyed
from tests.support.engine.author import Author, timed
from tests.support.engine.composites import combinations, equal, register_join
from tests.support.engine.pump import Pump
from tests.support.lengths import short_first

pytestmark = pytest.mark.spark

SMALL = EngineSettings(housekeeping=0.0, merge_files=3)


@pytest.mark.parametrize("seed", short_first(range(2)))
def test_all_that_was_ever_seen_is_kept(
    store: Store, author: Author, spark: SparkSession, seed: int
) -> None:
    rng = random.Random(seed)
    plain = author.create(timed())
    story = Story(author, keyed(), seed)
    join = register_join(author, [(plain, TRUE), (story.stream, TRUE)], [equal(0, 1)])
    pump = Pump(store, spark, SMALL)
    pump.run()
    rows: list[tuple[int, int]] = []
    ever_visible: set[tuple[int, int]] = set()
    for number in range(16):
        if rng.random() < 0.5:
            story.publish(rng.randint(1, 5), keys=3)
        else:
            new = [(rng.randrange(3), (story.minute - rng.randrange(9)) * MINUTE) for _ in range(2)]
            rows += new
            at = pa.array([ts for _, ts in new], pa.int64()).view(INSTANT)
            sensors = pa.array([sensor for sensor, _ in new], pa.int64())
            author.publish(plain, pa.RecordBatch.from_arrays([sensors, at], schema=timed().arrow))
        ever_visible |= visible(rows, story)
        if number % 3 == 0:
            pump.step()
    pump.run()
    stored = set(combinations(store, join.composite_id).values())
    every = {
        (left_id, row["row_id"])
        for left_id, (sensor, _) in enumerate(rows)
        for row in story.rows
        if row["sensor"] == sensor and row["_op"] == "row"
    }
    assert ever_visible <= stored <= every
    assert len(stored) < len(every)


def visible(rows: list[tuple[int, int]], story: Story) -> set[tuple[int, int]]:
    """Return the pairs that are visible at any instant: a plain row from its ts on, a keyed one up
    to its end."""
    ends = KEYED.ends(story.rows)
    return {
        (left_id, row["row_id"])
        for left_id, (sensor, ts) in enumerate(rows)
        for row in story.rows
        if row["sensor"] == sensor and row["_op"] == "row"
        if max(ts, row["ts"]) < (ends[row["row_id"]] or 1 << 62)
    }
