"""The worked answers over several streams: by the oracle, and by a running store at every step.

Before every instant that has an answer, the rows of all streams until then are published, then a
heartbeat for each stream; then the query is asked live and a copy is synced. At the end every
instant is asked again, AS OF it with the knowledge of today; so it is of a store whose engine has
run.
"""

from __future__ import annotations

from collections import Counter

import pytest

from client_sdk import Client, Copies
from client_sdk.copies import Copy
from datastem.instants import SECOND, from_micros
from querystem.identity import slides
from tests.golden.several import Line, bag, define_line, lines, publish_span
from tests.oracle.clocks import Known
from tests.oracle.refresh import Event
from tests.oracle.refreshed_trees import TreeHistory
from tests.oracle.trees import World
from tests.support.server.process import ServerProcess

_PATIENCE = 300.0
LINES = lines()
every_line = pytest.mark.parametrize("line", LINES, ids=[line.name for line in LINES])


@pytest.mark.skipif(bool(LINES), reason="the worked answers are there")
def test_there_are_worked_answers() -> None:
    pytest.skip("needs ../shared (not part of a user's clone)")


# ---- the oracle


@every_line
def test_oracle_live(line: Line) -> None:
    query = line.query
    for at, expected in line.answers.items():
        if query.stays:
            events = [event for event in _events(line) if event.stamp <= at]
            answer = TreeHistory(line.schemas, events, at).ask(query).answer
        else:
            answer = World(_streams_at(line, at)).answer(query)
        assert Counter(answer) == expected, at


@every_line
def test_oracle_as_of_an_instant(line: Line) -> None:
    query = line.query
    whole = _streams_at(line, line.instants[-1])
    for at, expected in line.answers.items():
        if query.stays:
            history = TreeHistory(line.schemas, _events(line), line.instants[-1], at, today=True)
            answer = history.ask(query).answer
        else:
            answer = World(whole, as_of=at).answer(query)
        assert Counter(answer) == expected, at


def _events(line: Line) -> list[Event]:
    """What is published at every instant: rows, then a heartbeat for each stream."""
    events = []
    for at in line.instants:
        for name, stream in line.streams.items():
            if rows := [row for row in stream.rows if row["ts"] == at]:
                events.append(Event(name, at, rows, at))
        events += [Event(name, at, (), at) for name in line.streams]
    return events


def _streams_at(line: Line, at: int) -> dict[str, Known]:
    """The streams once a heartbeat of each has taken it to an instant."""
    return {
        name: Known(stream.schema, [row for row in stream.rows if row["ts"] <= at], at)
        for name, stream in line.streams.items()
    }


# ---- a store


@every_line
@pytest.mark.process
@pytest.mark.timeout(600)
def test_store_without_engine(line: Line, shared_server: ServerProcess, tenant: str) -> None:
    with Client(shared_server.address, tenant=tenant) as client, Copies.in_memory() as copies:
        _live(client, line, copies)
        for at, expected in line.answers.items():
            instant = from_micros(at)
            answer = client.ask(line.sql, as_of=instant, knowledge="today")
            assert answer.now == instant or _is_refreshed(line)
            assert bag(answer.rows) == expected, at


@every_line
@pytest.mark.process
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_store_after_the_engine_has_run(line: Line, client: Client) -> None:
    """Nothing is matched at invoke, nor is a join that has a composite joined; others are."""
    define_line(client, line)
    handle = client.register(line.sql).handle
    for begin, end in line.spans:
        publish_span(client, line, begin, end)
    for at, expected in line.answers.items():
        answer = client.invoke(
            handle,
            as_of=from_micros(at),
            knowledge="today",
            wait_for_engine=True,
            timeout=_PATIENCE,
        )
        assert answer.now == from_micros(at) or _is_refreshed(line)
        assert answer.computed_rows == 0
        assert answer.joined_pairs == 0 or not line.is_composed
        assert bag(answer.rows) == expected, at


def test_some_lines_have_composites_and_some_joins_have_none() -> None:
    if not LINES:
        pytest.skip("needs ../shared (not part of a user's clone)")
    joins = [line for line in LINES if len(line.query.legs) > 1]
    assert 5 < sum(line.is_composed for line in joins) < len(joins)


def _live(client: Client, line: Line, copies: Copies) -> None:
    """Lives through all instants; the query is registered, and its copy kept, before the first
    row."""
    define_line(client, line)
    handle = client.register(line.sql).handle
    copy = copies.keep("copy", line.sql)
    slide = slides(line.query) and not line.query.stays
    for begin, at in line.spans:
        publish_span(client, line, begin, at)
        if at not in line.answers:
            continue
        answer = client.invoke(handle)
        assert answer.now == from_micros(at) or _is_refreshed(line)
        assert bag(answer.rows) == line.answers[at], at
        assert client.ask(line.sql).rows == answer.rows
        if line.written_out is not None:
            assert client.ask(line.written_out).rows == answer.rows
        assert copies.sync(client).complete and copy.rows() == answer.rows
        if slide:
            _slide(copy, line, at)


def _is_refreshed(line: Line) -> bool:
    """Tells whether NOW of the answer is that of a refresh point."""
    return line.query.refresh is not None


def _slide(copy: Copy, line: Line, at: int) -> None:
    """Until a row comes, a copy of combinations shows later instants without a connection."""
    for later, expected in line.answers.items():
        if later > at and line.is_still(at, later):
            assert bag(copy.rows(now=from_micros(later))) == expected, (at, later)


@pytest.mark.process
@pytest.mark.timeout(600)
def test_full_points_of_example_9(shared_server: ServerProcess, tenant: str) -> None:
    """Streams with points every 2 and every 3 seconds are full together at 6, and not before."""
    examples = [line for line in LINES if line.name == "SyncSQL example 9"]
    if not examples:
        pytest.skip("needs ../shared (not part of a user's clone)")
    points, full = [], []
    with Client(shared_server.address, tenant=tenant) as client:
        define_line(client, examples[0])
        for at in range(1, 10):
            publish_span(client, examples[0], (at - 1) * SECOND, at * SECOND)
            answer = client.ask(examples[0].sql)
            points.append(answer.refreshed_at)
            full.append(answer.full_at)
    assert points == [from_micros(at * SECOND) for at in (0, 2, 3, 4, 4, 6, 6, 8, 9)]
    assert full == [None] * 5 + [from_micros(6 * SECOND)] * 4
