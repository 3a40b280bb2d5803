"""Copies of base rows of several legs: the answer computed from them is the naive one, at each
instant; and what is not computed from them is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pytest

from psoup.errors import BadRequest
from querystem.base_rows import LegBaseRows, combines, obstacle
from querystem.join import JoinRoom
from querystem.language import bind_query
from querystem.query import Query
from tests.support.answers.copies import CopyWorld, TreeCopy, Values
from tests.support.answers.trees import ARRIVAL, EVENT, KEYED, TreeMaker
from tests.support.lengths import short_first


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CopyWorld]:
    opened = CopyWorld(tmp_path / "store", random.Random(request.node.name))
    yield opened
    opened.close()


@dataclass
class BaseRowsCopy(TreeCopy):
    """A client that has the rows of the legs and computes the answer."""

    @cached_property
    def leg_rows(self) -> LegBaseRows:
        streams = self.world.streams
        return LegBaseRows.of(self.query, [streams[leg.stream].schema for leg in self.query.legs])

    def answer(self, now: int | None) -> list[Values]:
        base_rows = super().answer(now)
        self.world.chance.shuffle(base_rows)
        arrays = [
            pa.array([values[place] for values in base_rows], column.type.arrow)
            for place, column in enumerate(self.leg_rows.query.columns)
        ]
        names = [column.name for column in self.leg_rows.query.columns]
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        answer = self.leg_rows.answer(batch, now, 1 << 20, JoinRoom())
        assert answer.schema.types == [column.type.arrow for column in self.query.columns]
        return [tuple(row.values()) for row in answer.to_pylist()]


def copy_of(world: CopyWorld, query: Query | str) -> BaseRowsCopy:
    if isinstance(query, str):
        schemas = {name: stream.schema for name, stream in world.streams.items()}
        query = bind_query(query, schemas.get)
    question = world.question(query)
    return BaseRowsCopy(world, replace(question, base_rows=True, unrefreshed=True))


# ---- anything


GROUPED = (
    "SELECT {t}.b, count(*) AS n, sum(t0.a) AS total FROM {f} {w} GROUP BY {t}.b",
    "SELECT count({t}.a) AS n, max(t0.b) AS most FROM {f} {w}",
)
ORDERED = (
    "SELECT DISTINCT t0.b, {t}.a FROM {f} {w}",
    "SELECT t0.a, {t}.b FROM {f} {w} ORDER BY {t}.b DESC LIMIT 4",
    "SELECT t0.a, {t}.a AS other, {t}.b FROM {f} {w}",
)


@dataclass(frozen=True)
class JoinTexts:
    """Draws texts of joins and queries inside queries over streams of one kind of time."""

    chance: random.Random
    streams: Sequence[str]

    def text(self) -> str:
        chance = self.chance
        items = [self._item(f"t{n}") for n in range(chance.randint(1, 3))]
        tables = items[0]
        for number, item in enumerate(items[1:], start=1):
            column = chance.choice("ab")
            link = f"t{number}.{column} = t{chance.randrange(number)}.{column}"
            if chance.random() < 0.4:
                tables += f" LEFT JOIN {item} ON {link}"
            else:
                tables += f" JOIN {item} ON {link}"
        conditions = chance.sample(self._conditions(), chance.randint(0, 2))
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        last = f"t{len(items) - 1}"
        # The oracle has another order of rows that are made of groups.
        select = chance.choice(GROUPED if "GROUP BY" in tables else (*GROUPED, *ORDERED))
        return select.format(t=last, f=tables, w=where)

    def _item(self, name: str) -> str:
        chance = self.chance
        if chance.random() < 0.2:
            grouped = "SELECT b, max(a) AS a FROM {} GROUP BY b"
            both = "SELECT a, b FROM {} UNION ALL SELECT a, b FROM {}"
            inner = chance.choice((grouped, both)).format(self._stream(""), self._stream(""))
            return f"({inner}) AS {name}"
        return self._stream(f" AS {name}")

    def _stream(self, alias: str) -> str:
        stream = self.chance.choice(self.streams)
        windows = ["RANGE 5 SECONDS", "RANGE 20 SECONDS", "UNBOUNDED", "ROWS 5"]
        if stream not in KEYED:
            windows += [
                "BEGIN NOW - 25 SECONDS END NOW - 3 SECONDS",
                "RANGE 20 SECONDS SLIDE 7 SECONDS",
            ]
        return f"{stream}{alias} WINDOW({self.chance.choice(windows)})"

    def _conditions(self) -> list[str]:
        inner = self._stream(" AS i")
        return [
            "t0.a > 1",
            f"EXISTS (SELECT 1 FROM {inner} WHERE i.a = t0.a)",
            f"t0.b NOT IN (SELECT i.b FROM {inner} WHERE i.a > 2)",
            f"t0.a >= (SELECT avg(i.a) FROM {inner})",
            f"t0.a = (SELECT max(i.a) FROM {inner} WHERE i.b = t0.b)",
        ]


def _live(world: CopyWorld, rounds: int) -> None:
    schemas = {name: stream.schema for name, stream in world.streams.items()}
    for _ in range(rounds):
        texts = JoinTexts(world.chance, list(world.chance.choice((EVENT, ARRIVAL))))
        trees = [TreeMaker.drawn(world.chance).result() for _ in range(2)]
        queries = [*trees, *(bind_query(texts.text(), schemas.get) for _ in range(4))]
        copies = []
        for query in filter(combines, queries):
            copy = copy_of(world, query)
            if obstacle(query):
                with pytest.raises(BadRequest, match="base rows of this query are not sent yet"):
                    copy.sync()
            else:
                copies.append(copy)
        cuts = world.chance.choice((0.0, 0.3))
        for _ in range(12 if copies else 0):
            copy = world.chance.choice(copies)
            for _ in range(world.chance.choice((0, 1, 2, 5))):
                world.happens([leg.stream for leg in copy.query.legs])
            copy.sync(cuts, world.chance.choice((60, 400, 1 << 20)))
            copy.check()


@pytest.mark.parametrize("seed", short_first(range(6)))
def test_oracle_answers_computed_from_base_rows(world: CopyWorld, seed: int) -> None:
    _live(world, 5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", short_first(range(40), 13))
def test_oracle_answers_computed_from_base_rows_for_long(world: CopyWorld, seed: int) -> None:
    _live(world, 20)
