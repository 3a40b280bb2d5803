"""REFRESH over several streams, of the whole query and of single streams in it: whatever comes in
which order, late or by a heartbeat, and whoever has it, the answer is the naive one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from datastem.instants import SECOND, to_micros
from datastem.types import TIMESTAMP
from querystem.expressions import TRUE, ColumnRef
from querystem.language import bind_query
from querystem.legs import Leg
from querystem.query import Output, Query
from querystem.refresh import RefreshEvery, RefreshOn
from querystem.sources import From, SetOperation, SetOperator, item_column
from results.window import UNBOUNDED
from tests.support.answers.copies import TreeCopy
from tests.support.answers.refreshing import RefreshMaker, RefreshWorld, fresh_query, streams_of
from tests.support.answers.trees import EVENT, START
from tests.support.lengths import short_first


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RefreshWorld]:
    seed = request.node.callspec.params.get("seed", 0) if hasattr(request.node, "callspec") else 0
    opened = RefreshWorld(tmp_path / "store", random.Random(seed))
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", short_first(range(6)))
def test_oracle_answers_with_refresh(world: RefreshWorld, seed: int) -> None:
    maker = RefreshMaker(world.chance)
    for _ in range(8):
        query = maker.query()
        names = streams_of(query)
        for _ in range(8):
            for _ in range(world.chance.choice((1, 2, 5))):
                world.happens(names)
            _check(world, query)


def _check(world: RefreshWorld, query: Query) -> None:
    # Some lie before what streams retain.
    instant = world.clock - world.chance.randint(0, 30) * world.chance.choice((1, 1, 4)) * SECOND
    for as_of, today in ((None, False), (instant, False), (instant, True)):
        question = world.asked(query, as_of, today)
        assert world.found(question) == world.told(question), (query, as_of, today)
    fresh = world.asked(query, None, False)
    plain = world.asked(fresh_query(query), None, False)
    answer = world.found(replace(fresh, unrefreshed=True))
    assert answer == world.found(plain) and answer.instant is None


@pytest.mark.parametrize("seed", short_first(range(4)))
def test_oracle_copies_with_refresh(world: RefreshWorld, seed: int) -> None:
    """A copy is the answer as of its last point; its mark tells the old one of every leg again."""
    maker = RefreshMaker(world.chance)
    for _ in range(7):
        query = maker.query()
        names = streams_of(query)
        question = world.asked(query, None, False)
        copy = TreeCopy(world, question)
        for _ in range(8):
            for _ in range(world.chance.choice((0, 1, 2, 5))):
                world.happens(names)
            copy.sync(world.chance.choice((0.0, 0.3)), world.chance.choice((60, 400, 1 << 20)))
            expected = world.told(question)
            assert (copy.mark.now, copy.answer(copy.mark.now)) == (expected.now, expected.answer)


# ---- one by one


def _union(period: int) -> Query:
    """The rows of two streams, each as its second from the start on."""
    branches = tuple(
        Query(Leg(name, TRUE, UNBOUNDED), (Output("ts", ColumnRef("ts", TIMESTAMP)),))
        for name in ("early", "late")
    )
    union = SetOperation(SetOperator.UNION_ALL, branches)
    output = Output("ts", ColumnRef(item_column(0, "ts"), TIMESTAMP))
    return Query(From((union,)), (output,), refresh=RefreshEvery(period * SECOND))


def _seconds(world: RefreshWorld, query: Query) -> tuple[int | None, list[int]]:
    question = world.asked(query, None, False)
    answer = world.found(question)
    assert answer == world.told(question)
    assert world.found(replace(question, latest=True)) == answer, "points wait for all"
    point = None if answer.instant is None else (answer.instant - START) // SECOND
    instants = [ts for (ts,) in answer.answer if isinstance(ts, datetime)]
    return point, [(to_micros(ts) - START) // SECOND for ts in instants]


@pytest.mark.parametrize("engine", [False, True], ids=["tail", "stored"])
def test_a_heartbeat_makes_the_point(world: RefreshWorld, engine: bool) -> None:
    def row(name: str, second: int) -> None:
        world.publish(name, [(1, "x", second - (world.clock - START) // SECOND)])
        if engine:
            world.step()

    world.clock = START + 40 * SECOND
    query = _union(10)
    row("early", 1)
    assert _seconds(world, query) == (None, []), "the other stream has no NOW yet"
    row("late", 12)
    row("late", 3)
    assert _seconds(world, query) == (0, []), "the first point was passed with its second stream"
    row("late", 4)
    world.beat_at("early", START + 10 * SECOND)
    row("late", 5)
    row("early", 6)
    assert _seconds(world, query) == (10, [1, 3, 4]), "known when the heartbeat came"
    world.beat_at("late", START + 30 * SECOND)
    row("early", 25)
    assert _seconds(world, query) == (20, [1, 3, 4, 5, 6, 12])


def test_all_streams_have_passed_the_point_by_batches(world: RefreshWorld) -> None:
    """A batch counts as a whole, whichever of its rows takes the stream to the point."""
    world.clock = START + 40 * SECOND
    query = _union(10)
    world.publish("late", [(1, "x", -10), (1, "x", -37)])
    world.publish("early", [(1, "x", -38), (1, "x", -30), (1, "x", -35)])
    world.publish("early", [(1, "x", -36)])
    assert _seconds(world, query) == (10, [2, 3, 5, 10])


def test_one_stream_twice_needs_no_heartbeats(world: RefreshWorld) -> None:
    world.fill("early", 2)
    leg = Leg("early", TRUE, UNBOUNDED)
    outputs = (Output("ts", ColumnRef(item_column(0, "ts"), TIMESTAMP)),)
    query = Query(From((leg, leg)), outputs, refresh=RefreshEvery(SECOND))
    plan = world.cores[0].maker.plan(world.cores[0].follower.view, world.asked(query, None, False))
    assert not plan.unsettled and plan.legs[0].limits[0][0] == "_before"


def test_rows_that_are_not_retained_decide_nothing(world: RefreshWorld) -> None:
    """Whether they are gone or still there: NOW of the point is that before a later row."""
    world.clock = START + 100 * SECOND
    for name, second in (("late", 1), ("early", 50), ("late", 2), ("late", 90)):
        world.publish(name, [(1, "x", second - 100)])
        world.step()
    outputs = (Output("ts", ColumnRef("ts", TIMESTAMP)),)
    query = Query(Leg("late", TRUE, UNBOUNDED), outputs, refresh=RefreshOn("early", TRUE))
    question = world.asked(query, None, False)
    for _ in range(3):
        answer = world.found(question)
        assert answer == world.told(question)
        assert (answer.instant, answer.now) == (START + 50 * SECOND, START + 2 * SECOND)
        world.delete()


def test_groups_inside_are_those_over_no_rows(world: RefreshWorld) -> None:
    """Before the first point, and without a NOW: a count inside is 0, as one outside is."""
    schemas = {name: stream.schema for name, stream in world.streams.items()}
    count = "SELECT count(*) AS n FROM {}"
    nested = "SELECT s.n FROM (" + count + ") AS s {}"
    texts = (
        count.format("late"),
        nested.format("late", ""),
        nested.format("some", "REFRESH ON some"),
    )
    for text in texts:
        question = world.asked(bind_query(text, schemas.get), None, False)
        answer = world.found(question)
        assert answer == world.told(question)
        assert (answer.now, answer.answer) == (None, [(0,)]), text


def test_refresh_inside_the_window_of_one_reference_leaves_the_now(world: RefreshWorld) -> None:
    """The rows are as of the point; NOW is the query's, and the answer is full at the point."""
    world.clock = START + 40 * SECOND
    for second in (1, 6, 12):
        world.publish("early", [(second, "x", second - 40)])
        world.clock = START + 40 * SECOND
    schemas = {name: stream.schema for name, stream in world.streams.items()}
    for text, instants in (
        ("SELECT a FROM early WINDOW(UNBOUNDED REFRESH EVERY 5 SECONDS)", (10, 12, 10)),
        ("SELECT a FROM early REFRESH EVERY 5 SECONDS", (10, 10, None)),
    ):
        question = world.asked(bind_query(text, schemas.__getitem__), None, False)
        answer = world.found(question)
        seconds = [
            None if instant is None else (instant - START) // SECOND
            for instant in (answer.instant, answer.now, answer.full)
        ]
        assert (tuple(seconds), answer.answer) == (instants, [(1,), (6,)])
        assert answer == world.told(question)


# ---- as of an instant


@pytest.mark.parametrize("seed", short_first(range(6)))
def test_as_of_an_instant_is_what_was_answered_then(world: RefreshWorld, seed: int) -> None:
    """With the knowledge of then, queries of every kind, over streams of every kind, with and
    without REFRESH, have the answer of then, whatever came since."""
    maker = RefreshMaker(world.chance)
    later = 0
    for _ in range(8):
        query = maker.query()
        names = streams_of(query)
        live = []
        for _ in range(5):
            for _ in range(world.chance.choice((1, 2, 5))):
                world.happens(names)
            _come_to_the_clock(world, query)
            # What comes next has a later stamp.
            live.append((world.clock, world.found(world.asked(query, None, False))))
            assert world.found(world.asked(query, world.clock, False)) == live[-1][1], query
            world.clock += SECOND
        for instant, answer in live:
            if all(world.retains_what_it_did(name, instant) for name in names):
                repeated = world.found(world.asked(query, instant, False))
                # A late row, or one that is gone since, may have begun a stream before the last
                # common point: whether there was one counts from all rows, not those known then.
                assert replace(repeated, full=answer.full) == answer, (query, instant)
                later += 1
    assert later, "no instant was asked about later"


def _come_to_the_clock(world: RefreshWorld, query: Query) -> None:
    """Takes time on until the present is the same as AS OF the present instant.

    AS OF t is at NOW = t (docs/reference/language.md). NOW of arrival time is t at the instant t;
    NOW of event time is what the streams have reached, so they must have reached t and not more.
    A query that is as of a refresh point over event time is at the NOW of the point, which
    depends on what the streams had reached and not on t: it is enough that they have
    a NOW and are not ahead.
    """
    timed = [name for name in dict.fromkeys(streams_of(query)) if name in EVENT]
    reached = {name: world.reached(name) for name in timed}
    world.clock = max(
        [world.clock, *(instant for instant in reached.values() if instant is not None)]
    )
    at_points = query.refresh is not None and all(leg.stream in EVENT for leg in query.legs)
    for name in timed:
        if not at_points or reached[name] is None:
            world.beat_at(name, world.clock)


@pytest.mark.parametrize("engine", [False, True], ids=["tail", "stored"])
def test_a_heartbeat_that_came_later_was_not_known_then(world: RefreshWorld, engine: bool) -> None:
    """Neither makes it a point of REFRESH EVERY, nor takes it NOW of REFRESH ON further."""
    schemas = {name: stream.schema for name, stream in world.streams.items()}
    queries = [
        bind_query(text, schemas.__getitem__)
        for text in (
            "SELECT a FROM early REFRESH EVERY 5 SECONDS",
            "SELECT a FROM early REFRESH ON late",
            "SELECT e.a FROM early AS e, late AS l WHERE e.a < l.a REFRESH EVERY 5 SECONDS",
        )
    ]
    world.clock = START + 60 * SECOND
    events = (("early", 1, True), ("late", 20, True), ("early", 12, False), ("early", 18, False))
    live = []
    for name, second, has_row in events:
        if has_row:
            world.publish(name, [(second, "x", second - (world.clock - START) // SECOND)])
        else:
            world.beat_at(name, START + second * SECOND)
        if engine:
            world.step()
        live.append([world.found(world.asked(query, None, False)) for query in queries])
        world.clock += SECOND
    for place, answers in enumerate(live[1:], 1):
        instant = START + (60 + place) * SECOND
        for query, answer in zip(queries, answers, strict=True):
            question = world.asked(query, instant, False)
            assert world.found(question) == world.told(question) == answer, (query, instant)
    points = [[(settled.instant or 0) - START, (settled.now or 0) - START] for settled in live[-1]]
    assert points == [[15 * SECOND] * 2, [20 * SECOND, 18 * SECOND], [15 * SECOND] * 2]


def test_as_of_an_instant_shows_no_point_that_the_stream_had_not_reached(
    world: RefreshWorld,
) -> None:
    world.clock = START + 60 * SECOND
    for second in (1, 6, 12):
        world.publish("early", [(second, "x", START // SECOND + second - world.clock // SECOND)])
    schemas = {name: stream.schema for name, stream in world.streams.items()}
    query = bind_query("SELECT a FROM early REFRESH EVERY 5 SECONDS", schemas.__getitem__)
    live, instant = world.found(world.asked(query, None, False)), world.clock
    assert (live.instant, live.answer) == (START + 10 * SECOND, [(1,), (6,)])
    assert world.found(world.asked(query, instant, False)) == live
    world.clock += 10 * SECOND
    world.publish("early", [(30, "x", -40)])
    assert world.found(world.asked(query, None, False)).instant == START + 30 * SECOND
    assert world.found(world.asked(query, instant, False)) == live
