"""Cases that random search has found, kept: each was answered or refused wrongly once."""

from __future__ import annotations

import pytest

from querystem.language import CreateStream, QueryError, bind_query, parse_statement

_STREAMS = (
    "CREATE STREAM a (k BIGINT)",
    "CREATE STREAM e (k BIGINT, at TIMESTAMP) ORDERED BY at",
)


def test_a_window_over_a_query_mixes_clocks_too() -> None:
    """A window over a query depends on NOW like one of a stream: `e` goes by its own time."""
    streams = {}
    for sql in _STREAMS:
        statement = parse_statement(sql)
        assert isinstance(statement, CreateStream)
        streams[statement.schema.name] = statement.schema
    with pytest.raises(QueryError, match="event time"):
        bind_query(
            "SELECT x.k FROM a WINDOW(ROWS 4) AS x,"
            " (SELECT y.k FROM e AS y) AS z WINDOW(RANGE 21 SECONDS)",
            streams.get,
        )
