"""Filled policies are predicates for the engine, as those of queries are: matched, back-filled,
shared, and ended with their policy; a state that is loaded has the same ones."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from datastem.memory import Memory
from psoup.answers import Replica
from psoup.engine.engine import Engine
from psoup.store import Store
from psoup.store.log.access_events import AccessEnded, AccessPut
from psoup.store.state.access import FilledPolicy, Policy
from querystem.expressions import Expression, predicate_key
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is
from tests.support.engine.reading import assert_joined, matched

pytestmark = pytest.mark.spark


def _policy(author: Author, stream: int) -> Policy:
    form = predicate_key(sensor_is(1))
    policy = Policy(author.new_id(), "main", "main", "mine", stream, "?", form, ("s",))
    author.append(AccessPut((policy,)))
    return policy


def _fill(author: Author, policy: Policy, where: Expression) -> int:
    key = predicate_key(where)
    existing_id = author.state.predicates.find(policy.stream_id, key)
    id_ = author.state.next_predicate_id if existing_id is None else existing_id
    filled = FilledPolicy(policy.policy_id, policy.stream_id, id_, key, 1)
    author.append(AccessPut((filled,)))
    return id_


def test_filled_policies_are_matched_and_end(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    handle, shared = author.register(stream, above(2.0))
    policy = _policy(author, stream)
    early = _fill(author, policy, sensor_is(1))
    assert _fill(author, policy, above(2.0)) == shared
    engine = Engine(store, spark, None)
    engine.start()
    try:
        engine.wait_for(author.publish(stream, readings([1, 2, 1, 3], [1.0, 2.0, 3.0, 4.0])))
        late = _fill(author, policy, sensor_is(3))
        engine.wait_for(author.publish(stream, readings([3, 1], [5.0, 6.0])))
        engine.wait_idle()
        meanings = {
            early: lambda row: row["sensor"] == 1,
            late: lambda row: row["sensor"] == 3,
            shared: lambda row: row["value"] > 2.0,
        }
        assert_joined(store, stream, meanings)
        loaded = Replica.open(store, Memory(1 << 20)).state
        assert loaded.predicates[shared].registrations == 2
        assert loaded.access.filled == author.state.access.filled
        assert loaded.access.policies_of(stream) == [policy]
        assert loaded.next_predicate_id == author.state.next_predicate_id
        assert loaded.has_id(policy.policy_id)
        ended = [("filled", id_) for id_ in author.state.access.filled]
        author.append(AccessEnded((("policy", policy.id), *ended)))
        engine.wait_for(author.publish(stream, readings([1], [7.0])))
        engine.wait_idle()
    finally:
        engine.stop()
    loaded = Replica.open(store, Memory(1 << 20)).state
    assert not loaded.access.filled and not loaded.access.policies
    assert set(loaded.predicates) == {shared} and loaded.predicates[shared].registrations == 1
    assert matched(store, shared) == [2, 3, 4, 5, 6]
    assert 6 not in matched(store, early), "nobody matches it any more"
