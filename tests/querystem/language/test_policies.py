"""CREATE POLICY and DROP POLICY: what is refused, the types of claims, and claims filled in."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, decimal_type
from querystem.expressions import predicate_key
from querystem.language import (
    CreatePolicy,
    DropPolicy,
    QueryError,
    bind_policy,
    bind_query,
    expression_text,
    filled_policy,
    parse_statement,
    policy_sql,
)
from querystem.language.statements.policies import ClaimValue
from querystem.views import ViewDefinition

ORDERS = StreamSchema(
    "orders",
    (
        Column("region", TEXT),
        Column("n", BIGINT),
        Column("price", decimal_type(6, 2)),
        Column("weight", DOUBLE),
        Column("at", TIMESTAMP),
        Column("day", DATE),
        Column("open", BOOLEAN),
    ),
)
EU = ViewDefinition("eu", "SELECT region FROM orders", (Column("region", TEXT),))


def _lookup(name: str) -> StreamSchema | ViewDefinition | None:
    sources: dict[str, StreamSchema | ViewDefinition] = {"orders": ORDERS, "eu": EU}
    return sources.get(name)


def _filled(condition: str, claims: Mapping[str, ClaimValue]) -> str:
    sql = f"CREATE POLICY mine ON orders USING ({condition})"
    statement = parse_statement(sql)
    assert isinstance(statement, CreatePolicy)
    return expression_text(filled_policy(bind_policy(sql, statement, _lookup).where, claims))


def test_statements_say_which_policy_of_which_stream() -> None:
    statement = parse_statement("create policy Mine on Orders using ( (n = 1) /* ) */ OR open )")
    assert isinstance(statement, CreatePolicy)
    assert (statement.name, statement.stream) == ("mine", "orders")
    assert statement.text == " (n = 1) /* ) */ OR open "
    assert parse_statement(policy_sql("mine", "orders", statement.text)) == statement.__class__(
        **{
            **{name: getattr(statement, name) for name in statement.__slots__},
            "begin": 36,
        }
    )
    dropped = parse_statement("DROP POLICY mine ON orders")
    assert isinstance(dropped, DropPolicy) and dropped.stream == "orders"


@pytest.mark.parametrize(
    "condition, claims, filled",
    [
        ("region = claim('r')", {"r": "EU"}, "region = 'EU'"),
        ("region = claim('r')", {}, "region = NULL"),
        ("region = claim('r')", {"r": 5}, "region = NULL"),
        ("n = claim('n')", {"n": 5}, "n = 5"),
        ("n = claim('n')", {"n": "5"}, "n = NULL"),
        ("n = claim('n')", {"n": True}, "n = NULL"),
        ("n = claim('n')", {"n": 2**63}, "n = NULL"),
        ("price < claim('p')", {"p": 1.5}, "price < 1.50"),
        ("price < claim('p')", {"p": 1.555}, "price < NULL"),
        ("price < claim('p')", {"p": 12345}, "price < NULL"),
        ("weight < claim('w')", {"w": 2}, "weight < 2.0"),
        ("weight < claim('w')", {"w": 10**400}, "weight < NULL"),
        ("at > claim('t')", {"t": "when?"}, "at > NULL"),
        ("day = claim('d')", {"d": "2026-01-02"}, "day = '2026-01-02'"),
        ("open OR claim('all')", {"all": True}, "TRUE"),
        ("open OR claim('all')", {"all": "yes"}, "open OR NULL"),
        ("n IN (1, claim('n'))", {"n": 7}, "n IN (1, 7)"),
        ("region LIKE claim('p')", {"p": "a%"}, "region LIKE 'a%'"),
        ("region LIKE claim('p') OR open", {"p": "a\\"}, "FALSE"),
        ("region = claim('x') OR n = claim('x')", {"x": 3}, "n = 3 OR region = NULL"),
    ],
)
def test_claims_have_the_types_of_their_use_and_what_does_not_fit_is_null(
    condition: str, claims: Mapping[str, ClaimValue], filled: str
) -> None:
    assert _filled(condition, claims) == filled


def test_a_policy_with_its_claims_is_the_predicate_of_a_query_with_the_values() -> None:
    sql = "CREATE POLICY mine ON orders USING (region = claim('r') AND n > claim('n') + 1)"
    statement = parse_statement(sql)
    assert isinstance(statement, CreatePolicy)
    where = filled_policy(bind_policy(sql, statement, _lookup).where, {"r": "EU", "n": 4})
    query = bind_query("SELECT * FROM orders WHERE n > 4 + 1 AND 'EU' = region", _lookup)
    assert predicate_key(where) == query.predicate_keys[0]


@given(
    st.dictionaries(
        st.sampled_from(["r", "n", "p", "w", "t", "d", "o"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    )
)
def test_no_claim_makes_a_policy_fail(claims: dict[str, ClaimValue]) -> None:
    _filled(
        "region = claim('r') AND n = claim('n') AND price = claim('p') AND weight = claim('w')"
        " AND at = claim('t') AND day = claim('d') AND open = claim('o')"
        " AND region LIKE claim('r')",
        claims,
    )


@pytest.mark.parametrize(
    "sql, message",
    [
        (
            "CREATE POLICY p ON orders USING (regio = claim('r'))",
            """line 1, column 34: there is no column regio in orders
  CREATE POLICY p ON orders USING (regio = claim('r'))
                                   ^^^^^
hint: did you mean region?""",
        ),
        (
            "CREATE POLICY p ON eu USING (region = 'EU')",
            """line 1, column 20: eu is a view; policies stand on streams
  CREATE POLICY p ON eu USING (region = 'EU')
                     ^^
hint: create it on the streams of the view: it holds whichever way their rows are read""",
        ),
        (
            "CREATE POLICY p ON order_ USING (n = 1)",
            """line 1, column 20: there is no stream order_
  CREATE POLICY p ON order_ USING (n = 1)
                     ^^^^^^
hint: create it with CREATE STREAM, or look at the list of streams""",
        ),
        (
            "CREATE POLICY p ON orders USING (claim('x') IS NULL)",
            """line 1, column 34: nothing here gives claim('x') a type
  CREATE POLICY p ON orders USING (claim('x') IS NULL)
                                   ^^^^^^^^^^
hint: give it one: CAST(claim('x') AS TEXT)""",
        ),
        (
            "CREATE POLICY p ON orders USING (region = claim(region))",
            """line 1, column 43: claim takes the name of one claim, in single quotes
  CREATE POLICY p ON orders USING (region = claim(region))
                                            ^^^^^^^^^^^^^
hint: write claim('region')""",
        ),
        (
            "CREATE POLICY p ON orders\nUSING (n IN (SELECT n FROM orders))",
            """line 2, column 8: a query in USING: not yet supported
  USING (n IN (SELECT n FROM orders))
         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
hint: a policy decides for each row by itself whether it is shown""",
        ),
        (
            "CREATE POLICY p ON orders USING (n = :n)",
            """line 1, column 39: :n has no value
  CREATE POLICY p ON orders USING (n = :n)
                                        ^
hint: a policy has no parameters: write claim('name') for a value of the caller""",
        ),
        (
            "CREATE POLICY p ON orders USING (n)",
            """line 1, column 34: USING needs BOOLEAN, not BIGINT
  CREATE POLICY p ON orders USING (n)
                                   ^""",
        ),
        (
            "CREATE POLICY p ON orders USING ()",
            """line 1, column 33: expected a condition
  CREATE POLICY p ON orders USING ()
                                  ^^
hint: write CREATE POLICY name ON stream USING (condition)""",
        ),
        (
            "CREATE POLICY p ON orders USING (open) RETAIN",
            """line 1, column 40: did not expect 'RETAIN' here
  CREATE POLICY p ON orders USING (open) RETAIN
                                         ^^^^^^
hint: a policy has one condition, in parentheses""",
        ),
        (
            "DROP POLICY p",
            """line 1, column 13: expected ON, but the text ends
  DROP POLICY p
              ^
hint: write DROP POLICY name ON stream""",
        ),
    ],
)
def test_what_is_refused_is_underlined(sql: str, message: str) -> None:
    with pytest.raises(QueryError) as refused:
        statement = parse_statement(sql)
        assert isinstance(statement, CreatePolicy)
        bind_policy(sql, statement, _lookup)
    assert str(refused.value) == message


def test_queries_have_no_claims() -> None:
    with pytest.raises(QueryError, match="CREATE POLICY alone"):
        bind_query("SELECT * FROM orders WHERE region = claim('region')", _lookup)
