"""The query language: text to bound queries, windows and definitions.

    scan ─> statements                                  CREATE STREAM, DROP STREAM
    scan ─> parse (dialect) ─> select (bind) ─> templates     SELECT
                          └──> windows                  BEGIN … END …, RANGE, UNBOUNDED

Everything here raises `QueryError` and nothing else for a text it refuses.
"""

from querystem.language.errors import (
    BindProblem,
    NotYet,
    QueryError,
    Span,
    SyntaxProblem,
    TypeProblem,
    UnknownColumn,
    UnknownFunction,
    UnknownParameter,
    UnknownStream,
    WindowProblem,
)
from querystem.language.select import Lookup
from querystem.language.statements import (
    CreateStream,
    DropStream,
    Statement,
    parse_statement,
    stream_sql,
)
from querystem.language.templates import Template, bind_query, prepare
from querystem.language.windows import bind_window, window_text

__all__ = [
    "BindProblem",
    "CreateStream",
    "DropStream",
    "Lookup",
    "NotYet",
    "QueryError",
    "Span",
    "Statement",
    "SyntaxProblem",
    "Template",
    "TypeProblem",
    "UnknownColumn",
    "UnknownFunction",
    "UnknownParameter",
    "UnknownStream",
    "WindowProblem",
    "bind_query",
    "bind_window",
    "parse_statement",
    "prepare",
    "stream_sql",
    "window_text",
]
