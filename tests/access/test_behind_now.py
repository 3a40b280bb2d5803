"""Rows that a view shows by NOW, to a caller who may not read the stream behind it: none comes
ahead of its instant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from datastem.instants import from_micros
from psoup.server.calls.explain import explain
from psoup.v1 import psoup_pb2 as pb
from tests.access.test_behind_views import BOSS, MINUTE, Exchange, good_until
from tests.oracle.copy import Copy
from tests.support.server.callers import acting_as, new_call

TASKS = "CREATE STREAM tasks (name TEXT, due TIMESTAMP)"
OVERDUE = "CREATE VIEW overdue AS SELECT name FROM tasks WHERE due < NOW"
PAIRS = (
    "CREATE VIEW pairs AS SELECT t.name FROM tasks t JOIN tasks u ON t.name = u.name "
    "WHERE greatest(t.due, u.due) < NOW"
)


@pytest.fixture
async def exchange(tmp_path: Path) -> AsyncIterator[Exchange]:
    exchange = Exchange(tmp_path / "store")
    await exchange.core.start()
    await exchange.define(TASKS, OVERDUE, PAIRS)
    await exchange.grant("overdue")
    await exchange.grant("pairs")
    due = [from_micros(exchange.clock + minutes * MINUTE) for minutes in (-1, 1, 2)]
    await exchange.publish("tasks", name=["a", "b", "c"], due=due)
    yield exchange
    await exchange.core.stop()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM overdue",
        "SELECT count(*) AS n FROM overdue",
        "SELECT name FROM pairs",
        "SELECT p.name FROM pairs p JOIN overdue o ON o.name = p.name",
    ],
)
async def test_no_row_comes_before_its_instant(exchange: Exchange, sql: str) -> None:
    handle, copy = await exchange.register(sql), Copy()
    for count in (1, 2, 3):
        await exchange.sync(handle, copy, away=3600)
        answer = copy.answer(exchange.clock)
        assert answer == await exchange.ask(sql)
        assert len(copy.rows) == (1 if "count" in sql else count)
        # The instant at which the next row comes would say when it is due.
        assert good_until(copy) == exchange.clock + 1
        exchange.clock += MINUTE + 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM overdue",
        "SELECT t.name FROM tasks t JOIN tasks u ON t.name = u.name WHERE t.due < NOW",
    ],
)
async def test_who_reads_the_stream_has_rows_ahead(exchange: Exchange, sql: str) -> None:
    handle, copy = await exchange.register(sql, BOSS), Copy()
    await exchange.sync(handle, copy, BOSS)
    assert len(copy.rows) == 3
    for count in (1, 2, 3):
        assert len(copy.answer(exchange.clock)) == count
        exchange.clock += MINUTE + 1


async def test_explain_shows_the_condition(exchange: Exchange) -> None:
    with acting_as(BOSS):
        request = pb.ExplainRequest(
            handle=await exchange.register("SELECT name FROM tasks WHERE due < NOW", BOSS)
        )
        explained = await explain(exchange.core, new_call(), request)
    assert explained.run.answer_rows == 1
    tree, texts = explained.operator, []
    while tree.inputs:
        texts.append(tree.detail)
        tree = tree.inputs[0]
    assert any("due < NOW" in text for text in (*texts, tree.detail))
