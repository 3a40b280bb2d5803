"""Many rows filled at once are the same queries as each row filled by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT, TIMESTAMP, Type, decimal_type
from querystem.language import QueryError, Template, prepare
from querystem.query_json import query_form, read_form
from tests.querystem.language.support import lookup

TYPES: dict[str, Type] = {"n": BIGINT, "m": BIGINT, "x": DOUBLE, "t": TEXT}
FACTORS = [
    "size = :n", "size > :m", "size = 3", "price > :x", "price < :n", "amount >= :x", "size = :x",
    "size BETWEEN :n AND :m", "size IN (:n, 3, :m)", "symbol = :t", "symbol LIKE :t", "ok",
    "NOT (size = :n AND price > :x)", "abs(size - :n) < :m", "symbol IS DISTINCT FROM :t",
    "(size = :n OR size = :m OR symbol = :t)", "coalesce(size, :n) <> 5", "price > -:x",
]  # fmt: skip

values = {
    "n": st.none() | st.integers(-2, 3) | st.integers(-(2**63), 2**63 - 1),
    "m": st.none() | st.integers(-2, 3),
    "x": st.none() | st.sampled_from([0.0, -0.0, 1.0, 2.5, float("nan"), float("inf"), 1e300]),
    "t": st.none() | st.sampled_from(["", "a", "it's", 'say "ä"', "\u2028", "%"]),
}
rows = st.lists(st.fixed_dictionaries(values), min_size=1, max_size=6)


def template_of(text: str, select: str = "symbol", clauses: str = "") -> Template:
    used = {name: type_ for name, type_ in TYPES.items() if f":{name}" in select + text + clauses}
    return prepare(f"SELECT {select} FROM trades WHERE {text} {clauses}", lookup, used)


def columns_of(template: Template, table: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in table] for name in template.parameters}


@given(st.lists(st.sampled_from(FACTORS), min_size=1, max_size=4), st.booleans(), rows)
def test_the_same_keys_and_form(factors: list[str], every: bool, table: list[Any]) -> None:
    template = template_of((" AND " if every else " OR ").join(factors))
    queries = [template.fill({name: row[name] for name in template.parameters}) for row in table]
    filled = template.fill_many(columns_of(template, table))
    if filled is None:
        assert not template.parameters or any(":" in factor for factor in factors)
        return
    form, keys = filled
    assert keys == [query.leg.predicate_key for query in queries]
    assert {query_form(query) for query in queries} == {form}
    for key in keys:
        read = read_form(form, (key,))
        assert (query_form(read), read.leg.predicate_key) == (form, key)


@pytest.mark.parametrize("text", [text for text in FACTORS if ":" in text])
def test_single_factors_are_taken_at_once(text: str) -> None:
    template = template_of(text)
    table = [{"n": 1, "m": 2, "x": 0.5, "t": "a"}, {"n": 2, "m": 1, "x": 1.5, "t": "b"}]
    at_once = template.fill_many(columns_of(template, table)) is not None
    assert at_once == ("NOT" not in text or " OR " in text or " AND " in text)


@pytest.mark.parametrize(
    ("select", "clauses"),
    [("size + :n AS a", ""), ("symbol", "ORDER BY size + :n"), ("symbol", "LIMIT :n"),
     ("symbol", "LIMIT 1 OFFSET :n"), ("count(size + :n) AS c", ""),
     ("count(*) AS c", "GROUP BY size % :n"), ("count(*) AS c", "HAVING count(*) > :n")],
)  # fmt: skip
def test_parameters_elsewhere_are_left_to_fill(select: str, clauses: str) -> None:
    template = template_of("size > :n", select, clauses)
    assert template.fill_many({"n": [1, 2]}) is None
    assert template_of("size > :n").fill_many({"n": []}) is None


def test_a_constant_that_swallows_its_neighbours_is_left_to_fill() -> None:
    template = prepare("SELECT size FROM trades WHERE ok AND :p", lookup, {"p": BOOLEAN})
    assert template.fill_many({"p": [True, False]}) is None


def test_what_fill_refuses_is_refused() -> None:
    with pytest.raises(QueryError, match="escapes nothing"):
        template_of("symbol LIKE :t").fill_many({"t": ["a", "a\\"]})
    for wrong in ({}, {"n": [1], "m": [2]}, {"m": [1]}):
        with pytest.raises(QueryError):
            template_of("size = :n").fill_many({**wrong, "q": [1]})
    typed = prepare(
        "SELECT size FROM trades WHERE amount = :p AND at > :a",
        lookup,
        {"p": decimal_type(4, 2), "a": TIMESTAMP},
    )
    with pytest.raises(QueryError):
        typed.fill_many({"p": ["x"], "a": [None]})
