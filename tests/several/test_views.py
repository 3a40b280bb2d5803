"""The definition of a view: an answer is unchanged when its name is replaced by its query.

Random queries are asked with their inner queries written out, and with views in their place, which
stand inside each other as the queries do.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from datastem.schema import StreamSchema
from querystem.language import CreateView, bind_query, bind_view, parse_statement
from querystem.query import Query
from querystem.views import MAX_VIEWS_DEEP, ViewDefinition
from tests.oracle.comparing import Values, difference
from tests.oracle.several.chance import Seeded
from tests.oracle.several.texts import Block, Inner, Part, Reference, Whole, our_text
from tests.oracle.trees import World
from tests.oracle.written import WrittenWindow
from tests.support.lengths import scaled
from tests.support.several import pure_answer
from tests.support.several_cases import Case, drawn_case, is_mixed


@dataclass
class Catalog:
    """The streams of a case, and views over them."""

    names: dict[str, StreamSchema | ViewDefinition]
    definitions: list[str] = field(default_factory=list)

    def define(self, text: str) -> str:
        """The name of a new view."""
        name = f"v{len(self.definitions)}"
        sql = f"CREATE VIEW {name} AS {text}"
        statement = parse_statement(sql)
        assert isinstance(statement, CreateView)
        self.names[name] = bind_view(sql, statement, self.names.get)
        self.definitions.append(sql)
        return name

    def bind(self, text: str) -> Query:
        return bind_query(text, self.names.get)

    # ---- views in the place of inner queries

    def with_views(self, whole: Whole) -> Whole:
        return replace(whole, blocks=tuple(map(self._block, whole.blocks)), names=())

    def _block(self, block: Block) -> Block:
        subqueries = tuple(
            replace(subquery, query=self.with_views(subquery.query)) for subquery in block.asked
        )
        return replace(block, parts=tuple(map(self._part, block.parts)), asked=subqueries)

    def _part(self, part: Part) -> Part:
        if isinstance(part, Reference):
            return part
        return replace(part, name=self.define(our_text(self.with_views(part.query))))


def spelled_out(whole: Whole, around: WrittenWindow | None = None) -> Whole:
    """The query with the window of each reference at the reference: a common window reaches a view,
    and does not reach a query in FROM."""
    window = whole.window or around
    blocks = tuple(_block(block, block.window or window) for block in whole.blocks)
    names = tuple((name, spelled_out(inner)) for name, inner in whole.names)
    return replace(whole, blocks=blocks, names=names, window=None)


def _block(block: Block, window: WrittenWindow | None) -> Block:
    subqueries = tuple(
        replace(subquery, query=spelled_out(subquery.query)) for subquery in block.asked
    )
    parts = tuple(_part(part, window) for part in block.parts)
    return replace(block, parts=parts, asked=subqueries, window=None)


def _part(part: Part, window: WrittenWindow | None) -> Part:
    if isinstance(part, Inner):
        return replace(part, query=spelled_out(part.query))
    if part.lookup or part.window is not None or window is None or not window.text:
        return part
    return replace(part, window=window)


def check(case: Case) -> int:
    """Checks a case; gives the number of views that it has."""
    if is_mixed(case):
        return 0
    whole, catalog = spelled_out(case.whole), Catalog(dict(case.schemas))
    plain = bind_query(our_text(whole), case.schemas.get)
    text = our_text(catalog.with_views(whole))
    through = catalog.bind(text)
    deep = catalog.bind(f"SELECT * FROM {catalog.define(text)}")
    about = "\n".join([*catalog.definitions, text, repr(case)])
    for world in (case.world, replace(case.world, as_of=case.as_of)):
        expected = _answer(plain, world)
        problem = difference(expected, _answer(through, world), ordered=True)
        assert not problem, f"{problem}\n{about}"
        problem = difference(expected, _answer(deep, world), ordered=False)
        assert not problem, f"{problem}\n{about}"
    return len(catalog.definitions)


def _answer(query: Query, world: World) -> list[Values]:
    """The answer, which must be the naive one."""
    answer = pure_answer(query, world)
    problem = difference(world.answer(query), answer, ordered=False)
    assert not problem, problem
    return answer


@pytest.mark.parametrize("seed", [0])
def test_a_view_s_name_or_its_text(seed: int) -> None:
    views = 0
    count = scaled(60)
    for number in range(count):
        views += check(drawn_case(Seeded(random.Random(f"views {seed}/{number}"))))
    assert views > count * 2 // 3, "views stand in most queries"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 21))
def test_a_view_s_name_or_its_text_soak(seed: int) -> None:
    for number in range(1000):
        check(drawn_case(Seeded(random.Random(f"views {seed}/{number}"))))


# ---- windows of the query and of the view

_INNER = ("", "RANGE 9 SECONDS", "BEGIN NOW - 12 SECONDS END NOW - 3 SECONDS", "ROWS 4",
          "ROWS 1 PARTITION BY k", "RANGE 8 SECONDS SLIDE 3 SECONDS")  # fmt: skip
_OUTER = ("", "RANGE 5 SECONDS", "BEGIN NOW - 9 SECONDS END NOW", "ROWS 2",
          "RANGE 6 SECONDS SLIDE 4 SECONDS")  # fmt: skip


def test_both_windows_hold_and_the_inner_one_chooses_first() -> None:
    """Also through a chain of views that only pass rows on."""
    chance, compared = random.Random(17), 0
    for number in range(60):
        case = drawn_case(Seeded(random.Random(f"windows {number}")))
        stream = next(iter(case.world.streams.values())).schema
        if stream.retain is not None:
            continue
        inner, outer = chance.choice(_INNER), chance.choice(_OUTER)
        chosen = f"SELECT k FROM {stream.name} WHERE k > 0 {inner}"
        catalog = Catalog(dict(case.schemas))
        name = catalog.define(chosen)
        for _ in range(chance.randint(0, MAX_VIEWS_DEEP - 1)):
            name = catalog.define(f"SELECT k FROM {name}")
        over = f" WINDOW({outer})" if outer else ""
        plain = catalog.bind(f"SELECT x.k FROM ({chosen}) AS x{over} WHERE x.k < 3")
        through = catalog.bind(f"SELECT k FROM {name} WHERE k < 3 {outer}")
        for world in (case.world, replace(case.world, as_of=case.as_of)):
            expected = _answer(plain, world)
            problem = difference(expected, _answer(through, world), ordered=True)
            assert not problem, (problem, chosen, outer, case)
            compared += bool(expected)
    assert compared > 20, "there is something to compare"
