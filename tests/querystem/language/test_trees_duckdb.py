"""A bound tree means what its text means: both are answered by DuckDB, over random rows.

The tree is written as SQL again, with its conditions where the binder has put them, its items in
their order and its columns under the names they have in the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querystem.expressions import TRUE, Expression
from querystem.grouping import aggregate_name, key_name
from querystem.language import bind_query
from querystem.legs import Leg
from querystem.query import Item, Query
from querystem.sources import SetOperation, item_column
from tests.querystem.language.support import schema_of, show, show_aggregate

R = schema_of("CREATE STREAM r (k TEXT, a BIGINT, x DOUBLE, ok BOOLEAN)")
S = schema_of("CREATE STREAM s (k TEXT, b BIGINT, y DOUBLE)")
STREAMS = {"r": R, "s": S}
TEXTS = [
    "SELECT r.a, s.b FROM r, s WHERE {r} AND {both}",
    "SELECT r.a, s.b FROM r JOIN s ON {both} WHERE {s} OR {both}",
    "SELECT k, a, y FROM r JOIN s USING (k) WHERE {r} AND {s}",
    "SELECT * FROM r CROSS JOIN (SELECT b + 1 AS c, y FROM s WHERE {s}) AS q WHERE {r} OR c = a",
    "SELECT u.a, v.a AS w FROM r AS u, r AS v WHERE u.k = v.k AND NOT (u.ok OR v.a = 1)",
    "SELECT q.n, q.k FROM (SELECT a + 1 AS n, k, ok FROM r WHERE {r}) AS q WHERE q.n > 1 AND q.ok",
    "SELECT q.n FROM (SELECT r.a + s.b AS n, r.k FROM r, s WHERE {both}) AS q, s WHERE q.k = s.k",
    "SELECT k, a FROM r WHERE {r} UNION ALL SELECT k, y FROM s WHERE {s}",
    "SELECT q.n, r.a FROM (SELECT k, a AS n FROM r UNION ALL SELECT k, b + 1 FROM s) AS q, r"
    " WHERE q.n > 0 AND q.k = r.k AND {r}",
    "WITH q AS (SELECT k, a AS n FROM r WHERE {r}), p AS (SELECT n + n AS m, k FROM q WHERE n < 2)"
    " SELECT p.m, q.n FROM p, q WHERE p.k = q.k AND p.m <> q.n",
    "WITH q AS (SELECT k, a FROM r UNION ALL SELECT k, b FROM s WHERE {s}) SELECT u.a, v.k"
    " FROM q AS u, q AS v WHERE u.a = v.a AND v.k = 'x' AND u.a IS NOT NULL",
    "SELECT r.k, count(*) AS n, sum(s.b) AS t FROM r, s WHERE {both} AND {s} GROUP BY r.k"
    " HAVING count(*) > 1",
    "SELECT q.c, max(q.n) AS m FROM (SELECT a + 1 AS n, 3 AS c FROM r WHERE {r}) AS q GROUP BY q.c",
    "SELECT DISTINCT r.k, s.y FROM r, s WHERE {both}",
    "SELECT n, count(*) AS c FROM (SELECT a AS n FROM r UNION ALL SELECT NULL FROM s) AS q"
    " WHERE n > 0 OR n IS NULL GROUP BY n",
]
CONDITIONS = {
    "r": ["r.a > 1", "r.ok", "r.x IS NULL", "NOT r.ok", "r.k IN ('x', 'y')", "r.a + 1 = 2", "TRUE"],
    "s": ["s.b < 2", "s.y > 0.5", "s.k = 'x'", "s.b IS NOT NULL AND s.y <= 1.5", "FALSE"],
    "both": ["r.k = s.k", "r.a < s.b", "r.a = s.b OR r.ok", "r.x = s.b AND r.ok", "s.y <> r.x"],
}

keys, numbers = st.sampled_from(["x", "y", None]), st.none() | st.integers(0, 3)
doubles = st.sampled_from([None, 0.0, 1.0, 1.5, 2.0])
r_rows = st.lists(
    st.tuples(keys, numbers, doubles, st.sampled_from([None, True, False])), max_size=5
)
s_rows = st.lists(st.tuples(keys, numbers, doubles), max_size=5)


@st.composite
def written(draw: st.DrawFn) -> str:
    chosen = {name: draw(st.sampled_from(conditions)) for name, conditions in CONDITIONS.items()}
    return draw(st.sampled_from(TEXTS)).format(**chosen)


class Quoted(Mapping[str, str]):
    """Every column under its name in double quotes, and what groups show."""

    def __init__(self, groups: Mapping[str, str]) -> None:
        self._groups = groups

    def __getitem__(self, name: str) -> str:
        return self._groups.get(name, f'"{name}"')

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)


ROWS = Quoted({})


def names_of(query: Query) -> Quoted:
    grouping = query.grouping
    if grouping is None:
        return ROWS
    keys = {key_name(n): show(key, ROWS) for n, key in enumerate(grouping.keys)}
    aggregates = {
        aggregate_name(n): show_aggregate(aggregate, ROWS)
        for n, aggregate in enumerate(grouping.aggregates)
    }
    return Quoted(keys | aggregates)


def sql_of(query: Query) -> str:
    names = names_of(query)
    outputs = ", ".join(
        f'{show(output.expression, names)} AS "{output.name}"' for output in query.outputs
    )
    text = f"SELECT {'DISTINCT ' if query.distinct else ''}{outputs} FROM "
    source = query.source
    if isinstance(source, Leg):
        text += leg_sql(source)
    else:
        text += ", ".join(item_sql(number, item) for number, item in enumerate(source.items))
        text += where_sql(source.on)
    if query.grouping is not None and query.grouping.keys:
        text += f" GROUP BY {', '.join(f'({show(key, ROWS)})' for key in query.grouping.keys)}"
    return text if query.having == TRUE else f"{text} HAVING {show(query.having, names)}"


def where_sql(condition: Expression) -> str:
    return "" if condition == TRUE else f" WHERE {show(condition, ROWS)}"


def leg_sql(leg: Leg) -> str:
    return f"(SELECT * FROM {leg.stream}{where_sql(leg.where)})"


def item_sql(number: int, item: Item) -> str:
    match item:
        case Leg():
            inner, columns = leg_sql(item), [column.name for column in STREAMS[item.stream].columns]
        case Query():
            inner, columns = f"({sql_of(item)})", [column.name for column in item.columns]
        case SetOperation(operator, queries):
            inner = f"({f' {operator.value} '.join(map(sql_of, queries))})"
            columns = [column.name for column in item.columns]
    outputs = ", ".join(f'"{name}" AS "{item_column(number, name)}"' for name in columns)
    return f"(SELECT {outputs} FROM {inner})"


@given(written(), r_rows, s_rows)
def test_a_tree_means_what_its_text_means(
    text: str, r: list[tuple[object, ...]], s: list[tuple[object, ...]]
) -> None:
    query = bind_query(text, STREAMS.get)
    with duckdb.connect() as database:
        database.execute("CREATE TABLE r (k TEXT, a BIGINT, x DOUBLE, ok BOOLEAN)")
        database.execute("CREATE TABLE s (k TEXT, b BIGINT, y DOUBLE)")
        for name, rows in (("r", r), ("s", s)):
            for row in rows:
                marks = ", ".join("?" for _ in row)
                database.execute(f"INSERT INTO {name} VALUES ({marks})", row)
        expected = database.execute(text).fetchall()
        duck_rows = database.execute(sql_of(query)).fetchall()
    assert sorted(map(repr, duck_rows)) == sorted(map(repr, expected)), sql_of(query)


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_is_bound(text: str) -> None:
    bind_query(text.format(r="r.ok", s="s.b > 1", both="r.k = s.k"), STREAMS.get)
