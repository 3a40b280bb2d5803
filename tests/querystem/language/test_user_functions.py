"""Functions that users define: a call is the expression written out, and its cost is bounded."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, DOUBLE, TEXT, TIMESTAMP
from querystem.expressions import Expression
from querystem.language import (
    CreateFunction,
    CreateView,
    Named,
    QueryError,
    TemplateCache,
    bind_function_definition,
    bind_policy,
    bind_query,
    bind_view,
    function_sql,
    parse_statement,
)
from querystem.user_functions import MAX_FUNCTIONS_DEEP, FunctionDefinition

STREAM = StreamSchema(
    "t",
    (
        Column("symbol", TEXT),
        Column("price", DOUBLE),
        Column("size", BIGINT),
        Column("at", TIMESTAMP),
    ),
    ordered_by="at",
)


class Catalog(dict[str, Named]):
    """The stream `t`, and what statements define."""

    def __init__(self, *statements: str) -> None:
        super().__init__(t=STREAM)
        for sql in statements:
            self.define(sql)

    def define(self, sql: str) -> FunctionDefinition:
        statement = parse_statement(sql)
        if isinstance(statement, CreateView):
            self[statement.name] = bind_view(sql, statement, self.get)
        assert isinstance(statement, CreateFunction | CreateView)
        if isinstance(statement, CreateFunction):
            function = bind_function_definition(sql, statement, self.get)
            self[statement.name] = function
            return function
        raise AssertionError(f"{sql} is no function")

    def value(self, text: str) -> Expression:
        return bind_query(f"SELECT {text} AS value FROM t", self.get).outputs[0].expression


EURO = "CREATE FUNCTION euro(x DOUBLE) AS x * 0.89"


def refusal(catalog: Catalog, sql: str) -> QueryError:
    with pytest.raises(QueryError) as caught:
        catalog.define(sql) if sql.startswith("CREATE") else bind_query(sql, catalog.get)
    return caught.value


def test_a_query_shares_the_predicate_of_the_text_written_out() -> None:
    called = bind_query("SELECT symbol FROM t WHERE euro(price) > 5", Catalog(EURO).get)
    written = bind_query("SELECT symbol FROM t WHERE price * 0.89 > 5", Catalog().get)
    assert called == written


def test_calls_stand_wherever_expressions_do() -> None:
    text = (
        "SELECT {} AS e, sum({}) AS total FROM t AS a WHERE EXISTS (SELECT 1 AS one FROM t AS b"
        " WHERE b.symbol = a.symbol AND {} > 1) GROUP BY {} HAVING {} > 2 ORDER BY {} RANGE 1 HOUR"
    )
    parts = ("a.price", "a.price", "b.price", "a.price", "max(a.price)", "a.price")
    called = text.format(*[f"euro({part})" for part in parts])
    written = text.format(*[f"({part} * 0.89)" for part in parts])
    assert bind_query(called, Catalog(EURO).get) == bind_query(written, Catalog().get)


# ---- random bodies

BODIES = st.recursive(
    st.sampled_from(["x", "n", "2", "0.5", "length(s)"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda text: f"coalesce({text}, 1)"),
        st.tuples(inner, inner).map(
            lambda t: f"CASE WHEN {t[0]} > {t[1]} AND s LIKE 'a%' THEN {t[0]} ELSE {t[1]} END"
        ),
        inner.map(lambda text: f"f({text}, n, s)"),
    ),
    max_leaves=8,
)
ARGUMENTS = st.tuples(
    st.sampled_from(["price", "size", "3", "2.5", "price + size", "NULL"]),
    st.sampled_from(["size", "7", "size div 2", "-1"]),
    st.sampled_from(["symbol", "'abc'", "symbol || 'x'"]),
)


def substituted(body: str, values: Mapping[str, str], within: str) -> str:
    """Return the text of a body with texts in the places of its parameters and its calls of f."""
    out, at = "", 0
    while at < len(body):
        if body.startswith("f(", at):
            end, depth = at + 2, 1
            while depth:
                depth += (body[end] == "(") - (body[end] == ")")
                end += 1
            inner = body[at + 2 : end - 1].removesuffix(", n, s")
            first = f"CAST({substituted(inner, values, within)} AS DOUBLE)"
            out += f"({substituted(within, {**values, 'x': first}, '')})"
            at = end
            continue
        alone = not (body[at - 1 : at].isalpha() or body[at + 1 : at + 2].isalpha())
        out += values[body[at]] if body[at] in values and alone else body[at]
        at += 1
    return out


@given(BODIES.filter(lambda body: "f(" not in body), BODIES, ARGUMENTS)
def test_a_call_is_the_text_written_out(within: str, body: str, args: tuple[str, str, str]) -> None:
    catalog = Catalog(
        f"CREATE FUNCTION f(x DOUBLE, n BIGINT, s TEXT) AS {within}",
        f"CREATE FUNCTION g(x DOUBLE, n BIGINT, s TEXT) AS {body}",
    )
    values = {
        "x": f"CAST({args[0]} AS DOUBLE)",
        "n": f"CAST({args[1]} AS BIGINT)",
        "s": f"({args[2]})",
    }
    called = catalog.value(f"g({', '.join(args)})")
    assert called == catalog.value(substituted(body, values, within))


# ---- what is bounded and refused


def test_functions_inside_each_other_are_bounded() -> None:
    catalog = Catalog("CREATE FUNCTION f0(x DOUBLE) AS x + 1")
    for level in range(1, MAX_FUNCTIONS_DEEP):
        catalog.define(f"CREATE FUNCTION f{level}(x DOUBLE) AS f{level - 1}(x)")
    assert catalog.value(f"f{MAX_FUNCTIONS_DEEP - 1}(price)") == catalog.value("price + 1")
    deep = refusal(catalog, f"CREATE FUNCTION g(x DOUBLE) AS f{MAX_FUNCTIONS_DEEP - 1}(x)")
    assert deep.reason == "NESTED_TOO_DEEP" and deep.line == 1


def test_an_expression_that_grows_with_every_call_is_bounded() -> None:
    body = " + ".join(["x"] * 40)
    catalog = Catalog(f"CREATE FUNCTION f(x DOUBLE) AS {body}")
    assert refusal(catalog, "SELECT f(f(f(f(price)))) AS v FROM t").reason == "NESTED_TOO_DEEP"
    catalog = Catalog("CREATE FUNCTION f0(x DOUBLE) AS x + x")
    grown = 0
    for level in range(1, MAX_FUNCTIONS_DEEP):
        sql = f"CREATE FUNCTION f{level}(x DOUBLE) AS f{level - 1}(x) + f{level - 1}(x)"
        try:
            catalog.define(sql)
        except QueryError as problem:
            assert problem.reason == "NESTED_TOO_DEEP"
            break
        grown = level
    assert grown > 8
    many = ", ".join(f"f{grown}(price) AS v{n}" for n in range(40))
    assert refusal(catalog, f"SELECT {many} FROM t").reason == "NESTED_TOO_DEEP"


def test_a_function_sees_its_parameters_alone() -> None:
    catalog = Catalog("CREATE FUNCTION f(price BIGINT) AS price + 1")
    assert catalog.value("f(size)") == catalog.value("size + 1")
    for body in ("size", "t.size", "ts", "row_id", ":p", "claim('a')", "count(*)", "now()"):
        refusal(catalog, f"CREATE FUNCTION g(x BIGINT) AS {body}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("euro('1')", "TYPE_MISMATCH"),
        ("euro(symbol)", "TYPE_MISMATCH"),
        ("whole(price)", "TYPE_MISMATCH"),
        ("whole(2.5)", "TYPE_MISMATCH"),
        ("since('2026-02-30')", "BAD_LITERAL"),
        ("euro()", "SYNTAX"),
        ("euro(DISTINCT price)", "SYNTAX"),
        ("euro(*)", "NOT_SUPPORTED"),
        ('"euro"(price)', "BAD_NAME"),
        ("eur(price)", "UNKNOWN_FUNCTION"),
        ("t(price)", "UNKNOWN_FUNCTION"),
    ],
)
def test_wrong_calls_are_refused(text: str, reason: str) -> None:
    catalog = Catalog(
        EURO,
        "CREATE FUNCTION whole(n BIGINT) AS n + 1",
        "CREATE FUNCTION since(at TIMESTAMP) AS extract(year FROM at)",
    )
    problem = refusal(catalog, f"SELECT {text} AS v FROM t")
    assert problem.reason == reason
    assert problem.span is not None and problem.span.start >= 7, "it points at the call"


@pytest.mark.parametrize(
    "name", ["abs", "count", "cast", "claim", "extract", "now", "case", "some"]
)
def test_names_of_the_language_are_refused(name: str) -> None:
    refusal(Catalog(), f"CREATE FUNCTION {name}(x BIGINT) AS x")
    refusal(Catalog(), f'CREATE FUNCTION "{name}"(x BIGINT) AS x')


@pytest.mark.parametrize(
    "body",
    ["x FROM t", "x, x", "x WHERE TRUE", "x) + (x", "x --", "x RANGE 1 HOUR", "x;", "", "x AS y"],
)
def test_nothing_but_an_expression_is_a_body(body: str) -> None:
    sql = f"CREATE FUNCTION f(x BIGINT) AS {body}"
    try:
        function = Catalog().define(sql)
    except QueryError as problem:
        assert problem.text == sql
    else:
        assert body in ("x --", "x;") and Catalog(sql).value("f(size)") == Catalog().value("size")
        assert function_sql(function).startswith("CREATE FUNCTION f(x BIGINT) AS x")


def test_a_function_is_made_again_by_its_statement_and_read_from_json() -> None:
    function = Catalog(EURO)["euro"]
    assert isinstance(function, FunctionDefinition)
    assert Catalog().define(function_sql(function)) == function
    assert FunctionDefinition.from_json(function.to_json()) == function
    constant = Catalog().define("CREATE FUNCTION one() AS 1")
    assert (constant.parameters, constant.type) == ((), BIGINT)


def test_policies_call_functions() -> None:
    sql = "CREATE POLICY cheap ON t USING (euro(price) <= claim('limit'))"
    statement = parse_statement(sql)
    condition = bind_policy(sql, statement, Catalog(EURO).get)  # type: ignore[arg-type]
    assert condition.claims == ("limit",)


def test_a_cached_text_is_bound_again_when_its_function_is_another() -> None:
    cache, catalog = TemplateCache(), Catalog(EURO)
    sql = "SELECT euro(price) AS e FROM t WHERE size > {}"
    for number in range(5):
        cache.bind("a", sql.format(number), catalog.get)
    assert cache.find("a", sql.format(9), catalog.get) is not None
    catalog.define("CREATE FUNCTION euro(x DOUBLE) AS x * 0.9")
    assert cache.find("a", sql.format(9), catalog.get) is None
    bound = cache.bind("a", sql.format(9), catalog.get)
    assert bound.outputs[0].expression == catalog.value("price * 0.9")
