"""What a text names itself, and what it reaches only through views."""

from __future__ import annotations

import pytest

from datastem.schema import StreamSchema
from psoup.access.named import named_objects
from querystem.language import CreateStream, CreateView, bind_query, bind_view, parse_statement
from querystem.query_json import query_form, read_form
from querystem.views import ViewDefinition

STATEMENTS = (
    "CREATE STREAM orders (id BIGINT, region TEXT, amount BIGINT) KEY (id)",
    "CREATE STREAM costs (id BIGINT, region TEXT, amount BIGINT)",
    "CREATE STREAM bells (id BIGINT)",
    "CREATE VIEW flat AS SELECT id, amount FROM costs WHERE amount > 1",
    "CREATE VIEW deeper AS SELECT id FROM flat WHERE id > 2",
    "CREATE VIEW sums AS SELECT region, sum(amount) AS total FROM costs GROUP BY region",
    "CREATE VIEW both AS SELECT id FROM costs UNION ALL SELECT id FROM orders",
    "CREATE VIEW joined AS SELECT c.id FROM costs c JOIN orders o ON c.id = o.id",
    "CREATE VIEW rung AS SELECT id FROM costs REFRESH ON bells WHERE id > 0",
)


class Names:
    """Everything can be found in views; outside of them nothing that is hidden."""

    def __init__(self, hidden: frozenset[str] = frozenset()) -> None:
        self.definitions: dict[str, StreamSchema | ViewDefinition] = {}
        self.hidden = hidden

    def __call__(self, name: str) -> StreamSchema | ViewDefinition | None:
        return None if name in self.hidden else self.definitions.get(name)

    def inside_views(self, name: str) -> StreamSchema | ViewDefinition | None:
        return self.definitions.get(name)


def catalog(hidden: frozenset[str] = frozenset()) -> Names:
    names = Names()
    for sql in STATEMENTS:
        statement = parse_statement(sql)
        if isinstance(statement, CreateStream):
            names.definitions[statement.schema.name] = statement.schema
        elif isinstance(statement, CreateView):
            names.definitions[statement.name] = bind_view(sql, statement, names)
    names.hidden = hidden
    return names


CASES = {
    "SELECT * FROM orders": "orders",
    "SELECT * FROM flat": "flat",
    "SELECT * FROM deeper": "deeper",
    "SELECT * FROM sums": "sums",
    "SELECT * FROM both": "both",
    "SELECT * FROM joined": "joined",
    "SELECT * FROM rung": "rung",
    "SELECT * FROM deeper ROWS 3": "deeper",
    "SELECT * FROM (SELECT id FROM flat) AS x": "flat",
    "WITH x AS (SELECT id FROM flat) SELECT * FROM x": "flat",
    "SELECT f.id FROM flat f JOIN orders o ON f.id = o.id": "flat orders",
    "SELECT f.id FROM flat f LEFT JOIN costs c ON f.id = c.id": "flat costs",
    "SELECT id FROM orders UNION ALL SELECT id FROM flat": "orders flat",
    "SELECT id FROM both EXCEPT SELECT id FROM bells": "both bells",
    "SELECT id FROM orders WHERE id IN (SELECT id FROM flat)": "orders flat",
    "SELECT id FROM flat WHERE EXISTS (SELECT 1 FROM bells b WHERE b.id = flat.id)": "flat bells",
    "SELECT id FROM orders WHERE amount > (SELECT max(total) FROM sums)": "orders sums",
    "SELECT id FROM flat REFRESH ON bells WHERE id > 3": "flat bells",
    "SELECT r.id FROM rung r, orders": "rung orders",
}


@pytest.mark.parametrize("sql", CASES)
def test_what_a_text_names(sql: str) -> None:
    names = catalog()
    names_expected = set(CASES[sql].split())
    query = bind_query(sql, names, {})
    objects = named_objects(query)
    assert objects.streams | objects.views == names_expected
    assert objects.views == {
        name for name in names_expected if name not in ("orders", "costs", "bells")
    }
    stored = read_form(query_form(query), query.predicate_keys)
    assert named_objects(stored) == objects, "a registration tells the same when it is read again"
    hidden = frozenset(names.definitions) - names_expected
    assert bind_query(sql, catalog(hidden), {}) == query, "nothing else need be visible"


def test_a_stream_whose_rows_are_looked_up_is_named() -> None:
    sql = "SELECT c.id, o.amount FROM costs c JOIN orders AS OF c.ts AS o ON o.id = c.id"
    objects = named_objects(bind_query(sql, catalog(), {}))
    assert objects.streams == {"costs", "orders"}


def test_a_refresh_after_the_name_of_a_view_is_the_text_s_own() -> None:
    sql = "SELECT * FROM joined WINDOW(RANGE 1 HOUR REFRESH ON bells WHERE id > 1)"
    objects = named_objects(bind_query(sql, catalog(), {}))
    assert objects.views == {"joined"} and objects.streams == {"bells"}
