"""Predicates with time zones: executors match them by the rules that are in the predicates."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.instants import HOUR, to_micros
from datastem.zones import ZoneRules, machine_rules
from psoup.store import Store
from querystem.language import bind_query
from querystem.zones import with_zones
from tests.support.engine.author import Author, timed
from tests.support.engine.pump import Pump
from tests.support.engine.reading import matched

pytestmark = pytest.mark.spark

MADRID = "Europe/Madrid"
# Two hours before and two after Madrid's clock is set ahead.
INSTANTS = [to_micros(datetime(2026, 3, 29, 1, tzinfo=UTC)) + n * HOUR for n in (-2, -1, 0, 1)]


def test_old_and_new_rows_are_matched_by_the_rules_of_the_predicate(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(timed())
    rows = pa.record_batch(
        {
            "sensor": pa.array([1, 2, 3, 4], pa.int64()),
            "at": pa.array(INSTANTS, pa.timestamp("us", "UTC")),
        }
    )
    text = f"SELECT sensor FROM timed WHERE extract(hour FROM at AT TIME ZONE '{MADRID}') IN (1, 3)"
    rules = machine_rules(MADRID)
    fixed = ZoneRules(MADRID, 2, np.empty(0, np.int64), np.array([0]))
    author.publish(stream, rows)
    predicates = []
    for version in (rules, fixed):
        query = with_zones(bind_query(text, {"timed": timed()}.get), {MADRID: version})
        predicates.append(author.register(stream, query.leg.where)[1])
    pump = Pump(store, spark)
    pump.run()
    author.publish(stream, rows)
    pump.run()
    # Madrid's clock shows 0, 1, 3 and 4; that of the other rules 23, 0, 1 and 2.
    assert matched(store, predicates[0]) == [1, 2, 5, 6]
    assert matched(store, predicates[1]) == [2, 6]
