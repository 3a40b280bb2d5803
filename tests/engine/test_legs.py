"""A registration of several legs: its predicates meet the rows of their streams, old and new."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from datastem.schema import StreamSchema
from psoup.engine.settings import EngineSettings
from psoup.store import Registration, Store
from psoup.write.draft import CommitDraft, Moment, RecentBatches
from psoup.write.registrations import Prepared, RegisterAll
from querystem.legs import Leg
from querystem.query import Output, Query
from querystem.sources import From
from results.window import UNBOUNDED
from tests.support.engine.author import OTHER, READINGS, Author, above, readings, sensor_is
from tests.support.engine.pump import Pump
from tests.support.engine.reading import assert_joined, matched

pytestmark = pytest.mark.spark

# Every step's files are merged and every table is compacted.
EAGER = EngineSettings(housekeeping=0.0, grace=0.0, merge_files=2, compact_files=2)


def register(author: Author, *legs: Leg) -> Registration:
    """Register all combinations of the legs' rows as a server does."""
    query = Query(From(legs), (Output("sensor", above(0.0)),))
    state = author.state.draft()
    draft = CommitDraft(state, 1, Moment(state.clock, "", state.clock), RecentBatches())
    streams = {name: id_ for (_, name), id_ in state.stream_names.items()}
    ready = [Prepared("", "{}", query)]
    (handle,) = RegisterAll("main", "main", streams, "a text", 60, ready).propose(draft).handles
    author.append(draft.entries[0].event)
    return author.state.registrations[handle]


def leg(stream: StreamSchema, number: float) -> Leg:
    return Leg(stream.name, above(number), UNBOUNDED)


def test_every_leg_meets_old_rows_and_new_ones(
    store: Store, author: Author, spark: SparkSession
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    author.publish(left_stream, readings([1, 2], [10.0, 20.0]))
    author.publish(right_stream, readings([1, 2, 3], [5.0, 15.0, 25.0]))
    pump = Pump(store, spark)
    pump.run()
    both = register(author, leg(OTHER, 10.0), leg(READINGS, 10.0))
    pump.run()
    author.publish(left_stream, readings([3, 4], [30.0, 1.0]))
    author.publish(right_stream, readings([4], [11.0]))
    pump.run()
    first, second = both.legs
    assert (first.stream_id, second.stream_id) == (right_stream, left_stream)
    assert_joined(store, right_stream, {first.predicate_id: lambda row: row["value"] > 10})
    assert_joined(store, left_stream, {second.predicate_id: lambda row: row["value"] > 10})
    assert matched(store, first.predicate_id) == [1, 2, 3]
    assert matched(store, second.predicate_id) == [1, 2]


def test_legs_outlive_the_engine_and_merges(
    store: Store, author: Author, spark: SparkSession
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    pairs = register(author, leg(READINGS, 1.0), leg(READINGS, 1.0))
    mixed = register(author, leg(OTHER, 1.0), leg(READINGS, 1.0), leg(READINGS, 2.0))
    ended = register(author, leg(OTHER, 3.0), leg(READINGS, 2.0))
    for number in range(4):
        author.publish(left_stream, readings([number], [float(number)]))
        author.publish(right_stream, readings([number], [float(number)]))
        author.register(left_stream, sensor_is(number))
        if number == 2:
            author.unregister(ended.handle)
        Pump(store, spark, EAGER).run()
    state = Pump(store, spark).ledger.state
    assert state.registrations == author.state.registrations
    assert state.predicates == author.state.predicates
    assert state.registrations[mixed.handle].legs == mixed.legs
    assert {stream.id: stream.registrations for stream in state.streams.values()} == {
        left_stream: 6,
        right_stream: 1,
    }
    shared = state.predicates[pairs.predicate_id]
    assert (shared.registrations, ended.predicate_id in state.predicates) == (3, False)
    assert matched(store, shared.id) == [2, 3]
    assert matched(store, mixed.legs[2].predicate_id) == [3]


def test_what_ends_with_its_last_leg_is_matched_no_more(
    store: Store, author: Author, spark: SparkSession
) -> None:
    left_stream, right_stream = author.create(READINGS), author.create(OTHER)
    author.publish(left_stream, readings([1], [5.0]))
    both = register(author, leg(READINGS, 1.0), leg(OTHER, 1.0), leg(READINGS, 1.0))
    pump = Pump(store, spark)
    pump.run()
    author.drop(right_stream)
    author.publish(left_stream, readings([2], [5.0]))
    pump.run()
    assert matched(store, both.predicate_id) == [0, 1], "the other leg's stream has gone"
    author.unregister(both.handle)
    author.publish(left_stream, readings([3], [5.0]))
    pump.run()
    assert not pump.ledger.state.predicates
    again = register(author, leg(READINGS, 1.0), leg(READINGS, 1.0))
    pump.run()
    assert again.predicate_id == 3 and matched(store, 3) == [0, 1, 2]
