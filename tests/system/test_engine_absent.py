"""Answers never wait for Spark: without an engine they are as fresh and complete as with one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pytest

from client_sdk import Client
from tests.generators import START, traffic
from tests.system.checks import difference, values_of
from tests.system.processes import RunningStore
from tests.system.question import Question
from tests.system.streams import Row, Shape
from tests.system.windows import EVERYTHING, TimeWindow, landmark, last, sliding, snapshot

pytestmark = [pytest.mark.process, pytest.mark.spark]

COLUMNS = {"lane": "BIGINT", "station": "BIGINT", "speed": "DOUBLE", "at": "TIMESTAMP"}
SHAPE = Shape("traffic", COLUMNS, "at", timedelta(hours=1), START)
MINUTE = timedelta(minutes=1)
WINDOWS = [
    EVERYTHING,
    last(60),
    sliding(120, 30),
    landmark(START + MINUTE),
    snapshot(START, START + 2 * MINUTE),
]
SELECTS = [
    "SELECT * FROM traffic WHERE lane = 1 AND speed < 5",
    "SELECT station, speed, ts, row_id FROM traffic WHERE station BETWEEN 3 AND 5 OR speed > 90",
    "SELECT row_id FROM traffic WHERE NOT (speed >= 2 OR station <> 9)",
    "SELECT row_id, speed * 2 AS twice FROM traffic WHERE speed IS NULL OR lane % 4 = 1",
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """A server, and no engine yet."""
    with RunningStore(tmp_path_factory.mktemp("absent")) as running:
        running.start_server()
        yield running


def stem_rows(table: pa.Table, first: int) -> list[Row]:
    rows = table.to_pylist()
    return [row | {"ts": row["at"], "row_id": first + place} for place, row in enumerate(rows)]


def check(client: Client, asked: dict[bytes, Question], rows: list[Row]) -> int:
    """Every question with every window; how many rows the server computed for it."""
    computed = 0
    now = max(row["ts"] for row in rows)
    for handle, question in asked.items():
        for window in [question.window, *WINDOWS]:
            answer = client.invoke(handle, window=other(window, question))
            assert answer.now == now
            assert not difference(question.naive(rows, now, window), values_of(answer))
            computed += answer.computed_rows
    return computed


def other(window: TimeWindow, question: Question) -> str | None:
    return None if window is question.window else window.sql or "UNBOUNDED"


def test_answers_without_an_engine_equal_those_after_it_has_caught_up(store: RunningStore) -> None:
    tables = [traffic(2000, seed=7, late=0.1, nulls=0.05)]
    tables.append(traffic(1000, seed=8, start=START + 4 * MINUTE, late=0.1, nulls=0.05))
    questions = [Question(SHAPE, text, last(90 + place)) for place, text in enumerate(SELECTS)]
    with store.client() as client:
        client.define(SHAPE.sql)
        asked = {client.register(each.sql).handle: each for each in questions[:2]}
        client.publish("traffic", tables[0])
        rows = stem_rows(tables[0], 0)
        asked |= {client.register(each.sql).handle: each for each in questions[2:]}
        assert check(client, asked, rows) > 0
        assert client.status().epoch == 0
        client.publish("traffic", tables[1])
        rows += stem_rows(tables[1], len(rows))
        check(client, asked, rows)

        engine = store.start_engine()
        store.wait_until_matched(client)
        check(client, asked, rows)
        assert check_afresh(store, asked, rows) == 0

        assert engine.stop() == 0
        more = traffic(500, seed=9, start=START + 6 * MINUTE, late=0.1)
        client.publish("traffic", more)
        rows += stem_rows(more, len(rows))
        late = Question(SHAPE, "SELECT * FROM traffic WHERE speed BETWEEN 40 AND 45", last(300))
        asked[client.register(late.sql).handle] = late
        check(client, asked, rows)
        assert check_afresh(store, asked, rows) > 0


def check_afresh(store: RunningStore, asked: dict[bytes, Question], rows: list[Row]) -> int:
    """By a server that has computed nothing yet and knows only what the engine left."""
    store.start_server()
    with store.client(len(store.servers) - 1) as client:
        return check(client, asked, rows)
