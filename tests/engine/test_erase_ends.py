"""Erased rows of streams and joins that end while the engine erases: they are not done before the
last file is gone."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import SparkSession

from psoup.engine.maintain.erase import EraseFromFiles
from psoup.store import Store
from psoup.store.erasure import erasure_status
from querystem.expressions import TRUE
from tests.engine.test_erase import EAGER, ID, ITEM, NAME, ORDERS, PEOPLE, erase, finish, rows
from tests.support.engine.author import Author
from tests.support.engine.composites import equal, register_join
from tests.support.engine.leftovers import leftovers
from tests.support.engine.pump import Pump

pytestmark = pytest.mark.spark


def never_done_too_early(pump: Pump, store: Store) -> None:
    """Let the engine work, and check the folder whenever the status says done."""
    deadline = time.monotonic() + 60
    while not all(status.is_done for status in erasure_status(store)):
        assert time.monotonic() < deadline, erasure_status(store)
        pump.maintenance.advance(pump.ledger)
    assert not leftovers(store.root, ID, NAME, ITEM)


def test_a_stream_that_is_dropped_after_an_erasure(
    store: Store, author: Author, spark: SparkSession
) -> None:
    people, orders = author.create(PEOPLE), author.create(ORDERS)
    joined = register_join(author, [(orders, TRUE), (people, TRUE)], [equal(0, 1, "id")])
    pump = Pump(store, spark, EAGER)
    author.publish(people, rows(PEOPLE, [ID, 3], [NAME, "Bob"]))
    author.publish(orders, rows(ORDERS, [ID, 3], [ITEM, "cup"]))
    pump.run()
    assert leftovers(store.root, NAME, ITEM)
    erase(author, people, [0], digest=7)
    erase(author, orders, [0])
    author.unregister(joined.handle)
    author.drop(people)
    author.drop(orders)
    pump.step()
    # Retention may come later than the chore that erases.
    (chore,) = (c for c in pump.maintenance._chores if isinstance(c, EraseFromFiles))
    while chore.advance(pump.ledger):
        pass
    assert leftovers(store.root / "stems", ID)
    assert store.epochs.latest()[1].erased.packed == 0
    never_done_too_early(pump, store)


def test_a_folder_without_a_commit(store: Store, author: Author, spark: SparkSession) -> None:
    """An engine was killed while it made a table."""
    people = author.create(PEOPLE)
    pump = Pump(store, spark, EAGER)
    author.publish(people, rows(PEOPLE, [ID, 3], [NAME, "Bob"]))
    pump.run()
    (store.root / "stems" / "77" / "_delta_log").mkdir(parents=True)
    erase(author, people, [0], digest=7)
    finish(pump, store)
    assert not leftovers(store.root, ID, NAME)
