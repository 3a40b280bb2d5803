"""Parameters in every part of a tree: filled in, the query is that of the text with the values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querystem.expressions import Scalar
from querystem.language import QueryError, bind_query, bind_rows
from querystem.query_json import query_form, read_form
from tests.querystem.language.support import bind, lookup, show_tree

JOIN = "SELECT t.price FROM trades AS t, alarms AS a WHERE"


@pytest.mark.parametrize(
    ("text", "values", "written"),
    [
        (f"{JOIN} t.size > :p AND a.kind = :q AND t.symbol = a.kind", {"p": 3, "q": "x"},
         f"{JOIN} t.size > 3 AND a.kind = 'x' AND t.symbol = a.kind"),
        (f"{JOIN} t.size + :p = a.level", {"p": 3}, f"{JOIN} t.size + 3 = a.level"),
        (f"{JOIN} :p AND t.size = 3", {"p": False}, f"{JOIN} FALSE AND t.size = 3"),
        (f"{JOIN} :p AND t.size = 3", {"p": True}, f"{JOIN} TRUE AND t.size = 3"),
        (f"{JOIN} (t.ok AND a.level = 2) OR :p", {"p": False}, f"{JOIN} t.ok AND a.level = 2"),
        (f"{JOIN} (t.ok AND a.level = 2) OR :p", {"p": True}, f"{JOIN} TRUE"),
        (f"{JOIN} (t.size = a.level OR :p) AND t.ok", {"p": True}, f"{JOIN} t.ok"),
        (f"{JOIN} t.size IN (:p, 3)", {"p": 3}, f"{JOIN} t.size IN (3, 3)"),
        ("SELECT t.price * :p AS x, count(*) FROM trades AS t JOIN alarms ON level > :q"
         " GROUP BY t.price HAVING count(*) > :r ORDER BY t.price + :p LIMIT :r OFFSET :r",
         {"p": 2.5, "q": 3, "r": 4},
         "SELECT t.price * 2.5 AS x, count(*) FROM trades AS t JOIN alarms ON level > 3"
         " GROUP BY t.price HAVING count(*) > 4 ORDER BY t.price + 2.5 LIMIT 4 OFFSET 4"),
        ("SELECT symbol, :p AS n FROM trades WHERE size > :p UNION ALL SELECT kind, level + :q"
         " FROM alarms ORDER BY n + :q", {"p": 3, "q": 4},
         "SELECT symbol, 3 AS n FROM trades WHERE size > 3 UNION ALL SELECT kind, level + 4"
         " FROM alarms ORDER BY n + 4"),
        ("SELECT s, n FROM (SELECT symbol AS s, size + :p AS n FROM trades WHERE size > :p) AS x"
         " WHERE n < :q", {"p": 3, "q": 9},
         "SELECT s, n FROM (SELECT symbol AS s, size + 3 AS n FROM trades WHERE size > 3) AS x"
         " WHERE n < 9"),
        ("SELECT x.n FROM (SELECT size + :p AS n FROM trades UNION ALL SELECT :q FROM alarms) AS x,"
         " quotes WHERE n < :q AND bid = n", {"p": 3, "q": 9},
         "SELECT x.n FROM (SELECT size + 3 AS n FROM trades UNION ALL SELECT 9 FROM alarms) AS x,"
         " quotes WHERE n < 9 AND bid = n"),
        ("SELECT t.price FROM trades WINDOW(RANGE :p MINUTES) AS t, alarms WINDOW(ROWS :q) AS a,"
         " (SELECT kind FROM alarms RANGE :q HOURS) AS b WINDOW(RANGE :p SECONDS), quotes RANGE :p",
         {"p": 2, "q": 3},
         "SELECT t.price FROM trades WINDOW(RANGE 2 MINUTES) AS t, alarms WINDOW(ROWS 3) AS a,"
         " (SELECT kind FROM alarms RANGE 3 HOURS) AS b WINDOW(RANGE 2 SECONDS), quotes RANGE 2"),
        ("SELECT price FROM trades RANGE :p UNION ALL SELECT level FROM alarms RANGE :q",
         {"p": 2, "q": 3},
         "SELECT price FROM trades RANGE 2 UNION ALL SELECT level FROM alarms RANGE 3"),
        ("WITH q AS (SELECT size FROM trades WHERE size > :p) SELECT a.size FROM q AS a, q AS b"
         " WHERE a.size = b.size + :p", {"p": 2},
         "WITH q AS (SELECT size FROM trades WHERE size > 2) SELECT a.size FROM q AS a, q AS b"
         " WHERE a.size = b.size + 2"),
        ("SELECT x.n FROM (SELECT size + :p AS n FROM trades WHERE size > :p ORDER BY n LIMIT :q"
         " OFFSET :p) AS x WHERE x.n < :q", {"p": 2, "q": 3},
         "SELECT x.n FROM (SELECT size + 2 AS n FROM trades WHERE size > 2 ORDER BY n LIMIT 3"
         " OFFSET 2) AS x WHERE x.n < 3"),
        ("SELECT size FROM trades EXCEPT (SELECT level + :p FROM alarms LIMIT :q) LIMIT :q"
         " RANGE :p", {"p": 2, "q": 3},
         "SELECT size FROM trades EXCEPT (SELECT level + 2 FROM alarms LIMIT 3) LIMIT 3 RANGE 2"),
        ("SELECT t.size FROM trades AS t LEFT JOIN alarms AS a ON t.size = a.level + :p"
         " AND a.level > :p AND t.size < :q WHERE t.price > :q", {"p": 2, "q": 3},
         "SELECT t.size FROM trades AS t LEFT JOIN alarms AS a ON t.size = a.level + 2"
         " AND a.level > 2 AND t.size < 3 WHERE t.price > 3"),
        ("SELECT t.size FROM trades AS t WHERE t.size + :p IN (SELECT level FROM alarms"
         " WHERE level > :p AND kind = t.symbol AND level > t.size + :q RANGE :q)"
         " AND t.price > (SELECT avg(bid) + :p FROM quotes WHERE size = t.size + :q)"
         " AND EXISTS (SELECT 1 FROM alarms LIMIT :q)", {"p": 2, "q": 3},
         "SELECT t.size FROM trades AS t WHERE t.size + 2 IN (SELECT level FROM alarms"
         " WHERE level > 2 AND kind = t.symbol AND level > t.size + 3 RANGE 3)"
         " AND t.price > (SELECT avg(bid) + 2 FROM quotes WHERE size = t.size + 3)"
         " AND EXISTS (SELECT 1 FROM alarms LIMIT 3)"),
        ("SELECT symbol FROM trades GROUP BY symbol HAVING count(*) + :p > (SELECT max(level) + :q"
         " FROM alarms) AND count(*) > :p", {"p": 2, "q": 3},
         "SELECT symbol FROM trades GROUP BY symbol HAVING count(*) + 2 > (SELECT max(level) + 3"
         " FROM alarms) AND count(*) > 2"),
        ("SELECT t.price FROM trades AS t, listings AS OF t.ts AS l WHERE l.symbol = :p"
         " AND l.venue = t.venue AND l.lot > :q RANGE :q DAYS", {"p": "x", "q": 3},
         "SELECT t.price FROM trades AS t, listings AS OF t.ts AS l WHERE l.symbol = 'x'"
         " AND l.venue = t.venue AND l.lot > 3 RANGE 3 DAYS"),
        ("SELECT 1 AS x FROM doors WHERE EXISTS (SELECT 1 FROM alarms WHERE level = :p)"
         " OR EXISTS (SELECT 1 FROM alarms WHERE level = :q)", {"p": 2, "q": 2},
         "SELECT 1 AS x FROM doors WHERE EXISTS (SELECT 1 FROM alarms WHERE level = 2)"),
    ],
)  # fmt: skip
def test_filled_is_the_same_as_written(text: str, values: dict[str, Scalar], written: str) -> None:
    filled = bind(text, **values)
    assert show_tree(filled) == show_tree(bind(written))
    assert filled == bind(written)
    assert read_form(query_form(filled), filled.predicate_keys) == filled


@pytest.mark.parametrize(
    ("text", "values", "reason"),
    [
        ("SELECT d.door FROM doors AS d, alarms WINDOW(RANGE :p) ROWS 5", {"p": 5}, "MIXED_CLOCKS"),
        ("SELECT t.price FROM trades WINDOW(RANGE :p DAYS) AS t, alarms", {"p": 31},
         "WINDOW_PAST_RETENTION"),
        ("SELECT t.price FROM trades WINDOW(RANGE :p) AS t, alarms", {"p": -1}, "BAD_VALUE"),
        (f"{JOIN} a.level = 3", {"p": 1}, "UNKNOWN_PARAMETER"),
        (f"{JOIN} a.level = :p", {}, "UNKNOWN_PARAMETER"),
        (f"{JOIN} a.level = 3 LIMIT :p", {"p": -1}, "BAD_VALUE"),
        ("SELECT x.size FROM (SELECT size FROM trades LIMIT :p) AS x", {"p": -1}, "BAD_VALUE"),
        ("SELECT size FROM trades WHERE size = (SELECT level FROM alarms LIMIT :p)", {"p": 1},
         "MANY_ROWS"),
        ("SELECT t.price FROM trades AS t, listings AS OF t.ts AS l WHERE l.symbol = t.symbol"
         " AND l.venue = t.venue RANGE :p DAYS", {"p": 8}, "WINDOW_PAST_RETENTION"),
    ],
)  # fmt: skip
def test_bad_values_are_refused(text: str, values: dict[str, Scalar], reason: str) -> None:
    with pytest.raises(QueryError) as caught:
        bind(text, **values)
    assert caught.value.reason == reason


ROWS = [
    f"{JOIN} t.size > :p AND a.level = :q AND t.symbol = a.kind",
    f"{JOIN} t.size + :p > a.level OR :q IS NULL",
    "SELECT size FROM trades WHERE size = :p UNION ALL SELECT level FROM alarms WHERE level > :q",
    "SELECT n FROM (SELECT size + :p AS n FROM trades) AS x WHERE n > :q",
    "SELECT n FROM (SELECT size AS n FROM trades WHERE size <> :p) AS x WINDOW(NOW) WHERE n > :q",
]
values = st.none() | st.integers(-3, 5) | st.sampled_from([2.5, 0.0, -0.0])
tables = st.lists(st.fixed_dictionaries({"p": values, "q": values}), min_size=1, max_size=5)


@given(st.sampled_from(ROWS), tables)
def test_each_row_is_bound_as_it_would_be_alone(text: str, table: list[dict[str, Any]]) -> None:
    columns = {name: [row[name] for row in table] for name in ("p", "q")}
    try:
        queries = [bind_query(text, lookup, row) for row in table]
    except QueryError:
        with pytest.raises(QueryError):
            bind_rows(text, lookup, columns, len(table))
        return
    bound = bind_rows(text, lookup, columns, len(table))
    if bound.form is None:
        assert list(bound.queries) == queries
    else:
        assert {query_form(query) for query in queries} == {bound.form}
        assert [(key,) for key in bound.keys] == [query.predicate_keys for query in queries]
