"""A row that comes late and ends another before the retention: copies had kept the one it ended."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from datastem.instants import SECOND
from psoup.answers.difference import WholeReason
from querystem.language import bind_query
from tests.support.answers.copies import CopyWorld, TreeCopy


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, b, ts FROM names",
        "SELECT n.a, n.b, n.ts FROM names AS n, early AS e WINDOW(ROWS 1)",
    ],
    ids=["one stream", "a join"],
)
def test_a_copy_is_replaced_when_a_row_comes_that_late(tmp_path: Path, sql: str) -> None:
    world = CopyWorld(tmp_path / "store", random.Random(0), waiting=False)
    schemas = {name: stream.schema for name, stream in world.streams.items()}
    copy = TreeCopy(world, world.question(bind_query(sql, schemas.get)))
    world.publish("early", [(1, "x", 20)])
    world.publish("names", [(1, "x", 0), (1, "y", 20)])
    assert copy.sync().row_count == 2
    world.clock += 5 * SECOND
    world.publish("names", [(2, "y", 50)])
    world.publish("names", [(3, "x", 5)])
    world.publish("early", [(1, "x", 50)])
    difference = copy.sync()
    assert difference.reason is WholeReason.RETENTION
    assert sorted(values[:2] for values in copy.answer(copy.mark.now)) == [(2, "y"), (3, "x")]
    world.close()
