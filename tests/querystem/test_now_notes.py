"""Notes about windows and NOW for those who register a query."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datastem.schema import Column, StreamSchema
from datastem.types import TIMESTAMP
from querystem.advice import now_notes, window_notes
from querystem.language import CreateStream, bind_query, parse_statement

_STREAMS = (
    "CREATE STREAM tasks (id BIGINT, due TIMESTAMP) RETAIN 2 DAYS",
    "CREATE STREAM orders (id BIGINT, due TIMESTAMP) KEY (id) RETAIN 2 DAYS",
    "CREATE STREAM shifts (id BIGINT, a TIMESTAMP, b TIMESTAMP) VALID FROM a UNTIL b",
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
        ("SELECT id FROM shifts WHERE ts > NOW - INTERVAL '1' HOUR UNBOUNDED", []),
    ],
)
def test_notes(sql: str, words: list[str]) -> None:
    query = bind_query(sql, SCHEMAS.get)
    notes = now_notes(query, [SCHEMAS[leg.stream] for leg in query.legs])
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


def test_windows_over_validities_are_noted_as_written() -> None:
    query = bind_query("SELECT id FROM shifts RANGE 1 DAY SLIDE 1 DAY", SCHEMAS.get)
    (note,) = window_notes(query, [SCHEMAS["shifts"]])
    assert note.startswith("RANGE 1 DAY SLIDE 1 DAY leaves out")


def test_a_note_has_the_present_name_of_a_column() -> None:
    timed = _schema("CREATE STREAM timed (at TIMESTAMP) ORDERED BY at")
    renamed = replace(timed, columns=(Column("at", TIMESTAMP, renamed="sold"),))
    query = bind_query("SELECT sold FROM timed DURING TODAY", {"timed": renamed}.get)
    (note,) = window_notes(query, [renamed])
    assert "ORDERED BY sold CLOCK" in note
