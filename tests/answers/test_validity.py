"""Streams with a validity: at every instant an answer has the rows that are valid in its window,
and a copy that slides by itself has them while it is offline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from datastem.instants import DAY, HOUR, MINUTE, from_micros
from psoup.answers import Question, View
from psoup.answers.difference import Mark
from psoup.answers.difference.job import by_rows
from psoup.server.calls.publish import publish
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.answers.test_now import START, Life, visible
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

RETAIN = 2 * DAY
STREAMS = [
    "CREATE STREAM bookings (id BIGINT, room BIGINT, starts TIMESTAMP, ends TIMESTAMP)"
    " VALID FROM starts UNTIL ends RETAIN 2 DAYS",
    "CREATE STREAM moved (id BIGINT, room BIGINT, starts TIMESTAMP, ends TIMESTAMP) KEY (id)"
    " VALID FROM starts UNTIL ends RETAIN 2 DAYS",
    "CREATE STREAM rooms (room BIGINT, name TEXT)",
]
Row = dict[str, Any]
Rows = list[Row]
# What a window holds at NOW: a begin and an end, both included.
Ends = Callable[[int], tuple[int | None, int | None]]

WINDOWS: dict[str, Ends] = {
    "": lambda now: (now, now),
    "BEGIN NOW END NOW + 1 DAY": lambda now: (now, now + DAY),
    "BEGIN NOW + 1 HOUR END NOW + 2 HOURS": lambda now: (now + HOUR, now + 2 * HOUR),
    "RANGE 6 HOURS": lambda now: (now - 6 * HOUR + 1, now),
    "BEGIN NOW - 1 DAY END NOW - 1 HOUR": lambda now: (now - DAY, now - HOUR),
    "BEGIN '2023-11-14 22:13:20' END '2023-11-15'": lambda now: (START, 1_700_006_400_000_000),
    "BEGIN '2023-11-14' END NOW": lambda now: (1_699_920_000_000_000, now),
    "BEGIN NOW END '2023-11-16'": lambda now: (now, 1_700_092_800_000_000),
    "UNBOUNDED": lambda now: (None, None),
    "RANGE 6 HOURS SLIDE 1 HOUR": lambda now: (
        now - now % HOUR - 6 * HOUR + 1,
        now - now % HOUR,
    ),
    "DURING TODAY": lambda now: (now - now % DAY, now),
    "DURING LAST 3 HOURS": lambda now: (now - now % HOUR - 3 * HOUR, now - now % HOUR - 1),
}


@dataclass(frozen=True)
class Case:
    """A query, and what it answers given the rows that it is about."""

    sql: str
    answer: Callable[[Bookings, Ends], Rows]
    slides: bool = False
    windows: Sequence[str] = ("",)

    def texts(self) -> list[tuple[str, Ends]]:
        return [(f"{self.sql} {window}".strip(), WINDOWS[window]) for window in self.windows]


@dataclass(frozen=True)
class Bookings:
    """All rows of the streams that were accepted, and the instant at which they are asked about."""

    log: dict[str, Rows]
    now: int

    def valid(self, stream: str, ends: Ends) -> Rows:
        """Return the rows that are valid at an instant of a window, in the order of the store."""
        rows = [row for row in self.log[stream] if row["stamp"] <= self.now]
        if stream == "moved":
            newest = {row["id"]: row for row in rows}
            rows = [row for row in rows if newest[row["id"]] is row and not row["deleted"]]
        begin, last = ends(self.now)
        return [row for row in rows if _meets(row, begin, last) and _end(row) > self.now - RETAIN]


def _end(row: Row) -> int:
    return 1 << 60 if row["ends"] is None else int(row["ends"])


def _meets(row: Row, begin: int | None, last: int | None) -> bool:
    """Return True if the row is valid at an instant of the window."""
    first = row["starts"] if begin is None else max(row["starts"], begin)
    return bool(first < (_end(row) if last is None else min(_end(row), last + 1)))


def _plain(stream: str) -> Callable[[Bookings, Ends], Rows]:
    return lambda all_, ends: [
        {"id": row["id"], "room": row["room"]} for row in all_.valid(stream, ends)
    ]


def _later(all_: Bookings, ends: Ends) -> Rows:
    rows = sorted(all_.valid("bookings", ends), key=lambda row: -row["starts"])
    return [{"id": row["id"]} for row in rows if row["room"] < 3]


def _counts(all_: Bookings, ends: Ends) -> Rows:
    rooms = [row["room"] for row in all_.valid("bookings", ends)]
    return [{"room": room, "n": rooms.count(room)} for room in sorted(set(rooms))]


def _named(all_: Bookings, ends: Ends) -> Rows:
    names = [(row["room"], row["name"]) for row in all_.log["rooms"] if row["stamp"] <= all_.now]
    return [
        {"id": row["id"], "name": name}
        for row in all_.valid("moved", ends)
        for room, name in names
        if room == row["room"]
    ]


def _free(all_: Bookings, ends: Ends) -> Rows:
    booked = {row["room"] for row in all_.valid("moved", ends)}
    rooms = [row for row in all_.log["rooms"] if row["stamp"] <= all_.now]
    return [{"name": row["name"]} for row in rooms if row["room"] not in booked]


def _both(all_: Bookings, ends: Ends) -> Rows:
    begin, last = ends(all_.now)
    return [
        {"a": a["id"], "b": b["id"]}
        for a in all_.valid("bookings", ends)
        for b in all_.valid("moved", ends)
        if a["room"] == b["room"] and _meets(_common(a, b), begin, last)
    ]


def _three(all_: Bookings, ends: Ends) -> Rows:
    begin, last = ends(all_.now)
    return [
        {"a": a["id"], "b": b["id"], "c": c["id"]}
        for a in all_.valid("moved", ends)
        for b in all_.valid("moved", ends)
        for c in all_.valid("moved", ends)
        if a["id"] < b["id"] < c["id"] and _meets(_common(_common(a, b), c), begin, last)
    ]


def _common(row: Row, other: Row) -> Row:
    """Return the validity that two rows have in common."""
    return {
        "starts": max(row["starts"], other["starts"]),
        "ends": min(_end(row), _end(other)),
    }


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (0, 2, 3))]
ALL_WINDOWS = tuple(WINDOWS)
TEXTS = [
    Case("SELECT id, room FROM bookings", _plain("bookings"), True, ALL_WINDOWS),
    Case("SELECT id, room FROM moved", _plain("moved"), True, ALL_WINDOWS),
    Case("SELECT id FROM bookings WHERE room < 3 ORDER BY starts DESC", _later, True, ALL_WINDOWS),
    Case("SELECT room, count(*) AS n FROM bookings GROUP BY room", _counts, windows=ALL_WINDOWS),
    Case("SELECT m.id, r.name FROM moved AS m, rooms AS r WHERE m.room = r.room", _named),
    Case(
        "SELECT r.name FROM rooms AS r LEFT JOIN moved AS m ON m.room = r.room WHERE m.id IS NULL",
        _free,
    ),
    Case("SELECT name FROM rooms WHERE room NOT IN (SELECT room FROM moved)", _free),
    Case("SELECT a.id AS a, b.id AS b FROM bookings AS a, moved AS b WHERE a.room = b.room", _both),
    Case("SELECT q.id, q.room FROM (SELECT id, room FROM bookings) AS q", _plain("bookings"), True),
    Case(
        "SELECT id, room FROM bookings UNION ALL SELECT id, room FROM moved WHERE FALSE",
        _plain("bookings"),
    ),
]
CASES = [(text, ends, case) for case in TEXTS for text, ends in case.texts()]


class BookedLife(Life):
    """A store with bookings, and a list of all rows that it has accepted."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.log: dict[str, Rows] = {"bookings": [], "moved": [], "rooms": []}

    async def define(self) -> None:
        for sql in STREAMS:
            statement = parse_statement(sql)
            assert isinstance(statement, CreateStream)
            await self.core.appender.submit(Define("main", "main", statement.schema))

    async def fill(self) -> None:
        for stream in ("bookings", "moved", "rooms", "moved"):
            self.clock += self.chance.choice([1, MINUTE, 7 * MINUTE])
            await self.publish(stream, self.chance.randrange(1, 9))

    async def publish(self, stream: str, count: int) -> None:
        rows = [self._row(stream) for _ in range(count)]
        self.log[stream] += rows
        names = {"rooms": ["room", "name"]}.get(stream, ["id", "room", "starts", "ends"])
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in names}
        for name in {"starts", "ends"} & columns.keys():
            columns[name] = [None if at is None else from_micros(at) for at in columns[name]]
        if stream == "moved":
            columns["_op"] = ["delete" if row["deleted"] else "row" for row in rows]
        table = pa.table(
            columns,
            pa.schema([(n, _TYPES.get(n, pa.timestamp("us", "UTC"))) for n in columns]),
        )
        await publish(self.core, new_call(), pb.PublishRequest(stream=stream, arrow=ipc(table)))

    def _row(self, stream: str) -> Row:
        chance = self.chance
        room = chance.randrange(5)
        if stream == "rooms":
            return {"room": room, "name": f"room {room}", "stamp": self.clock}
        starts = self.clock + chance.choice(
            [0, 0, 1, -1, HOUR, -HOUR, chance.randrange(-3 * DAY, 2 * DAY)]
        )
        lasts = chance.choice([1, MINUTE, HOUR, 6 * HOUR, DAY, 9 * DAY, None])
        return {
            "id": chance.randrange(9),
            "room": room,
            "starts": starts,
            "ends": None if lasts is None else starts + lasts,
            "stamp": self.clock,
            "deleted": chance.random() < 0.2,
        }

    def all_at(self, now: int) -> Bookings:
        return Bookings(self.log, now)

    def as_of(self, sql: str, view: View, instant: int) -> Rows:
        question = replace(Question.of_text(sql, view.state), as_of=instant)
        rows: Rows = self.maker.answer(view, question).table.to_pylist()
        return rows


_TYPES = {"id": pa.int64(), "room": pa.int64(), "name": pa.string(), "_op": pa.string()}


def _sorted(rows: Rows) -> list[str]:
    return sorted(map(str, rows))


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_answer_has_the_rows_that_are_valid_in_its_window(
    tmp_path: Path, seed: int
) -> None:
    life = BookedLife(tmp_path / "store", seed)
    await life.core.start()
    await life.define()
    engine = HandMadeEngine(life.core.store)
    sizes, instants = set(), []
    for step in range(2):
        await life.fill()
        if step < seed:
            engine.step()
        life.read()
        for later in (0, HOUR, 3 * DAY):
            now = life.clock + later
            view = life.view(now)
            for sql, ends, case in CASES:
                answer = life.answer(sql, view)
                expected = case.answer(life.all_at(now), ends)
                is_ordered = "ORDER BY" in sql or "," not in sql
                assert _sorted(answer) == _sorted(expected), (sql, later)
                assert not is_ordered or [r.get("id") for r in answer] == [
                    r.get("id") for r in expected
                ], sql
                sizes.add(len(answer))
        instants.append(life.clock)
        life.clock += HOUR
    # As of earlier instants: what was booked then, and known then.
    view = life.view(life.clock)
    for instant in instants:
        for sql, ends, case in CASES:
            expected = case.answer(life.all_at(instant), ends)
            assert _sorted(life.as_of(sql, view, instant)) == _sorted(expected), sql
    await life.core.stop()
    assert len(sizes) > 7


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_copy_offline_has_the_rows_of_every_instant(tmp_path: Path, seed: int) -> None:
    life = BookedLife(tmp_path / "store", seed)
    await life.core.start()
    await life.define()
    copies: dict[str, dict[int, Any]] = {sql: {} for sql, *_ in CASES}
    marks: dict[str, Mark | None] = dict.fromkeys(copies)
    for _ in range(3):
        await life.fill()
        life.clock += life.chance.choice([0, MINUTE, 50 * MINUTE, 20 * HOUR])
        life.read()
        view = life.view(life.clock)
        for sql, ends, case in CASES:
            copy = copies[sql]
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
            slides = by_rows(life.maker.plan(view, Question.of_text(sql, view.state)))
            assert slides == case.slides, sql
            assert visible(copy, now) == life.answer(sql, view), sql
            until = difference.good_until
            for later in (1, 30 * MINUTE, HOUR, DAY, 3 * DAY):
                if slides or until is None or now + later < until:
                    expected = case.answer(life.all_at(now + later), ends)
                    assert _sorted(visible(copy, now + later)) == _sorted(expected), (sql, later)
    await life.core.stop()
