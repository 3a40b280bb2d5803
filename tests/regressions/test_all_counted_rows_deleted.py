"""A window that counts rows, all of which retention has deleted: copies had kept them, because the
window over what is left is empty."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from datastem.instants import SECOND
from psoup.answers.difference import WholeReason
from querystem.language import bind_query
from tests.support.answers.copies import CopyWorld, TreeCopy


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CopyWorld]:
    opened = CopyWorld(tmp_path / "store", random.Random(0), waiting=False)
    yield opened
    opened.close()


def copy_of(world: CopyWorld, sql: str) -> TreeCopy:
    schemas = {name: stream.schema for name, stream in world.streams.items()}
    return TreeCopy(world, world.question(bind_query(sql, schemas.get)))


WINDOWS = ["ROWS 2 PARTITION BY b", "ROWS 2 SLIDE 3"]
JOIN = "SELECT l.a, e.b FROM late AS l WINDOW({}), early AS e WHERE l.a = e.a"


@pytest.mark.parametrize("window", WINDOWS)
def test_a_copy_of_deleted_rows_is_replaced(world: CopyWorld, window: str) -> None:
    copy = copy_of(world, JOIN.format(window))
    world.publish("early", [(1, "x", 0), (2, "y", 0), (1, "x", 200)])
    world.publish("late", [(1, "x", 0), (2, "y", 0), (1, "x", 0), (2, "y", 0)])
    copy.sync()
    assert copy.rows
    # Minutes later, the engine has deleted all that the copy is made of.
    world.engine.step()
    world.publish("late", [(2, "y", 200)])
    world.delete()
    assert copy.sync().reason is WholeReason.RETENTION
    copy.check()
    assert copy.sync().nothing


@pytest.mark.parametrize("window", WINDOWS)
def test_a_copy_without_rows_is_not_replaced(world: CopyWorld, window: str) -> None:
    copy = copy_of(world, JOIN.format(window))
    world.publish("late", [(1, "x", 0), (2, "y", 0)])
    world.publish("early", [(1, "x", 400)])
    world.engine.step()
    world.clock += 200 * SECOND
    world.beat("late")
    assert not copy.sync().row_count
    world.publish("late", [(1, "y", 200)])
    world.delete()
    assert copy.sync().reason is WholeReason.NONE
    copy.check()
