"""NOW in expressions: at every instant an answer is that of the query with NOW as a constant, and a
copy that slides by itself has it while it is offline."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from datastem.instants import DAY, HOUR, MINUTE, SINCE_EVER, format_instant, from_micros
from datastem.memory import Memory
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.answers.difference import (
    BEGINNING,
    Claim,
    CopyChunk,
    Difference,
    Mark,
    Repair,
    WholeReason,
    copier_of,
)
from psoup.answers.difference.job import by_rows, make_job
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

START = 1_700_000_000_000_000
STREAMS = [
    "CREATE STREAM orders (id BIGINT, due TIMESTAMP, done BOOLEAN) KEY (id) RETAIN 2 DAYS",
    "CREATE STREAM tasks (id BIGINT, due TIMESTAMP, until TIMESTAMP) RETAIN 2 DAYS",
    "CREATE STREAM events (id BIGINT, due TIMESTAMP, at TIMESTAMP) ORDERED BY at AHEAD 10 DAYS",
]
# Copies of these are rows, or combinations of rows, with intervals of visibility.
SLIDING = [
    "SELECT id, due FROM orders WHERE due < NOW AND NOT done",
    "SELECT id, due FROM orders WHERE due > NOW ORDER BY due DESC",
    "SELECT id, due FROM tasks WHERE due <= NOW",
    "SELECT id FROM tasks WHERE NOT (due < NOW)",
    "SELECT id FROM tasks WHERE due < NOW RANGE 1 HOUR",
    "SELECT id, until FROM tasks WHERE due <= NOW AND until > NOW",
    "SELECT id FROM tasks WHERE due - NOW < INTERVAL '1' HOUR AND due >= NOW RANGE 1 DAY",
    "SELECT id FROM tasks WHERE NOW - due < INTERVAL '30' MINUTE AND id > 3 AND due < NOW",
    "SELECT id FROM tasks WHERE due BETWEEN NOW - INTERVAL '1' HOUR AND NOW",
    "SELECT id FROM tasks WHERE due = NOW",
    "SELECT id FROM tasks WHERE coalesce(until, due) + INTERVAL '1' HOUR < NOW",
    "SELECT id FROM tasks WHERE due < NOW + INTERVAL '1' HOUR"
    " BEGIN NOW - 1 DAY END NOW - 5 MINUTES",
    "SELECT id FROM tasks WHERE due < NOW - INTERVAL '100000000' HOUR",
    "SELECT id, due FROM events WHERE due < NOW",
    "SELECT id FROM events WHERE due > NOW RANGE 1 HOUR",
    "SELECT t.id, o.due FROM tasks t JOIN orders o ON t.id = o.id WHERE o.due < NOW",
]
# Copies of these are results.
COMPUTED = [
    "SELECT id, due < NOW AS late, NOW - INTERVAL '1' DAY AS since FROM tasks WHERE id < 5",
    "SELECT count(*) AS n FROM orders WHERE due < NOW",
    "SELECT id FROM tasks WHERE due < NOW OR id = 1",
    "SELECT id FROM tasks WHERE due <> NOW",
    "SELECT id FROM tasks WHERE due < NOW ROWS 5",
    "SELECT id FROM tasks WHERE due < NOW ORDER BY due LIMIT 3",
    "SELECT DISTINCT id FROM tasks WHERE due < NOW",
    "SELECT CASE WHEN due < NOW THEN 'late' ELSE 'early' END AS state, count(*) AS n FROM tasks"
    " GROUP BY CASE WHEN due < NOW THEN 'late' ELSE 'early' END",
    "SELECT id, max(due) AS last FROM tasks GROUP BY id HAVING max(due) < NOW",
    "SELECT id FROM tasks ORDER BY CASE WHEN due < NOW THEN 0 ELSE 1 END, id",
    "SELECT t.id FROM tasks t JOIN orders o ON t.id = o.id WHERE t.due < NOW OR o.due < NOW",
    "SELECT t.id, o.due FROM tasks t LEFT JOIN orders o ON t.id = o.id AND o.due < NOW"
    " WHERE t.due < NOW",
    "SELECT id FROM tasks WHERE due < NOW UNION ALL SELECT id FROM orders WHERE due > NOW",
    "SELECT id FROM tasks WHERE due < NOW AND EXISTS"
    " (SELECT 1 FROM orders o WHERE o.id = tasks.id AND o.due > NOW)",
    "SELECT q.n FROM (SELECT id, count(*) AS n, max(due) AS last FROM tasks GROUP BY id) AS q"
    " WHERE q.last < NOW",
    "SELECT t.id, (SELECT max(o.due) FROM orders o WHERE o.id = t.id AND o.due < NOW) AS last"
    " FROM tasks t WHERE (SELECT count(*) FROM orders o WHERE o.id = t.id AND o.due < NOW) > 0",
    "SELECT id FROM tasks WHERE id IN (SELECT id FROM orders WHERE due < NOW)",
    "SELECT id FROM tasks WHERE (NOW > due) = (SELECT max(id) < 99 AND NOW > max(due) FROM orders)",
    "SELECT id FROM events WHERE due < NOW OR id = 2",
    "SELECT count(*) AS n FROM tasks WHERE due < NOW REFRESH EVERY 1 HOUR",
]


class Life:
    """A store whose clock is set by hand."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.clock = folder, START
        self.chance = random.Random(seed)
        self.core = Core(Store.open(folder, create=True, sync=False), Settings(folder), self._time)
        self.maker = AnswerMaker(self.core.store)

    def _time(self) -> int:
        return self.clock

    async def define(self) -> None:
        for sql in STREAMS:
            statement = parse_statement(sql)
            assert isinstance(statement, CreateStream)
            await self.core.appender.submit(Define("main", "main", statement.schema))

    async def publish(self, stream: str, count: int) -> None:
        chance = self.chance
        columns: dict[str, list[Any]] = {"id": [chance.randrange(12) for _ in range(count)]}
        columns["due"] = [self._instant() for _ in range(count)]
        if stream == "orders":
            columns["done"] = [chance.random() < 0.3 for _ in range(count)]
        elif stream == "tasks":
            columns["until"] = [self._instant() for _ in range(count)]
        else:
            columns["at"] = [
                from_micros(self.clock + chance.randrange(-30, 30) * MINUTE) for _ in range(count)
            ]
        request = pb.PublishRequest(stream=stream, arrow=ipc(pa.table(columns)))
        await publish(self.core, new_call(), request)

    async def fill(self) -> None:
        for stream in ("orders", "tasks", "events"):
            for _ in range(2):
                self.clock += self.chance.choice([0, 1, MINUTE, 7 * MINUTE])
                await self.publish(stream, self.chance.randrange(1, 9))

    def _instant(self) -> Any:
        if self.chance.random() < 0.1:
            return None
        near = self.chance.choice([0, 0, 1, -1, HOUR, -HOUR, self.chance.randrange(-DAY, DAY)])
        return from_micros(self.clock + near)

    def read(self) -> None:
        """Read the store as it is now; all views are of this position."""
        self.replica = Replica.open(Store.open(self.folder), Memory(1 << 24))

    def view(self, now: int) -> View:
        return View.at(self.replica, now)

    def answer(self, sql: str, view: View) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.maker.answer(
            view, Question.of_text(sql, view.state)
        ).table.to_pylist()
        return rows

    def now_of(self, sql: str, view: View) -> int | None:
        return self.maker.plan(view, Question.of_text(sql, view.state)).now

    def expected(self, sql: str, view: View) -> list[dict[str, Any]]:
        """Return the answer of the text with the instant in the place of NOW."""
        plan = self.maker.settle(
            self.maker.plan(view, Question.of_text(sql, view.state)), self.maker.work()
        )
        return self.answer(constant_text(sql, plan.now or 0), view)

    def difference(self, sql: str, view: View, copy: Mark | None) -> tuple[Difference, Chunk]:
        question = replace(Question.of_text(sql, view.state), ahead=True)
        plan = self.maker.plan(view, question)
        reason = WholeReason.FIRST if copy is None else WholeReason.NONE
        job = make_job(question, plan, Claim(copy), reason, NO_REPAIR, None)
        copier = copier_of(self.maker, plan, job)
        difference = copier.difference()
        if not difference.lacking:
            return difference, Chunk(None)
        return difference, Chunk(copier.renewed(plan, difference.job).piece(BEGINNING, 1 << 30))


NO_REPAIR = Repair(np.empty(0, np.int64), None)


@dataclass(frozen=True)
class Chunk:
    rows: CopyChunk | None

    def items(self) -> dict[int, tuple[int, int, bytes, dict[str, Any]]]:
        chunk = self.rows
        if chunk is None:
            return {}
        columns = (
            chunk.visible_from.tolist(),
            chunk.visible_until.tolist(),
            chunk.sort_keys.to_pylist(),
            chunk.rows.to_pylist(),
        )
        return dict(zip(chunk.ids.tolist(), zip(*columns, strict=True), strict=True))


def constant_text(sql: str, now: int) -> str:
    """Return a text with the instant in the place of NOW, except in its window."""
    constant = f"CAST('{format_instant(now)}' AS TIMESTAMP)"
    expressions, *window = re.split(r"(?=\bBEGIN NOW)", sql)
    return re.sub(r"\bNOW\b", constant, expressions) + "".join(window)


def visible(
    copy: dict[int, tuple[int, int, bytes, dict[str, Any]]], now: int
) -> list[dict[str, Any]]:
    """Return the rows that a client shows at an instant, in its order."""
    present = [
        (key, max(begin, 0), row_id, row)
        for row_id, (begin, until, key, row) in copy.items()
        if begin <= now < until
    ]
    present.sort(key=lambda item: item[:3])
    return [row for *_, row in present]


@pytest.mark.parametrize("seed", range(2))
async def test_an_answer_is_that_of_the_query_with_now_as_a_constant(
    tmp_path: Path, seed: int
) -> None:
    life = Life(tmp_path / "store", seed)
    await life.core.start()
    await life.define()
    engine = HandMadeEngine(life.core.store)
    sizes = set()
    for step in range(3):
        await life.fill()
        if step < 2 * seed:
            engine.step()
        life.read()
        for later in (0, 1, 30 * MINUTE, HOUR, DAY):
            view = life.view(life.clock + later)
            for sql in SLIDING + COMPUTED:
                answer = life.answer(sql, view)
                assert answer == life.expected(sql, view), (sql, later)
                sizes.add(len(answer))
    await life.core.stop()
    assert len(sizes) > 5


@pytest.mark.parametrize("seed", range(2))
async def test_a_copy_offline_has_the_answer_of_every_instant(tmp_path: Path, seed: int) -> None:
    """Copies of rows, and between two syncs also those of results."""
    life = Life(tmp_path / "store", seed)
    await life.core.start()
    await life.define()
    copies: dict[str, dict[int, Any]] = {sql: {} for sql in SLIDING + COMPUTED}
    marks: dict[str, Mark | None] = dict.fromkeys(copies)
    for _ in range(3):
        await life.fill()
        life.clock += life.chance.choice([0, MINUTE, 50 * MINUTE, 20 * HOUR])
        life.read()
        view = life.view(life.clock)
        for sql, copy in copies.items():
            difference, chunk = life.difference(sql, view, marks[sql])
            if difference.whole:
                copy.clear()
            for row_id in difference.removed.tolist():
                copy.pop(row_id, None)
            copy.update(chunk.items())
            mark = marks[sql] = difference.job.target
            now = mark.now or 0
            assert difference.row_count == sum(until > now for _, until, *_ in copy.values()), sql
            again, nothing = life.difference(sql, view, mark)
            assert again.nothing and nothing.rows is None, sql
            assert again.digest == difference.digest
            question = Question.of_text(sql, view.state)
            slides = by_rows(life.maker.plan(view, question))
            assert slides == (sql in SLIDING), sql
            assert visible(copy, now) == life.answer(sql, view), sql
            if "events" in sql:
                continue
            until = difference.good_until
            for later in (0, 1, 2, 30 * MINUTE, HOUR, HOUR + 1, DAY, 3 * DAY):
                if slides or until is None or now + later < until:
                    later_view = life.view(now + later)
                    assert visible(copy, now + later) == life.answer(sql, later_view), (sql, later)
    await life.core.stop()


def test_a_copy_without_a_begin_is_visible_from_ever() -> None:
    assert visible({1: (SINCE_EVER, 5, b"", {"a": 1})}, 4) == [{"a": 1}]
