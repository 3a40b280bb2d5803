"""Base rows of several legs: which columns they have, and what they can't be had of."""

from __future__ import annotations

import pytest

from querystem.base_rows import LegBaseRows, combines, obstacle
from querystem.identity import slides
from querystem.language import CreateStream, bind_query, parse_statement
from querystem.query import Query

STREAMS = {}
for sql in (
    "CREATE STREAM orders (id BIGINT, customer BIGINT, total DOUBLE)",
    "CREATE STREAM customers (id BIGINT, region TEXT, total DECIMAL(10,2)) KEY (id)",
    "CREATE STREAM regions (region TEXT, tax DOUBLE)",
):
    statement = parse_statement(sql)
    assert isinstance(statement, CreateStream)
    STREAMS[statement.schema.name] = statement.schema


def bound(text: str) -> Query:
    return bind_query(text, STREAMS.get)


def test_legs_share_columns_of_one_name_and_type() -> None:
    query = bound(
        "SELECT c.region, sum(o.total) AS paid, sum(c.total) AS owed FROM orders AS o, customers "
        "AS c, regions AS r WHERE o.customer = c.id AND c.region = r.region GROUP BY c.region"
    )
    rows = LegBaseRows.of(query, [STREAMS[leg.stream] for leg in query.legs])
    assert [str(column.type) for column in rows.query.columns] == [
        *("BIGINT", "BIGINT", "TIMESTAMP", "BIGINT", "DOUBLE", "BIGINT", "TEXT", "DECIMAL(10,2)")
    ]
    assert [column.name for column in rows.query.columns] == [
        *("$leg", "row_id", "ts", "customer", "total", "id", "region", "$DECIMAL(10,2) total")
    ]
    assert rows.columns[1] == {"id": "id", "region": "region", "total": "$DECIMAL(10,2) total"}
    assert slides(rows.query) and rows.query.moving == query.moving
    assert [leg.predicate_key for leg in rows.query.legs] == [*query.predicate_keys]


def test_one_leg_inside_a_query_is_no_union() -> None:
    query = bound("SELECT count(*) AS n FROM (SELECT DISTINCT region FROM customers) AS inside")
    assert combines(query) and not obstacle(query)
    rows = LegBaseRows.of(query, [STREAMS["customers"]])
    assert slides(rows.query) and len(rows.query.legs) == 1


@pytest.mark.parametrize(
    ("text", "is_equality"),
    [
        ("orders AS o, customers AS c WHERE o.customer = c.id", True),
        ("orders AS o, customers AS c WHERE o.customer + 1 = c.id * 2 AND o.total > 3", True),
        ("orders AS o, customers AS c WHERE o.customer = c.id OR o.id = c.id", False),
        ("orders AS o, customers AS c, regions AS r WHERE o.customer = c.id", False),
        ("orders AS o, customers AS c, regions AS r WHERE o.id = c.id AND r.tax = o.total", True),
        ("orders AS o, (SELECT avg(total) AS mean FROM orders) AS m WHERE o.total > m.mean", True),
        ("orders AS o LEFT JOIN customers AS c ON o.id < c.id", False),
        ("orders AS o LEFT JOIN customers AS c ON o.id = c.id AND c.total > o.total", True),
        ("orders AS o WHERE o.id IN (SELECT id FROM customers)", True),
        ("orders AS o WHERE o.total > ALL (SELECT tax FROM regions)", True),
        ("orders AS o WHERE EXISTS (SELECT 1 FROM customers AS c WHERE c.id > o.id)", False),
        ("orders AS o WHERE total > (SELECT max(tax) FROM regions)", True),
        ("orders AS o WHERE 2 < (SELECT count(*) FROM orders AS p WHERE p.id < o.id)", False),
        ("(SELECT id FROM orders UNION SELECT id FROM customers) AS u", True),
    ],
)
def test_only_joins_by_equality_are_computed(text: str, is_equality: bool) -> None:
    query = bound(f"SELECT count(*) AS n FROM {text}")
    assert combines(query)
    assert ("equality" in obstacle(query)) is not is_equality


def test_a_selection_is_no_combination() -> None:
    assert not combines(bound("SELECT o.id FROM orders AS o, customers AS c WHERE o.id = c.id"))
    assert not combines(bound("SELECT count(*) AS n FROM orders"))
