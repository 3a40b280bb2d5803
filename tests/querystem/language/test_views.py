"""Views in the language: what becomes of a query over them, what is refused, and where."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from datastem.schema import StreamSchema
from querystem.language import (
    CreateView,
    DropStream,
    DropView,
    QueryError,
    bind_query,
    bind_view,
    bring_window,
    parse_statement,
    view_sql,
)
from querystem.query import Query
from querystem.query_json import query_form, query_from_json, query_to_json, read_form
from querystem.views import MAX_VIEWS_DEEP, Delivery, ViewDefinition
from tests.querystem.language.support import STREAMS, show_tree
from tests.querystem.language.test_golden import check, refusal

DEFINITIONS = (
    "CREATE VIEW big AS SELECT symbol, price * 2 AS double, size FROM trades WHERE price > 5",
    "CREATE VIEW bigger AS SELECT symbol, double FROM big WHERE double > 20",
    "CREATE VIEW recent AS SELECT symbol, price FROM trades WHERE size > 1 RANGE 1 HOUR",
    "CREATE VIEW dear AS SELECT symbol FROM recent WHERE price > 100",
    "CREATE VIEW pairs AS SELECT t.symbol, q.bid FROM trades AS t, quotes AS q"
    " WHERE t.symbol = q.symbol",
    "CREATE COMPLETE VIEW unquoted AS SELECT symbol FROM trades EXCEPT ALL"
    " SELECT symbol FROM quotes",
    "CREATE STREAMED VIEW still AS SELECT symbol FROM trades EXCEPT ALL SELECT symbol FROM quotes"
    " REFRESH EVERY 3 SECONDS",
    "CREATE VIEW alarmed AS SELECT symbol, count(*) AS n FROM trades GROUP BY symbol"
    " REFRESH ON alarms WHERE level > 3",
    "CREATE STREAM newest AS SELECT * FROM trades ROWS 1 PARTITION BY symbol",
    "CREATE VIEW listed AS SELECT symbol, name FROM companies WHERE size > 3",
    "CREATE VIEW top AS SELECT symbol, price FROM trades ORDER BY price DESC LIMIT 3",
    "CREATE VIEW paced AS SELECT symbol FROM trades RANGE 30 DAYS",
)


class Catalog(dict[str, StreamSchema | ViewDefinition]):
    """Streams and views by name."""

    def define(self, sql: str) -> ViewDefinition:
        statement = parse_statement(sql)
        assert isinstance(statement, CreateView)
        view = bind_view(sql, statement, self.get, names=lambda: self)
        self[view.name] = view
        return view

    def bind(self, sql: str) -> Query:
        return bind_query(sql, self.get, names=lambda: self)


def catalog() -> Catalog:
    defined = Catalog(STREAMS)
    for sql in DEFINITIONS:
        defined.define(sql)
    return defined


CATALOG = catalog()


def test_trees_of_views() -> None:
    """Whatever is bound is read back from what a registration keeps of it."""

    def written(text: str) -> str:
        query = CATALOG.bind(text)
        assert read_form(query_form(query), query.predicate_keys) == query
        assert query_from_json(query_to_json(query)) == query
        legs = ", ".join(
            f"{leg.view or leg.stream}{'' if leg.has_own_window else '?'}" for leg in query.legs
        )
        open_ = [f"{inner.view}?" for inner in query.opened]
        return f"{show_tree(query)}\ntaking a window: {', '.join([legs, *open_])}"

    check("view_trees.txt", written)


def test_errors_over_views() -> None:
    check("view_errors.txt", lambda text: refusal(lambda: CATALOG.bind(text)))


def test_errors_of_views() -> None:
    """They point into the statement that would make the view."""
    check("view_definition_errors.txt", lambda text: refusal(lambda: catalog().define(text)))


def test_statements() -> None:
    statement = parse_statement('CREATE  VIEW "select" AS\n SELECT 1 AS one FROM trades; ')
    assert statement == CreateView("select", Delivery.PLAIN, "SELECT 1 AS one FROM trades", 26)
    assert isinstance(parse_statement("CREATE STREAM s AS SELECT a FROM t"), CreateView)
    drop = parse_statement("DROP VIEW v CASCADE")
    assert isinstance(drop, DropView) and (drop.name, drop.cascade) == ("v", True)
    drop = parse_statement("DROP STREAM s CASCADE")
    assert isinstance(drop, DropStream) and (drop.name, drop.cascade) == ("s", True)


def test_a_view_is_made_again_by_its_statement_and_read_from_json() -> None:
    for name in ("big", "unquoted", "still", "newest"):
        view = CATALOG[name]
        assert isinstance(view, ViewDefinition)
        assert Catalog(STREAMS).define(view_sql(view)) == view
        assert ViewDefinition.from_json(view.to_json()) == view


def test_columns_are_those_of_the_query() -> None:
    view = CATALOG["big"]
    assert isinstance(view, ViewDefinition)
    assert [(column.name, str(column.type)) for column in view.columns] == [
        ("symbol", "TEXT"),
        ("double", "DOUBLE"),
        ("size", "BIGINT"),
    ]


@pytest.mark.parametrize("window", ["", " RANGE 5 MINUTES", " REFRESH EVERY 5 SECONDS"])
def test_an_inlined_view_has_the_predicate_of_the_query_written_out(window: str) -> None:
    over = CATALOG.bind(f"SELECT symbol FROM bigger WHERE symbol LIKE 'A%'{window}")
    plain = CATALOG.bind(
        "SELECT symbol FROM trades WHERE price > 5 AND price * 2 > 20 AND symbol LIKE 'A%'" + window
    )
    assert over.predicate_keys == plain.predicate_keys
    assert over.leg.window == plain.leg.window and over.refresh == plain.refresh


# ---- depth


def deep(levels: int) -> Catalog:
    catalog_ = Catalog(STREAMS)
    below = "trades"
    for level in range(levels):
        catalog_.define(f"CREATE VIEW v{level} AS SELECT symbol, price + 1 AS price FROM {below}")
        below = f"v{level}"
    return catalog_


def test_views_stand_inside_each_other_so_many_deep() -> None:
    catalog_ = deep(MAX_VIEWS_DEEP)
    query = catalog_.bind(f"SELECT price FROM v{MAX_VIEWS_DEEP - 1}")
    assert query.leg.stream == "trades"
    with pytest.raises(QueryError) as caught:
        catalog_.define(f"CREATE VIEW w AS SELECT price FROM v{MAX_VIEWS_DEEP - 1}")
    assert caught.value.reason == "NESTED_TOO_DEEP" and caught.value.column == 18


def test_references_through_views_count() -> None:
    catalog_ = Catalog(STREAMS)
    catalog_.define("CREATE VIEW a AS SELECT x.symbol FROM trades AS x, trades AS y")
    catalog_.define("CREATE VIEW b AS SELECT x.symbol FROM a AS x, a AS y")
    catalog_.define("CREATE VIEW c AS SELECT x.symbol FROM b AS x, b AS y")
    assert len(catalog_.bind("SELECT symbol FROM c").legs) == 8
    catalog_.define("CREATE VIEW d AS SELECT x.symbol FROM c AS x, c AS y, c AS z, c AS w")
    assert len(catalog_.bind("SELECT symbol FROM d").legs) == 32
    assert len(catalog_.bind("SELECT x.symbol FROM d AS x, d AS y").legs) == 64
    with pytest.raises(QueryError) as caught:
        catalog_.bind("SELECT x.symbol FROM d AS x, d AS y, trades AS z")
    assert caught.value.reason == "TOO_MANY_REFERENCES"


def test_outputs_that_double_at_each_level_are_no_bomb() -> None:
    """Conditions are pushed down through windows only while they stay small."""
    catalog_, below = Catalog(STREAMS), "trades"
    for level in range(MAX_VIEWS_DEEP):
        terms = " + ".join(["price"] * 9)
        catalog_.define(f"CREATE VIEW v{level} AS SELECT {terms} AS price FROM {below} RANGE 1 DAY")
        below = f"v{level}"
    query = catalog_.bind(f"SELECT price FROM {below} WHERE price > 1")
    assert len(query_form(query)) < 1_000_000


# ---- windows that are brought


def brought(sql: str, window: str) -> Query:
    query = CATALOG.bind(sql)
    schemas = [STREAMS[leg.stream] for leg in query.legs]
    return bring_window(window, query, schemas, None)


BROUGHT: Mapping[str, str] = {
    "SELECT symbol FROM big": "SELECT symbol FROM big RANGE 5 MINUTES",
    "SELECT symbol FROM recent": "SELECT symbol FROM recent RANGE 5 MINUTES",
    "SELECT symbol FROM pairs": "SELECT symbol FROM pairs RANGE 5 MINUTES",
    "SELECT b.symbol FROM big AS b, unquoted AS u": "SELECT b.symbol FROM"
    " big WINDOW(RANGE 5 MINUTES) AS b, unquoted AS u",
    "SELECT symbol FROM recent UNION ALL SELECT symbol FROM quotes": "SELECT symbol FROM recent"
    " UNION ALL SELECT symbol FROM quotes RANGE 5 MINUTES",
}


@pytest.mark.parametrize("sql", BROUGHT)
def test_a_window_that_is_brought_bounds_views_as_one_that_is_written(sql: str) -> None:
    query, written = brought(sql, "RANGE 5 MINUTES"), CATALOG.bind(BROUGHT[sql])
    assert show_tree(query).replace(" own", "") == show_tree(written).replace(" own", "")


@pytest.mark.parametrize("sql", ["SELECT symbol FROM big", "SELECT symbol FROM recent"])
@pytest.mark.parametrize("window", ["ROWS 5", "BEGIN ROW 3 END ROW LAST"])
def test_windows_that_count_are_not_brought_over_views(sql: str, window: str) -> None:
    """They would choose after the condition of the query, which is pushed down."""
    with pytest.raises(QueryError):
        brought(sql, window)


def test_a_window_that_counts_takes_the_place_of_another() -> None:
    sql = "SELECT symbol FROM big WHERE size > 3"
    query = brought(f"{sql} ROWS 9", "ROWS 5")
    assert show_tree(query) == show_tree(CATALOG.bind(f"{sql} ROWS 5"))


def test_slide_is_not_brought_over_an_inlined_view_of_a_keyed_stream() -> None:
    with pytest.raises(QueryError) as caught:
        brought("SELECT name FROM listed", "RANGE 1 HOUR SLIDE 1 MINUTE")
    assert caught.value.reason == "NOT_YET"
