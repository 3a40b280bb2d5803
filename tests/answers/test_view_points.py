"""Views with REFRESH: they are answered as their queries in FROM are, whatever comes when, and as
the naive evaluation has it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from datastem.instants import SECOND
from datastem.schema import StreamSchema
from querystem.language import CreateView, bind_query, bind_view, parse_statement
from querystem.query import Query
from querystem.views import ViewDefinition
from tests.support.answers.copies import TreeCopy
from tests.support.answers.refreshing import RefreshWorld, streams_of

VIEWS = {
    "paced": "SELECT a, b FROM early WHERE a > 1 REFRESH EVERY 3 SECONDS",
    "pairs": "SELECT e.a, l.b FROM early AS e, late AS l WHERE e.a = l.a REFRESH EVERY 4 SECONDS",
    "rest": "SELECT a FROM {paced} EXCEPT ALL SELECT a FROM late REFRESH ON early WHERE a > 2",
    "counted": "SELECT b, count(*) AS n FROM {pairs} GROUP BY b REFRESH EVERY 5 SECONDS",
    "clocked": "SELECT a, b FROM some RANGE 20 SECONDS REFRESH EVERY 7 SECONDS",
}
QUERIES = (
    "SELECT a, b FROM {paced} ORDER BY a, b",
    "SELECT a, count(*) AS n FROM {rest} GROUP BY a REFRESH EVERY 5 SECONDS",
    "SELECT x.a, y.b FROM {paced} AS x, {pairs} AS y WHERE x.a = y.a ORDER BY x.a, y.b",
    "SELECT b, n FROM {counted} WHERE n > 1 ORDER BY b",
    "SELECT x.b, y.n FROM {counted} AS y, {paced} AS x WHERE x.b = y.b ORDER BY x.b, y.n"
    " REFRESH EVERY 12 SECONDS",
    "SELECT a, b FROM {clocked} ORDER BY a, b",
    "SELECT count(*) AS n FROM {pairs} REFRESH ON early WHERE a > 3",
)


class Catalog(dict[str, StreamSchema | ViewDefinition]):
    """The streams of a world, and the views over them."""

    def __init__(self, world: RefreshWorld) -> None:
        super().__init__({name: stream.schema for name, stream in world.streams.items()})
        for name, text in VIEWS.items():
            sql = f"CREATE VIEW {name} AS {_through(text)}"
            statement = parse_statement(sql)
            assert isinstance(statement, CreateView)
            self[name] = bind_view(sql, statement, self.get)

    def both(self, text: str) -> tuple[Query, Query]:
        """A query over views, and the query with their texts in their places."""
        return bind_query(_through(text), self.get), bind_query(_written_out(text), self.get)


def _through(text: str) -> str:
    return text.format(**{name: name for name in VIEWS})


def _written_out(text: str) -> str:
    for name in reversed(VIEWS):
        for alias in (f"{{{name}}} AS ", f"{{{name}}}"):
            named = f"({VIEWS[name]}) AS " + ("" if alias.endswith(" AS ") else name)
            text = text.replace(alias, named)
    return text


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RefreshWorld]:
    opened = RefreshWorld(tmp_path / "store", random.Random(request.node.callspec.params["seed"]))
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(2))
def test_oracle_views_with_refresh(world: RefreshWorld, seed: int) -> None:
    catalog = Catalog(world)
    pairs = [catalog.both(text) for text in QUERIES]
    for _ in range(10):
        _happens(world, [query for query, _ in pairs])
        instant = world.clock - world.chance.randint(0, 30) * SECOND
        for through, written in pairs:
            for as_of, today in ((None, False), (instant, False), (instant, True)):
                question = world.asked(through, as_of, today)
                answer = world.found(question)
                assert answer == world.found(world.asked(written, as_of, today))
                assert answer == world.told(question)


@pytest.mark.parametrize("seed", [3])
def test_oracle_copies_of_views_with_refresh(world: RefreshWorld, seed: int) -> None:
    catalog = Catalog(world)
    queries = [catalog.both(text)[0] for text in QUERIES]
    questions = [world.asked(query, None, False) for query in queries]
    copies = [TreeCopy(world, question) for question in questions]
    for _ in range(8):
        _happens(world, queries)
        for question, copy in zip(questions, copies, strict=True):
            copy.sync(0.0, 1 << 20)
            expected = world.told(question)
            assert (copy.mark.now, copy.answer(copy.mark.now)) == (expected.now, expected.answer)


def _happens(world: RefreshWorld, queries: Sequence[Query]) -> None:
    names = sorted({name for query in queries for name in streams_of(query)})
    for _ in range(world.chance.choice((1, 3, 6))):
        world.happens(names)
