"""One text bound with many rows of values: the queries of the rows bound one by one."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querystem.language import QueryError, bind_query, bind_rows
from querystem.query import Query
from querystem.query_json import query_form
from tests.querystem.language.support import lookup

TEXTS = [
    "SELECT symbol FROM trades WHERE amount > :p AND amount < :q",
    "SELECT symbol FROM trades WHERE size IN (:p, 3, :q) OR price = :p",
    "SELECT symbol FROM trades WHERE amount * :p > fee AND size > :q",
    "SELECT symbol FROM trades WHERE amount IS NOT DISTINCT FROM :p AND symbol <> :q",
    "SELECT symbol FROM trades WHERE amount BETWEEN :p AND -:q",
    "SELECT symbol FROM trades WHERE coalesce(:p, :q) = amount",
    "SELECT amount + :p AS x FROM trades WHERE fee > :q",
    "SELECT symbol FROM trades WHERE at >= :p AND day = :q",
    "SELECT symbol FROM trades WHERE (:p OR ok) AND :q IS NULL",
    "SELECT symbol FROM trades WHERE amount > :p LIMIT :q",
    "SELECT symbol FROM trades WHERE amount > :p REFRESH ON trades WHERE fee > :q",
]
decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-999, max_value=999)
values = (
    st.none()
    | st.integers(-3, 12)
    | st.sampled_from([0.0, -0.0, 2.5, 7.0, True, "a", "2026-11-16", datetime.date(2026, 11, 16)])
    | decimals.map(lambda value: round(value, 3))
    | st.sampled_from([Decimal(text) for text in ("1", "1.0", "1.00", "1E+5", "0.000", "-0.0")])
)
tables = st.lists(st.fixed_dictionaries({"p": values, "q": values}), min_size=1, max_size=6)


def alone(text: str, row: dict[str, Any]) -> Query | str:
    try:
        return bind_query(text, lookup, row)
    except QueryError as error:
        return error.reason


@given(st.sampled_from(TEXTS), tables)
def test_each_row_is_bound_as_it_would_be_alone(text: str, table: list[dict[str, Any]]) -> None:
    columns = {name: [row[name] for row in table] for name in ("p", "q")}
    outcomes = [alone(text, row) for row in table]
    refused = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if refused:
        with pytest.raises(QueryError) as caught:
            bind_rows(text, lookup, columns, len(table))
        assert caught.value.reason in refused
        return
    bound = bind_rows(text, lookup, columns, len(table))
    if bound.form is None:
        assert list(bound.queries) == outcomes
        return
    queries = [outcome for outcome in outcomes if isinstance(outcome, Query)]
    assert list(bound.keys) == [query.leg.predicate_key for query in queries]
    assert {query_form(query) for query in queries} == {bound.form}


def test_decimals_that_are_only_compared_are_bound_together() -> None:
    """However many precisions there are: each would take as long as a text of its own."""
    numbers = [Decimal(place) / 100 for place in range(-500, 500)]
    columns = {"p": numbers, "q": numbers[::-1]}
    looked_up: list[str] = []

    def counting(name: str) -> Any:
        looked_up.append(name)
        return lookup(name)

    bound = bind_rows(TEXTS[0], counting, columns, len(numbers))
    assert bound.form is not None and len(looked_up) == 1


def test_nothing_to_bind() -> None:
    assert bind_rows("SELECT symbol FROM trades", lookup, {}, 0).queries == []
    bound = bind_rows("SELECT symbol FROM trades", lookup, {}, 2)
    assert bound.form is not None and len(set(bound.keys)) == 1
    with pytest.raises(QueryError):
        bind_rows("SELEC symbol", lookup, {}, 0)
