"""Update patterns of trees: the five rules of update-patterns 5.2, its queries and figure 6."""

from __future__ import annotations

import pytest

from datastem.schema import StreamSchema
from querystem.language import bind_query
from querystem.operators import operators_of
from querystem.patterns import Pattern, pattern_of
from tests.querystem.language.support import schema_of

LINK = "(src TEXT, dst TEXT, proto TEXT, size BIGINT, at TIMESTAMP) ORDERED BY at"
STREAMS = {
    schema.name: schema
    for schema in [
        *(schema_of(f"CREATE STREAM l{number} {LINK}") for number in (1, 2, 3)),
        schema_of("CREATE STREAM n (src TEXT, name TEXT, at TIMESTAMP) KEY (src) ORDERED BY at"),
    ]
}
MON, WKS, WK, STR = Pattern.MON, Pattern.WKS, Pattern.WK, Pattern.STR
NEGATION = "SELECT src FROM l1 EXCEPT ALL SELECT src FROM l2 RANGE 5 SECONDS"
IN = "SELECT src FROM l1 WHERE src IN (SELECT src FROM l2 {0}) {0}"


def schema(name: str) -> StreamSchema:
    return STREAMS[name]


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        # The queries of section 6.
        ("SELECT a.src FROM l1 AS a, l2 AS b WHERE a.src = b.src AND a.proto = 'ftp'"
         " AND b.proto = 'ftp' RANGE 5 SECONDS", WK),
        ("SELECT DISTINCT src FROM l1 RANGE 5 SECONDS", WK),
        (NEGATION, STR),
        ("SELECT a.src FROM (SELECT DISTINCT src FROM l1 RANGE 5 SECONDS) AS a,"
         " (SELECT DISTINCT src FROM l2 RANGE 5 SECONDS) AS b WHERE a.src = b.src", WK),
        (f"SELECT n.src FROM ({NEGATION}) AS n, l3 WINDOW(RANGE 5 SECONDS) AS c"
         " WHERE n.src = c.src AND c.proto = 'ftp'", STR),
        # Figure 6: negation below, and above.
        (f"SELECT n.src FROM ({NEGATION}) AS n, l3 WINDOW(RANGE 5 SECONDS) AS c"
         " WHERE n.src = c.src", STR),
        ("SELECT a.src FROM l1 AS a, l3 AS c WHERE a.src = c.src EXCEPT ALL SELECT src FROM l2"
         " RANGE 5 SECONDS", STR),
        ("SELECT a.src FROM l1 AS a, l3 AS c WHERE a.src = c.src RANGE 5 SECONDS", WK),
        # Rule 1.
        ("SELECT src FROM l1 WHERE size > 3", MON),
        ("SELECT src FROM l1 WHERE size > 3 RANGE 5 SECONDS", WKS),
        ("SELECT a.src, b.name FROM l1 AS a, n AS OF a.ts AS b WHERE a.src = b.src", STR),
        ("SELECT a.src, b.name FROM l1 AS a, n AS KNOWN AT a AS b WHERE a.src = b.src", MON),
        ("SELECT a.src, b.name FROM l1 AS a, n AS KNOWN AT a AS b WHERE a.src = b.src"
         " RANGE 5 SECONDS", WKS),
        # Rule 2.
        ("SELECT src FROM l1 UNION ALL SELECT src FROM l2", MON),
        ("SELECT src FROM l1 UNION ALL SELECT src FROM l2 RANGE 5 SECONDS", WKS),
        ("SELECT src FROM l1 RANGE 4 SECONDS UNION ALL SELECT src FROM l2 RANGE 5 SECONDS", WK),
        ("SELECT src FROM l1 RANGE 4 SECONDS UNION ALL SELECT src FROM l2 ROWS 5", STR),
        # Rule 3.
        ("SELECT src FROM l1 INTERSECT SELECT src FROM l2", MON),
        ("SELECT src FROM l1 INTERSECT ALL SELECT src FROM l2 RANGE 5 SECONDS", WK),
        ("SELECT src FROM l1 UNION SELECT src FROM l2 RANGE 5 SECONDS", WK),
        (IN.format(""), MON),
        (IN.format("RANGE 5 SECONDS"), WK),
        ("SELECT src FROM l1 WHERE EXISTS (SELECT 1 FROM l2 WHERE l2.src = l1.src) ROWS 5", STR),
        # Rule 4.
        ("SELECT src, count(*) AS n FROM l1 GROUP BY src", WK),
        # Rule 5.
        ("SELECT src FROM l1 WHERE src NOT IN (SELECT src FROM l2)", STR),
        ("SELECT src FROM l1 WHERE NOT EXISTS (SELECT 1 FROM l2)", STR),
        ("SELECT src FROM l1 WHERE size >= ALL (SELECT size FROM l2)", STR),
        ("SELECT src FROM l1 WHERE size = (SELECT max(size) FROM l2)", STR),
        ("SELECT a.src FROM l1 AS a LEFT JOIN l2 AS b ON a.src = b.src", STR),
        ("SELECT src FROM l1 LIMIT 5", STR),
        ("SELECT a.src FROM l1 AS a, n WHERE a.src = n.src", STR),
    ],
)  # fmt: skip
def test_patterns_of_trees(text: str, pattern: Pattern) -> None:
    query = bind_query(text, STREAMS.get)
    assert pattern_of(query, schema) is pattern
    assert operators_of(query, schema).pattern is pattern
