"""AS OF an instant that the stream a refresh point waits for does not retain any more, the point
showed no rows, not even those that other streams retain: the instant counted as reached from the
start, even where the stream had come to it only after the instant that was asked about."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from datastem.instants import SECOND
from datastem.types import BIGINT
from querystem.expressions import TRUE, ColumnRef
from querystem.legs import Leg
from querystem.query import Item, Output, Query
from querystem.refresh import RefreshEvery
from querystem.sources import From, SetOperation, SetOperator, item_column
from results.window import UNBOUNDED
from tests.support.answers.refreshing import RefreshWorld
from tests.support.answers.trees import START


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RefreshWorld]:
    opened = RefreshWorld(tmp_path / "store", random.Random(0))
    yield opened
    opened.close()


def _rows(*items: Item, every: int | None = 4) -> Query:
    """The column `a` of all items."""
    branches = tuple(
        Query(From((item,)), (Output("a", ColumnRef(item_column(0, "a"), BIGINT)),))
        for item in items
    )
    union = SetOperation(SetOperator.UNION_ALL, branches)
    refresh = None if every is None else RefreshEvery(every * SECOND)
    output = Output("a", ColumnRef(item_column(0, "a"), BIGINT))
    return Query(From((union,)), (output,), refresh=refresh)


def _leg(name: str) -> Leg:
    return Leg(name, TRUE, UNBOUNDED)


def _row(world: RefreshWorld, name: str, a: int, second: int) -> None:
    """A row that comes a second after the last event, whatever its ts."""
    world.clock += SECOND
    world.publish(name, [(a, str(a), second - (world.clock - START) // SECOND)])


def _checked_rows(world: RefreshWorld, query: Query, second: int | None) -> list[int]:
    """The answer as of a second; the same, whether rows that are not retained are stored or not."""
    as_of = None if second is None else START + second * SECOND
    question = world.asked(query, as_of, False)
    answer = world.found(question)
    assert answer == world.told(question)
    world.step()
    world.delete()
    assert world.found(question) == answer
    return sorted(a for (a,) in answer.answer if isinstance(a, int))


@pytest.mark.parametrize(("reached", "expected"), [(3, []), (5, [1])], ids=["later", "before"])
def test_rows_known_then_are_shown(world: RefreshWorld, reached: int, expected: list[int]) -> None:
    """The first heartbeat since tells that the stream had come to the point, or not yet; which
    event took it there can't be told once its rows are gone: all that was known then counts."""
    _row(world, "names", 1, 1)
    _row(world, "late", 2, reached)
    world.clock = START + 200 * SECOND
    world.beat_at("late", START + 199 * SECOND)
    _row(world, "names", 3, 2)
    assert _checked_rows(world, _rows(_leg("late"), _leg("names")), 4) == expected


def test_another_stream_tells(world: RefreshWorld) -> None:
    """The point waits for the streams that retain its instant."""
    _row(world, "late", 2, 5)
    _row(world, "names", 1, 1)
    _row(world, "early", 4, 4)
    _row(world, "names", 3, 2)
    world.clock = START + 200 * SECOND
    world.beat_at("late", START + 199 * SECOND)
    query = _rows(_leg("late"), _leg("names"), _leg("early"))
    assert _checked_rows(world, query, 5) == [1, 4]


def test_a_retained_row_tells(world: RefreshWorld) -> None:
    """It took the stream past the instant at once."""
    _row(world, "names", 1, 1)
    _row(world, "late", 2, 100)
    _row(world, "names", 3, 2)
    world.clock = START + 10 * SECOND
    world.beat_at("late", START + 120 * SECOND)
    assert _checked_rows(world, _rows(_leg("late"), _leg("names")), 4) == [1]


def test_a_query_inside_shows_what_was_known_around_it(world: RefreshWorld) -> None:
    """Its stream is far ahead of the one that the query around it waits for."""
    _row(world, "names", 1, 1)
    _row(world, "late", 2, 5)
    _row(world, "early", 4, 4)
    _row(world, "names", 3, 2)
    world.clock = START + 200 * SECOND
    world.beat_at("late", START + 199 * SECOND)
    inside = _rows(_leg("late"), _leg("names"))
    assert _checked_rows(world, _rows(inside, _leg("early")), None) == [1, 4]
