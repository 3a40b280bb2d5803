"""Random queries over streams with a validity: calendar windows, policies, patches, REFRESH, joins
and queries inside queries beside DuckDB, which gets the rows that each reference holds; copies of
the same queries, offline, beside the answers."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from datastem.calendar import Unit
from datastem.instants import DAY, HOUR, MINUTE, format_instant, to_micros
from psoup.access.principal import ANYONE, Principal
from psoup.answers import Question, View
from psoup.answers.difference import Mark
from psoup.answers.difference.job import by_rows
from psoup.answers.planning.question import RegisteredQuery, in_zones, read_texts, texts_of
from psoup.server.calls.define import define as define_statement
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.v1 import psoup_pb2 as pb
from querystem.language import QueryError
from querystem.language.tokens.literals import read_timestamp
from tests.answers.test_now import Life, visible
from tests.oracle.calendar import naive_begin
from tests.support.lengths import short_first
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

# Clocks change in Madrid half an hour later, and a week later in Lord Howe.
START = to_micros(read_timestamp("2024-03-31 00:30"))
RETAIN = 2 * DAY
_COLUMNS = "(id BIGINT, room BIGINT, starts TIMESTAMP, ends TIMESTAMP)"
STATEMENTS = (
    f"CREATE STREAM bookings {_COLUMNS} VALID FROM starts UNTIL ends RETAIN 2 DAYS",
    f"CREATE STREAM moved {_COLUMNS} KEY (id) VALID FROM starts UNTIL ends RETAIN 2 DAYS",
    "CREATE STREAM rooms (room BIGINT, name TEXT)",
    "CREATE POLICY own ON bookings USING (room <> claim('room'))",
    "CREATE POLICY begun ON moved USING (starts <= NOW)",
)
READERS = (ANYONE, Principal("main", "main", claims={"room": 2}))
ZONES = ("UTC", "Europe/Madrid", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Sao_Paulo")
_TIMESTAMP = pa.timestamp("us", "UTC")
_TYPES = {"id": pa.int64(), "room": pa.int64(), "name": pa.string(),
          "starts": _TIMESTAMP, "ends": _TIMESTAMP}  # fmt: skip
_FOR_EVER = "TIMESTAMP '2200-01-01'"

Row = dict[str, Any]
Rows = list[Row]


# ---- what is asked


@dataclass(frozen=True)
class WindowText:
    """A window, and its first and last instant at NOW, None if it is UNBOUNDED."""

    text: str
    ends: Callable[[int], tuple[int, int] | None]

    def held(self, stream: str, now: int) -> str:
        """Return the rows of a stream that the window holds, for DuckDB."""
        ends = self.ends(now)
        if ends is None:
            return stream
        first, last = map(_literal, ends)
        valid = f"starts <= {last} AND coalesce(ends, {_FOR_EVER}) > {first} AND {first} <= {last}"
        return f"(SELECT * FROM {stream} WHERE {valid})"

    def meet(self, now: int) -> str:
        """Return the condition that rows a and b are valid together in the window, for DuckDB."""
        begins, ends = ["a.starts", "b.starts"], [f"coalesce({r}.ends, {_FOR_EVER})" for r in "ab"]
        if (bounds := self.ends(now)) is not None:
            begins.append(_literal(bounds[0]))
            ends.append(_literal(bounds[1] + 1))
        return f"greatest({', '.join(begins)}) < least({', '.join(ends)})"


PRESENT = WindowText("", lambda now: (now, now))


@dataclass(frozen=True)
class Case:
    """A text, and the same for DuckDB, in which `{bookings0}` stands for the rows of that stream
    which the first window holds, and `{meet}` for their being valid together."""

    sql: str
    duck: str
    windows: tuple[WindowText, ...]
    period: int | None = None

    def for_duck(self, now: int) -> str:
        held = {
            f"{stream}{number}": window.held(stream, now)
            for number, window in enumerate(self.windows)
            for stream in ("bookings", "moved")
        }
        text = self.duck.format(**held, meet=self.windows[0].meet(now))
        return re.sub(r"\bNOW\b", _literal(now), text)


def drawn_window(chance: random.Random) -> WindowText:
    hours, begin, end = (
        chance.choice([1, 2, 6, 24, 40]),
        *sorted(chance.choices(range(-40, 40), k=2)),
    )
    length, at = hours * HOUR, START + begin * HOUR
    slide = chance.choice([1, 5]) * HOUR
    count, unit, zone = (
        chance.randrange(2),
        chance.choice([Unit.HOUR, Unit.DAY]),
        chance.choice(ZONES),
    )
    word = f"LAST {unit.name}" if count else f"THIS {unit.name}"
    return chance.choice(
        [
            PRESENT,
            WindowText("UNBOUNDED", lambda now: None),
            WindowText(f"RANGE {hours} HOURS", lambda now: (now - length + 1, now)),
            WindowText(
                f"RANGE {hours} HOURS SLIDE {slide // HOUR} HOURS",
                lambda now: (now - now % slide - length + 1, now - now % slide),
            ),
            WindowText(
                f"BEGIN NOW {_signed(begin)} END NOW {_signed(end)}",
                lambda now: (now + begin * HOUR, now + end * HOUR),
            ),
            WindowText(f"BEGIN '{format_instant(at)}' END NOW", lambda now: (at, now)),
            WindowText(
                f"BEGIN '{format_instant(at)}' END '{format_instant(at + length)}'",
                lambda now: (at, at + length),
            ),
            WindowText(
                f"DURING {word} AT TIME ZONE '{zone}'",
                lambda now: (
                    naive_begin(unit, zone, now, count),
                    naive_begin(unit, zone, now) - 1 if count else now,
                ),
            ),
        ]
    )


def _signed(hours: int) -> str:
    return f"{'-' if hours < 0 else '+'} {abs(hours)} HOURS"


def _literal(instant: int) -> str:
    return f"(TIMESTAMP '1970-01-01' + to_microseconds({instant}))"


ONE = (
    "SELECT id, room, starts, ends FROM {s} WHERE {where}",
    "SELECT room, count(*) AS n, min(starts) AS a, max(ends) AS b FROM {s} WHERE {where}"
    " GROUP BY room",
    "SELECT DISTINCT room FROM {s} WHERE {where}",
    "SELECT id, starts FROM {s} WHERE {where} ORDER BY starts DESC, id, ends LIMIT 3",
)
TWO = (
    "SELECT a.id AS a, b.id AS b, b.ends FROM {s} AS a, {t} AS b WHERE a.{where} AND {on}",
    "SELECT count(*) AS n FROM {s} AS a, {t} AS b WHERE a.{where} AND {on}",
    "SELECT a.room, count(*) AS n FROM {s} AS a, {t} AS b WHERE a.{where} AND {on} GROUP BY a.room",
)
# Of what is valid at NOW.
PRESENT_ONLY = (
    "SELECT r.name, m.id, m.ends FROM rooms AS r LEFT JOIN {s} AS m"
    " ON m.room = r.room AND m.{where}",
    "SELECT r.name, m.id FROM {s} AS m LEFT JOIN rooms AS r ON m.room = r.room WHERE m.{where}",
    "SELECT name FROM rooms WHERE room IN (SELECT room FROM {s} WHERE {where})",
    "SELECT name FROM rooms WHERE room NOT IN (SELECT room FROM {s} WHERE {where})",
    "SELECT x.id FROM {s} AS x WHERE (SELECT count(*) FROM {t} AS y WHERE y.room = x.room"
    " AND y.starts < x.starts) > 0 AND x.{where}",
    "SELECT q.n FROM (SELECT room, count(*) AS n FROM {s} WHERE {where} GROUP BY room) AS q"
    " WHERE q.n > 1",
)
TOGETHER = (
    "a.room = b.room",
    "a.room = b.room AND a.id < b.id",
    "a.id = b.id",
    "a.starts < b.ends AND a.ends > b.starts",
)
# After the name of a row and a dot, or alone.
CONDITIONS = (
    "room < 3",
    "room = 1",
    "ends IS NULL",
    "ends IS NOT NULL",
    "starts < NOW - INTERVAL '1' HOUR",
    "starts > NOW - INTERVAL '3' HOUR",
    "ends - NOW < INTERVAL '5' HOUR",
)


def drawn_case(chance: random.Random) -> Case:
    streams = {name: chance.choice(["bookings", "moved"]) for name in "st"}
    held = {name: f"{{{stream}0}}" for name, stream in streams.items()}
    parts = {"where": chance.choice(CONDITIONS), "on": chance.choice(TOGETHER)}
    window, period = drawn_window(chance), chance.choice([None, None, None, HOUR])
    refresh = "" if period is None else " REFRESH EVERY 1 HOUR"
    kind = chance.randrange(4)
    if kind == 0:
        other, op = (
            drawn_window(chance),
            chance.choice(["UNION", "EXCEPT", "INTERSECT", "UNION ALL"]),
        )
        texts = [
            f"SELECT room FROM {stream}{f' WINDOW({part.text})' if part.text else ''} WHERE {where}"
            for stream, part, where in zip(
                streams.values(), (window, other), (parts["where"], "room > 0"), strict=True
            )
        ]
        duck = (
            f"SELECT room FROM {{{streams['s']}0}} WHERE {parts['where']} {op}"
            f" SELECT room FROM {{{streams['t']}1}} WHERE room > 0"
        )
        return Case(f" {op} ".join(texts), duck, (window, other))
    text, window = (
        (chance.choice(ONE), window),
        (chance.choice(TWO), window),
        (chance.choice(PRESENT_ONLY), PRESENT),
    )[kind - 1]
    duck = text.format(**held, **{**parts, "on": f"{parts['on']} AND {{meet}}"})
    sql = text.format(**streams, **parts)
    return Case(f"{sql} {window.text}{refresh}".strip(), duck, (window,), period)


# ---- what is there


class BookedLife(Life):
    """A store with bookings, and a log of all rows that it has accepted."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.clock = START
        self.log: dict[str, Rows] = {"bookings": [], "moved": [], "rooms": []}

    async def define(self) -> None:
        for sql in STATEMENTS:
            await define_statement(self.core, new_call(), pb.DefineRequest(sql=sql))

    async def registered(self, count: int) -> dict[Case, bytes]:
        """Register random cases, and return their handles."""
        handles: dict[Case, bytes] = {}
        while len(handles) < count:
            case = drawn_case(self.chance)
            try:
                reply, *_ = await register(self.core, new_call(), pb.RegisterRequest(sql=case.sql))
            except QueryError as error:
                assert error.reason in ("WINDOW_PAST_RETENTION", "NOT_YET"), (case.sql, error)
            else:
                handles[case] = reply.handles[0]
        return handles

    async def fill(self) -> None:
        for stream in ("rooms", *self.chance.choices(("bookings", "moved"), k=3)):
            self.clock += self.chance.choice([0, 1, MINUTE, 7 * MINUTE])
            await self._send(
                stream, [self._row(stream) for _ in range(self.chance.randrange(1, 9))]
            )
        # Other ends for some of the current rows.
        current = {row["id"]: row for row in self.log["moved"]}
        ends = {
            id_: row["starts"] + self.chance.choice([1, HOUR, 3 * DAY])
            for id_, row in current.items()
            if not row["deleted"] and self.chance.random() < 0.4
        }
        if ends:
            patches = [
                {**current[id_], "ends": at, "stamp": self.clock} for id_, at in ends.items()
            ]
            await self._send("moved", patches, "patch", ["id", "ends"])

    async def _send(
        self, stream: str, rows: Rows, kind: str = "row", names: list[str] | None = None
    ) -> None:
        self.log[stream] += rows
        names = names or (
            ["room", "name"] if stream == "rooms" else ["id", "room", "starts", "ends"]
        )
        arrays = {name: pa.array([row[name] for row in rows], _TYPES[name]) for name in names}
        if stream == "moved":
            arrays["_op"] = pa.array(["delete" if row["deleted"] else kind for row in rows])
        request = pb.PublishRequest(stream=stream, arrow=ipc(pa.table(arrays)))
        await publish(self.core, new_call(), request)

    def edges(self, count: int) -> list[int]:
        """Return instants from now on at which a validity begins or ends, or one passes a begin of
        a window of some hours."""
        ends = [row[end] for name in ("bookings", "moved") for row in self.log[name]
                for end in ("starts", "ends") if row[end] is not None]  # fmt: skip
        shifted = [end + hours * HOUR for end in ends for hours in (0, 0, 1, 2, 6, 24, 40)]
        return self.chance.choices([at for at in shifted if at >= self.clock], k=count)

    def _row(self, stream: str) -> Row:
        chance, room = self.chance, self.chance.randrange(5)
        if stream == "rooms":
            return {"room": room, "name": f"room {room}", "stamp": self.clock}
        near = chance.choice([0, 0, 1, -1, HOUR, -HOUR, chance.randrange(-3 * DAY, 2 * DAY)])
        starts = self.clock + near
        lasts = chance.choice([1, MINUTE, HOUR, 6 * HOUR, DAY, 9 * DAY, None])
        return {
            "id": chance.randrange(9),
            "room": room,
            "starts": starts,
            "ends": None if lasts is None else starts + lasts,
            "stamp": self.clock,
            "deleted": chance.random() < 0.2,
        }

    def ask(self, case: Case, handle: bytes, view: View, reader: Principal) -> Rows:
        source = RegisteredQuery("main", handle)
        query = read_texts(self.maker.memo, texts_of(view.state, source, "", False))
        question = Question(source, in_zones(query, view.state.zones), reader)
        rows: Rows = self.maker.answer(view, question).table.to_pylist()
        return rows


class Duck:
    """The rows that were accepted until an instant, and that a reader may see at `present`."""

    def __init__(self, log: dict[str, Rows], now: int, present: int, reader: Principal) -> None:
        self._now = now
        self._connection = duckdb.connect(":memory:", config={"threads": 1})
        for stream, rows in log.items():
            accepted = [row for row in rows if row["stamp"] <= now]
            if stream == "moved":
                newest = {row["id"]: row for row in accepted}
                accepted = [row for row in newest.values() if not row["deleted"]]
            if stream != "rooms":
                accepted = [r for r in accepted if (r["ends"] or present) > present - RETAIN]
            if reader is not ANYONE:
                accepted = [r for r in accepted if _may_see(stream, r, present)]
            names = ["room", "name"] if stream == "rooms" else ["id", "room", "starts", "ends"]
            types = [pa.timestamp("us") if _TYPES[n] == _TIMESTAMP else _TYPES[n] for n in names]
            columns = [[row[name] for row in accepted] for name in names]
            table = pa.table(list(map(pa.array, columns, types)), names)
            self._connection.register("accepted", table)
            self._connection.execute(f"CREATE TABLE {stream} AS SELECT * FROM accepted")

    def answer(self, case: Case) -> Rows:
        rows: Rows = self._connection.sql(case.for_duck(self._now)).to_arrow_table().to_pylist()
        return rows


def _may_see(stream: str, row: Row, present: int) -> bool:
    """Return what the policies say of a row, for the second reader."""
    if stream == "bookings":
        return bool(row["room"] != 2)
    return stream != "moved" or bool(row["starts"] <= present)


def _sorted(rows: Rows) -> list[str]:
    """Return rows as texts, in one order; DuckDB's timestamps are without a zone."""
    plain = [{name: _without_zone(value) for name, value in row.items()} for row in rows]
    return sorted(map(str, plain))


def _without_zone(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


@dataclass
class HeldCopy:
    """A copy of a client, with what the last sync said of it."""

    rows: dict[int, Any] = field(default_factory=dict)
    mark: Mark | None = None

    def sync(self, life: Life, sql: str, view: View) -> int | None:
        """Sync, and return the instant until which the copy is good."""
        difference, chunk = life.difference(sql, view, self.mark)
        if difference.whole:
            self.rows.clear()
        for row_id in difference.removed.tolist():
            self.rows.pop(row_id, None)
        self.rows.update(chunk.items())
        self.mark = difference.job.target
        again, nothing = life.difference(sql, view, self.mark)
        assert again.nothing and nothing.rows is None, sql
        until: int | None = difference.good_until
        return until


@pytest.mark.parametrize("seed", short_first(range(20)))
async def test_random_queries_over_validities(tmp_path: Path, seed: int) -> None:
    life = BookedLife(tmp_path / "store", seed)
    await life.core.start()
    await life.define()
    engine, handles = HandMadeEngine(life.core.store), await life.registered(16)
    copies, sizes = {case: HeldCopy() for case in handles}, set()
    for step in range(2):
        await life.fill()
        if life.chance.random() < 0.7:
            engine.step()
        life.read()
        for now in (life.clock, *life.edges(3), life.clock + 3 * DAY):
            ducks: dict[Any, Duck] = {}
            for case, handle in handles.items():
                at = now if case.period is None else now - now % case.period
                if at < life.log["rooms"][0]["stamp"]:
                    continue
                for number, reader in enumerate(READERS):
                    duck = ducks.get((at, number)) or Duck(life.log, at, now, reader)
                    ducks[at, number] = duck
                    rows = life.ask(case, handle, life.view(now), reader)
                    what = seed, step, now - life.clock, number, case.sql
                    assert _sorted(rows) == _sorted(duck.answer(case)), what
                    sizes.add(len(rows))
        for case, copy in copies.items():
            until = copy.sync(life, case.sql, view := life.view(life.clock))
            slides = by_rows(life.maker.plan(view, Question.of_text(case.sql, view.state)))
            for later in (0, 1, HOUR, DAY, 3 * DAY):
                now = life.clock + later
                if slides or until is None or now < until:
                    answer = life.answer(case.sql, life.view(now))
                    assert visible(copy.rows, now) == answer, (seed, step, later, case.sql)
        life.clock += life.chance.choice([MINUTE, 50 * MINUTE, 20 * HOUR])
    await life.core.stop()
    assert len(sizes) > 5
