"""A text bound once and filled often is the same as the text with its values."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    TEXT,
    TIMESTAMP,
    Type,
    decimal_type,
)
from querystem.expressions import Call, Expression, Literal, Scalar
from querystem.language import QueryError, Template, bind_query, prepare
from querystem.query_json import query_from_json, query_to_json
from tests.querystem.language.support import bind, lookup, where

UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 11, 16, 9, tzinfo=UTC)


def template(text: str, **types: Type | None) -> Template:
    return prepare(f"SELECT symbol FROM trades WHERE {text}", lookup, types)


@pytest.mark.parametrize(
    ("text", "values", "literal"),
    [
        ("size > :p", {"p": 5}, "size > 5"),
        (":p < size", {"p": 5.0}, "size > 5"),
        ("price > :p", {"p": 184}, "price > 184"),
        ("price > :p * 2", {"p": 1.5}, "price > 1.5 * 2"),
        ("price > -:p", {"p": 1.5}, "price > -1.5"),
        ("amount > :p", {"p": Decimal("1.5")}, "amount > 1.5"),
        ("symbol = :p", {"p": "it's"}, "symbol = 'it''s'"),
        ("symbol LIKE :p", {"p": "a%"}, "symbol LIKE 'a%'"),
        ("at > :p", {"p": MOMENT}, "at > '2026-11-16 09:00'"),
        ("at > :p", {"p": "2026-11-16 09:00"}, "at > '2026-11-16 09:00'"),
        ("at > :p", {"p": datetime.date(2026, 11, 16)}, "at > '2026-11-16'"),
        ("day > :p", {"p": datetime.date(2026, 11, 16)}, "day > '2026-11-16'"),
        ("ok = :p", {"p": True}, "ok = TRUE"),
        ("ok AND :p", {"p": True}, "ok"),
        ("size IN (:p, 3, :q)", {"p": 3, "q": 1}, "size IN (1, 3)"),
        ("size IN (:p, :p)", {"p": 3}, "size = 3"),
        ("size = :p OR size = 1", {"p": 1}, "size = 1"),
        ("size = :p", {"p": None}, "size = NULL"),
        ("size = :low AND price < :limit", {"low": 1, "limit": 2.5}, "price < 2.5 AND size = 1"),
        (
            "CASE WHEN ok THEN :p ELSE price END > 1",
            {"p": 1},
            "CASE WHEN ok THEN 1 ELSE price END > 1",
        ),
        ("CAST(:p AS BIGINT) = size", {"p": "5"}, "size = 5"),
        ("CAST(:p AS BIGINT) = size", {"p": "five"}, "size = NULL"),
    ],
)
def test_filled_is_the_same_as_written(text: str, values: dict[str, Scalar], literal: str) -> None:
    assert where(text, **values) == where(literal)


def test_outputs_take_parameters_too() -> None:
    query = bind("SELECT price * :factor AS x FROM trades", factor=2)
    assert query == bind("SELECT price * 2 AS x FROM trades")


@pytest.mark.parametrize(
    ("window", "values", "written"),
    [
        ("RANGE :p", {"p": 90}, "RANGE 90"),
        ("RANGE :p MINUTES", {"p": 1.5}, "RANGE 1.5 MINUTES"),
        ("RANGE :p SLIDE :q HOURS", {"p": Decimal(90000), "q": 2}, "RANGE 25 HOURS SLIDE 2 HOURS"),
        ("RANGE INTERVAL :p", {"p": "10 MINUTES"}, "RANGE 10 MINUTES"),
        ("RANGE :p", {"p": 1e-6}, "RANGE 1 MICROSECOND"),
        ("BEGIN :p END NOW", {"p": MOMENT}, "BEGIN '2026-11-16 09:00' END NOW"),
        ("BEGIN :p END NOW", {"p": "2026-11-16T10:00+01:00"}, "BEGIN '2026-11-16 09:00' END NOW"),
        ("BEGIN :p END :p", {"p": datetime.date(2026, 11, 16)},
         "BEGIN '2026-11-16' END '2026-11-16'"),
        ("BEGIN NOW - :p MINUTES END NOW", {"p": 5}, "BEGIN NOW - 5 MINUTES END NOW"),
        ("BEGIN ROW :p END ROW LAST - :q", {"p": 3, "q": 1}, "BEGIN ROW 3 END ROW LAST - 1"),
        ("ROWS :rows SLIDE :q PARTITION BY symbol", {"rows": 5, "q": 2},
         "ROWS 5 SLIDE 2 PARTITION BY symbol"),
        ("REFRESH EVERY :p MINUTES", {"p": 5}, "REFRESH EVERY 5 MINUTES"),
        ("RANGE :p REFRESH EVERY :p", {"p": 5}, "RANGE 5 REFRESH EVERY 5"),
        ("ROWS :p REFRESH ON alarms WHERE level > :p AND kind = :q", {"p": 5, "q": "x"},
         "ROWS 5 REFRESH ON alarms WHERE level > 5 AND kind = 'x'"),
    ],
)  # fmt: skip
def test_windows_take_parameters_too(window: str, values: dict[str, Scalar], written: str) -> None:
    text = "SELECT symbol FROM trades WHERE size > 1"
    query = bind(f"{text} {window}", **values)
    assert query == bind(f"{text} {written}")
    assert query_from_json(query_to_json(query)) == query


@pytest.mark.parametrize(
    ("window", "value", "reason"),
    [
        ("RANGE :p", -1, "BAD_VALUE"),
        ("RANGE :p", None, "BAD_VALUE"),
        ("RANGE :p", True, "BAD_VALUE"),
        ("RANGE :p", float("nan"), "BAD_VALUE"),
        ("RANGE :p", 0, "BAD_WINDOW"),
        ("RANGE :p", 1e-7, "BAD_LITERAL"),
        ("RANGE :p", 1e300, "BAD_LITERAL"),
        ("RANGE :p", "10 MINUTES", "SYNTAX"),
        ("RANGE 10 :p", 5, "SYNTAX"),
        ("RANGE 10 :p", "MINUTES", "SYNTAX"),
        ("RANGE :p DAYS", 31, "WINDOW_PAST_RETENTION"),
        ("RANGE 30 DAYS REFRESH EVERY :p", 31, "WINDOW_PAST_RETENTION"),
        ("ROWS 5 REFRESH EVERY :p DAYS", 31, "WINDOW_PAST_RETENTION"),
        ("ROWS :p", 1.5, "BAD_WINDOW"),
        ("ROWS :p", 0, "BAD_WINDOW"),
        ("ROWS :p", "5", "SYNTAX"),
        ("ROWS 5 PARTITION BY :p", "symbol", "SYNTAX"),
        ("BEGIN :p END NOW", "yesterday", "BAD_LITERAL"),
        ("BEGIN :p END NOW", 5, "SYNTAX"),
        ("BEGIN NOW END :p", MOMENT, ""),
        ("BEGIN '2026-11-17' END :p", MOMENT, "BAD_WINDOW"),
        ("REFRESH EVERY :p", 0, "BAD_REFRESH"),
    ],
)
def test_values_that_no_window_takes(window: str, value: Scalar, reason: str) -> None:
    text = f"SELECT symbol FROM trades {window}"
    if not reason:
        bind(text, p=value)
        return
    with pytest.raises(QueryError) as caught:
        bind(text, p=value)
    assert (caught.value.reason, caught.value.line) == (reason, 1)
    assert ":" in caught.value.excerpt


def test_one_template_has_many_windows() -> None:
    prepared = prepare(
        "SELECT symbol FROM trades RANGE :p REFRESH EVERY :q", lookup, {"p": BIGINT, "q": DOUBLE}
    )
    for p, q in ((1, 2.0), (60, 0.5)):
        written = bind(f"SELECT symbol FROM trades RANGE {p} REFRESH EVERY {q}")
        assert prepared.fill({"p": p, "q": q}) == written
    with pytest.raises(QueryError) as caught:
        prepared.fill({"p": 1, "q": 0.0})
    assert caught.value.column == 50


def test_columns_are_known_before_the_values() -> None:
    prepared = prepare("SELECT :p AS x, size FROM trades", lookup, {"p": decimal_type(5, 1)})
    assert [str(column.type) for column in prepared.columns] == ["DECIMAL(5,1)", "BIGINT"]
    assert prepared.fill({"p": 7}).columns == prepared.columns


def constants_of(expression: Expression) -> list[Literal]:
    if isinstance(expression, Call):
        return [constant for arg in expression.args for constant in constants_of(arg)]
    return [expression] if isinstance(expression, Literal) else []


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.datetimes().map(lambda moment: moment.replace(tzinfo=UTC)),
    st.decimals(min_value=1 - 10**8, max_value=10**8 - 1, places=2),
)
def test_any_value_survives_the_bound_form(size, price, symbol, at, amount) -> None:
    text = "size = :size AND price = :price AND symbol = :symbol AND at = :at AND amount = :amount"
    types: dict[str, Type | None] = {
        "size": BIGINT,
        "price": DOUBLE,
        "symbol": TEXT,
        "at": TIMESTAMP,
        "amount": decimal_type(10, 2),
    }
    values = {"size": size, "price": price, "symbol": symbol, "at": at, "amount": amount}
    query = template(text, **types).fill(values)
    assert query_from_json(query_to_json(query)) == query
    stored = {constant.value for constant in constants_of(query.leg.where)}
    assert stored == {*values.values()}


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (BIGINT, "5"),
        (BIGINT, 1.5),
        (BIGINT, True),
        (BIGINT, 2**63),
        (DOUBLE, 2**53 + 1),
        (decimal_type(4, 2), Decimal("1.555")),
        (decimal_type(4, 2), Decimal("100")),
        (decimal_type(4, 2), Decimal("NaN")),
        (decimal_type(38, 0), 10**38),
        (TEXT, 5),
        (TIMESTAMP, "2026-11-16"),
        (TIMESTAMP, datetime.date(2026, 11, 16)),
        (DATE, MOMENT),
        (BOOLEAN, 1),
        (BIGINT, b"5"),
    ],
)
def test_a_value_of_another_type_is_refused(type_: Type, value) -> None:
    prepared = prepare("SELECT :p AS x FROM trades", lookup, {"p": type_})
    with pytest.raises(QueryError) as caught:
        prepared.fill({"p": value})
    assert caught.value.reason in ("BAD_VALUE", "BAD_LITERAL")


@pytest.mark.parametrize(
    ("type_", "value", "constant"),
    [
        (DOUBLE, 5, 5.0),
        (BIGINT, 5.0, 5),
        (decimal_type(4, 2), 5, Decimal("5.00")),
        (decimal_type(38, 0), 2**70, Decimal(2**70)),
        (TIMESTAMP, datetime.datetime(2026, 11, 16, 9), MOMENT),
        (TIMESTAMP, None, None),
        (None, None, None),
    ],
)
def test_a_value_that_fits_exactly_is_taken(type_: Type | None, value, constant) -> None:
    prepared = prepare(
        "SELECT CAST(:p AS TEXT) AS x, size = :p AS y FROM trades", lookup, {"p": BIGINT}
    )
    assert prepared.fill({"p": 1}).columns == prepared.columns
    prepared = prepare(
        "SELECT coalesce(:p, :p, NULL, CAST(NULL AS TEXT)) AS x FROM trades", lookup, {"p": None}
    )
    assert prepared.fill({"p": None}).columns == prepared.columns
    if type_ is not None:
        prepared = prepare("SELECT :p AS x FROM trades", lookup, {"p": type_})
        assert prepared.fill({"p": value}).outputs[0].expression == Literal(constant, type_)


def test_names_must_meet() -> None:
    for values in ({}, {"p": 1, "q": 2}, {"q": 1}):
        with pytest.raises(QueryError) as caught:
            bind_query("SELECT * FROM trades WHERE size = :p", lookup, values)
        assert caught.value.reason == "UNKNOWN_PARAMETER"
        with pytest.raises(QueryError) as caught:
            template("size = :p", p=BIGINT).fill(values)
        assert caught.value.reason == "UNKNOWN_PARAMETER"


def test_a_bad_pattern_or_time_is_refused_when_filled() -> None:
    with pytest.raises(QueryError, match="escapes nothing"):
        template("symbol LIKE :p", p=TEXT).fill({"p": "a\\"})
    with pytest.raises(QueryError, match="not a TIMESTAMP"):
        template("at > :p", p=TEXT).fill({"p": "noon"})


def test_parameter_types_are_checked_when_bound() -> None:
    with pytest.raises(QueryError) as caught:
        template("size > :p", p=TEXT)
    assert (caught.value.reason, caught.value.line) == ("TYPE_MISMATCH", 1)


def test_without_parameters_the_query_is_ready() -> None:
    prepared = template("size > 1")
    assert prepared.fill({}) is prepared.query
