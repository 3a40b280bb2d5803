"""Notes about NOW for those who register a query."""

from __future__ import annotations

import pytest

from datastem.schema import StreamSchema
from querystem.advice import now_notes
from querystem.language import CreateStream, bind_query, parse_statement

_STREAMS = (
    "CREATE STREAM tasks (id BIGINT, due TIMESTAMP) RETAIN 2 DAYS",
    "CREATE STREAM orders (id BIGINT, due TIMESTAMP) KEY (id) RETAIN 2 DAYS",
)


def _schema(sql: str) -> StreamSchema:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateStream)
    return statement.schema


SCHEMAS = {schema.name: schema for schema in map(_schema, _STREAMS)}


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT id FROM orders WHERE due < NOW", []),
        ("SELECT id FROM tasks WHERE due > NOW", []),
        ("SELECT id FROM tasks RANGE 1 HOUR", []),
        ("SELECT id FROM tasks WHERE due < NOW", ["RETAIN"]),
        ("SELECT id, NOW AS asked FROM orders", ["REFRESH"]),
        ("SELECT id, NOW AS asked FROM orders REFRESH EVERY 1 HOUR", []),
        ("SELECT id FROM orders WHERE due < NOW OR id = 1", ["REFRESH"]),
        ("SELECT o.id FROM orders o JOIN tasks t ON o.id = t.id AND t.due < NOW", []),
        ("SELECT count(*) FROM orders o JOIN tasks t ON o.id = t.id AND t.due < NOW", ["REFRESH"]),
        ("SELECT id FROM tasks WHERE ts > NOW - INTERVAL '1' HOUR", ["RANGE"]),
    ],
)
def test_notes(sql: str, words: list[str]) -> None:
    query = bind_query(sql, SCHEMAS.get)
    notes = now_notes(query, [SCHEMAS[leg.stream] for leg in query.legs])
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))
