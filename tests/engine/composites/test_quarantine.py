"""Composites that fail: one whose join, form or predicate is bad does not stop a step."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from psoup.engine.engine import Engine
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from psoup.store.inspection import quarantine
from psoup.store.log.events import Composite, Register
from psoup.store.state.quarantine import COMPOSITE, PREDICATE
from querystem.expressions import TRUE, predicate_key
from tests.support.engine.author import READINGS, Author, above, readings
from tests.support.engine.composites import equal, mark_of, register_join
from tests.support.engine.reading import matched

pytestmark = pytest.mark.spark


def _unreadable(author: Author, good: Register) -> int:
    """Append the registration of a join again, as one of a composite whose form is not JSON."""
    assert good.composite is not None
    id_, predicate = author.new_id(), author.state.next_predicate_id
    legs = good.composite.legs
    bad = Composite(id_, legs, "[no JSON", None, predicate, predicate_key(TRUE))
    event = Register(b"u" * 16, "", good.legs, "", "{}", good.query, 0, (), bad)
    author.append(event)
    return id_


@pytest.mark.timeout(900)
def test_a_composite_that_fails_is_set_aside(
    store: Store, author: Author, spark: SparkSession
) -> None:
    left_stream, right_stream = (
        author.create(READINGS),
        author.create(READINGS.__class__("others", READINGS.columns)),
    )
    legs = [(left_stream, above(0.0)), (right_stream, above(0.0))]
    good = register_join(author, legs, [equal(0, 1)])
    registered = store.log.read(store.log.latest_version())[0].event
    assert isinstance(registered, Register)
    nowhere = register_join(author, legs, [equal(0, 1, "nowhere")])
    unprobeable = register_join(author, legs, [equal(0, 1)], where=equal(0, 1, "nowhere"))
    unreadable = _unreadable(author, registered)
    engine = Engine(store, spark, EngineSettings())
    engine.start()
    try:
        author.publish(left_stream, readings([1, 2], [1.0, 2.0]))
        engine.wait_for(author.publish(right_stream, readings([2, 3], [1.0, 2.0])), 180)
        engine.wait_idle(180)
        engine.wait_for(author.publish(left_stream, readings([3], [1.0])), 180)
        engine.wait_idle(180)
    finally:
        engine.stop()
    set_aside = {(entry.kind, entry.id) for entry in quarantine(store).entries}
    assert set_aside == {
        (COMPOSITE, nowhere.composite_id),
        (COMPOSITE, unreadable),
        (PREDICATE, unprobeable.predicate_id),
    }
    assert unprobeable.composite_id == good.composite_id
    assert mark_of(store, good.composite_id).high == 2, "2 with 2, and 3 with 3"
    assert matched(store, good.legs[0]) == [0, 1, 2]
