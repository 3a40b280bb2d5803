"""A text filled into the template of others is the same query as that text bound by itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastem.schema import StreamSchema
from querystem.language import QueryError, TemplateCache, bind_query
from querystem.query_json import query_form
from tests.querystem.language.support import TRADES, lookup, schema_of
from tests.querystem.language.test_golden import GOLDEN, texts_of
from tests.querystem.language.test_queries import selects

FACTORS = [
    "size = #", "size>#", "# < size", "price >= #", "price <> -#", "price < - #", "symbol = #",
    "symbol <> #", "amount > #", "fee = #", "at > #", "day = #", "ok = #", "size BETWEEN # AND #",
    "size NOT BETWEEN -# AND #", "price IN (#, #, 3)", "symbol IN (#, #)", "size IN (#, price)",
    "symbol LIKE #", "NOT (size = # OR size = # AND price > #)", "NOT size = #", "size + # > #",
    "size - # < price", "# = #", "abs(size) > #", "trades.size <= #", "(size) = #", "size = (#)",
    "CASE WHEN size = # THEN price > # ELSE ok END", "coalesce(size, #) <> #", "size = # = #",
    "symbol = # #", "size IS DISTINCT FROM #", "date_trunc(#, at) = at", "CAST(# AS BIGINT) = size",
    "size = #AND ok", "size IS NULL", "nothing = #", "size = 'x''y' OR size = #",
    "size = .5 AND price = #",
]  # fmt: skip
CONSTANTS = [
    "0", "1", "2", "007", "42", "999999999999999999", "9223372036854775807", "9223372036854775808",
    "1.5", "2.0", "0.0", "12345678.123456", "1e5", ".5", "3.", "'a'", "''", "'it''s'", "'ä'", "'5'",
    "'2026-11-16'", "'2026-11-16 09:00'", "'--'", "'/*'", "'a\\b'", "NULL", "TRUE", '"size"', ":p",
    "5 -- five\n", "/* ' */ 5", "0x1F", "1_000", "-3", "'\"'",
]  # fmt: skip
POOLS = [
    ["0", "1", "5", "12", "007"], ["0.0", "2.0", "1.5", "7.1234"], ["'a'", "'b c'", "''", "'5'"],
]  # fmt: skip
REST = [
    "", "LIMIT #", "ORDER BY size LIMIT # OFFSET #", "RANGE # MINUTES", "ROWS #", "RANGE #",
    "BEGIN # END NOW", "RANGE 1 HOUR REFRESH EVERY # SECONDS", "ORDER BY #",
    "RANGE 1 DAY REFRESH ON alarms WHERE level > # AND kind = #", ";",
]  # fmt: skip


def outcome(bind, text: str):
    """Return the query with all that is derived from it, or the refusal in full."""
    try:
        query = bind(text)
    except QueryError as problem:
        return type(problem), problem.reason, problem.span, str(problem)
    return query, query_form(query), query.predicate_keys, query.columns, query.reads


def check(texts: list[str], shapes: TemplateCache) -> None:
    for text in texts:
        alone = outcome(lambda text: bind_query(text, lookup), text)
        assert outcome(lambda text: shapes.bind("main", text, lookup), text) == alone


@st.composite
def alike(draw: st.DrawFn) -> list[str]:
    """Texts that differ in their constants: in those under WHERE, and now and then anyhow."""
    factors = draw(st.lists(st.sampled_from(FACTORS), min_size=1, max_size=2))
    where = draw(st.sampled_from([" AND ", " OR "])).join(factors)
    clauses = draw(st.sampled_from(REST)).replace("#", draw(st.sampled_from(["1", "5", "'2026'"])))
    pattern = f"SELECT symbol, size, 5 AS five FROM trades WHERE {where} {clauses}"
    pools = [st.sampled_from(draw(st.sampled_from(POOLS))) for _ in range(pattern.count("#"))]
    texts = []
    for _ in range(draw(st.integers(4, 8))):
        constants = [draw(pool) for pool in pools]
        if constants and draw(st.integers(0, 4)) == 0:
            constants[-1] = draw(st.sampled_from(CONSTANTS))
        first, *pieces = pattern.split("#")
        texts.append(first + "".join(map("".join, zip(constants, pieces, strict=True))))
    return texts


@pytest.mark.parametrize("factor", FACTORS)
def test_every_factor_takes_constants_as_if_it_were_alone(factor: str) -> None:
    for pool in POOLS:
        texts = [
            f"SELECT symbol FROM trades WHERE {factor}".replace("#", constant) for constant in pool
        ]
        check(texts, TemplateCache())


@settings(max_examples=40)
@given(alike(), st.sampled_from([4, 1000]))
def test_texts_alike_are_bound_as_each_by_itself(texts: list[str], most: int) -> None:
    check(texts * 2, TemplateCache(most))


@settings(max_examples=20)
@given(st.lists(selects(), min_size=1, max_size=4))
def test_queries_of_any_form_are_bound_as_each_by_itself(texts: list[str]) -> None:
    check(texts * 3, TemplateCache())


@pytest.mark.parametrize("name", ["queries.txt", "query_errors.txt", "refresh_errors.txt"])
def test_what_is_refused_is_refused_alike(name: str) -> None:
    check(texts_of(GOLDEN / name) * 3, TemplateCache())


@pytest.mark.parametrize(
    "where",
    [
        "size = # AND price > #", "# <= size", "price < -#", "symbol = '#'", "size IN (#, 3)",
        "size BETWEEN # AND # OR NOT symbol = '#'", "trades.size <> #.5",
    ],
)  # fmt: skip
def test_the_third_text_alike_is_not_parsed(where: str) -> None:
    shapes = TemplateCache()
    pattern = f"SELECT size FROM trades WHERE {where} AND length(venue) = 7 LIMIT 10 RANGE 5 HOURS"
    for number in range(4):
        text = pattern.replace("#", str(number))
        cached = shapes.find("main", text, lookup)
        assert (cached is not None) == (number == 3)
        assert shapes.bind("main", text, lookup) == bind_query(text, lookup)


def test_another_limit_is_another_query() -> None:
    shapes = TemplateCache()
    for limit in [1, 1, 1, 2, 3, 1, 2]:
        text = f"SELECT size FROM trades WHERE size > {limit} LIMIT {limit}"
        assert shapes.bind("main", text, lookup).limit == limit


def test_a_stream_defined_anew_is_looked_at_anew() -> None:
    replacement = schema_of("CREATE STREAM trades (size DOUBLE, symbol BIGINT)")
    streams: dict[str, StreamSchema] = {"trades": TRADES}
    shapes = TemplateCache()
    for schema in (TRADES, replacement, TRADES):
        streams["trades"] = schema
        for number in range(4):
            text = f"SELECT symbol FROM trades WHERE size = {number}"
            query = shapes.bind("main", text, streams.get)
            assert query == bind_query(text, streams.get)


def test_no_more_is_kept_than_allowed() -> None:
    shapes = TemplateCache(8)
    for limit in range(50):
        shapes.bind("main", f"SELECT size FROM trades WHERE size > 1 LIMIT {limit}", lookup)
    assert len(shapes) <= 8
