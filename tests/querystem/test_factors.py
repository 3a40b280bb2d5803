"""What is said of a predicate's factors is what the query SteM does with them."""

from __future__ import annotations

import pytest

from querystem.expressions import Expression
from querystem.factors import Access, access_of, constants_of, factor_text, factors_of, operand_of
from querystem.index.formula import Every, Factor, formula_of
from querystem.language import CreateStream, bind_query, expression_text, parse_statement

SQL = (
    "CREATE STREAM t (symbol TEXT, price DOUBLE, size BIGINT, cost DECIMAL(10,2), day DATE, "
    "ok BOOLEAN, at TIMESTAMP) ORDERED BY at"
)


def factors(where: str) -> tuple[Factor, ...]:
    return factors_of(bound(where))


def bound(where: str) -> Expression:
    statement = parse_statement(SQL)
    assert isinstance(statement, CreateStream)
    return bind_query(f"SELECT size FROM t WHERE {where}", lambda _: statement.schema).leg.where


@pytest.mark.parametrize(
    ("where", "texts"),
    [
        ("price > 184.5", ["price > 184.5"]),
        ("price <= 3 AND price >= 1", ["price >= 1.0 AND price <= 3.0"]),
        ("size BETWEEN 3 AND 9", ["size >= 3 AND size < 10"]),
        ("size <> 4", ["size < 4", "size >= 5"]),
        ("size = 5 OR size = 5 AND ok", ["size = 5", "ok"]),
        ("size > 3 AND size < 2", ["FALSE"]),
        ("cost >= 1.25", ["cost >= 1.25"]),
        ("day = '2026-01-02'", ["day = '2026-01-02'"]),
        ("at < '2026-01-01 10:00'", ["at < '2026-01-01 10:00:00'"]),
        ("at > '9999-12-31 23:59:59.999999'", ["at > '9999-12-31 23:59:59.999999'"]),
        ("symbol = 'O''x' AND NOT (symbol LIKE '%b')",
         ["symbol = 'O''x'", "NOT (symbol LIKE '%b')"]),
        ("lower(symbol) IN ('a', 'b')", ["lower(symbol) = 'a'", "lower(symbol) = 'b'"]),
        ("(size + 1) * 2 % 3 = 1", ["((size + 1) * 2) % 3 = 1"]),
        ("CASE WHEN ok THEN size ELSE 1 END > price",
         ["CASE WHEN ok THEN size ELSE 1 END > price"]),
        ("ts - at <= INTERVAL '20.2' SECOND", ["ts - at <= INTERVAL '20200' MILLISECOND"]),
        ("ts - at > INTERVAL '-5' MINUTE", ["ts - at > INTERVAL '-5' MINUTE"]),
        ("ts - at >= INTERVAL '0' SECOND", ["ts - at >= INTERVAL '0' SECOND"]),
        ("ts - at = INTERVAL '1' DAY", ["ts - at = INTERVAL '1' DAY"]),
        ("at < TIMESTAMP '2026-01-01' + INTERVAL '10' HOUR", ["at < '2026-01-01 10:00:00'"]),
        ("at > ts - INTERVAL '1' HOUR", ["ts - INTERVAL '1' HOUR < at"]),
        ("TRUE", []),
    ],
)  # fmt: skip
def test_texts(where: str, texts: list[str]) -> None:
    assert sorted(map(factor_text, factors(where))) == sorted(texts)


@pytest.mark.parametrize(
    "where",
    ["price > 0.1", "size BETWEEN 3 AND 9", "cost < 2.5 AND cost >= -1", "day >= '2026-01-02'",
     "at BETWEEN '2026-01-01' AND '2026-01-02'", "symbol = 'a''b'", "ok AND price IS NULL",
     "coalesce(size, 0) + 1 > 2 OR length(symbol) = 3", "-size < -(size - 1)",
     "CAST(size AS DOUBLE) = price", "ts - at < INTERVAL '1' HOUR OR at + INTERVAL '1' DAY > ts",
     "extract(second FROM ts - at) * 2 > 5 AND (ts - at) * 1.5 <> INTERVAL '-1' WEEK",
     "ts - at >= INTERVAL '9223372036854775807' MICROSECOND"],
)  # fmt: skip
def test_a_text_binds_to_the_factor_it_is_of(where: str) -> None:
    for factor in factors(where):
        assert formula_of(bound(factor_text(factor))) == factor
    again = bound(expression_text(bound(where)))
    assert formula_of(again) == formula_of(bound(where))
    assert not isinstance(formula_of(again), Every) or len(factors(where)) > 1


def test_access_follows_the_number_of_constants() -> None:
    few = factors("price > 1 AND symbol = 'a' AND size % 2 = size")
    assert {access_of(factor, constants_of([factor])) for factor in few} == {
        Access.COMPARED,
        Access.EVALUATED,
    }
    prices = [factors(f"price > {number}")[0] for number in range(30)]
    texts = [factors(f"symbol = 's{number}'")[0] for number in range(30)]
    assert (constants_of(prices), constants_of(texts)) == (30, 30)
    assert access_of(prices[0], 30) is Access.SEARCHED
    assert access_of(texts[0], 30) is Access.LOOKED_UP
    assert access_of(factors("size = 5")[0], 30) is Access.LOOKED_UP
    assert len({operand_of(factor) for factor in prices}) == 1
    likes = [factors(f"NOT symbol LIKE '%{number}%'")[0] for number in range(30)]
    assert constants_of(likes) == 30 and operand_of(likes[0]) == operand_of(texts[0])
    assert access_of(likes[0], 30) is Access.LOOKED_UP
    assert access_of(likes[0], 3) is Access.COMPARED
