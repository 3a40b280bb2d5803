"""CREATE VIEW, bound: the query of a view is bound when the view is created, for its columns."""

from __future__ import annotations

import re
from dataclasses import dataclass

from datastem.schema import StreamSchema
from querystem.language.errors import QueryError, Span, UnknownParameter
from querystem.language.queries.references import Lookup, Named, Names, inside_views
from querystem.language.statements.definitions import CreateView
from querystem.language.templates.template import bind_query
from querystem.language.tokens.names import write_name
from querystem.language.tokens.scan import MAX_TEXT
from querystem.views import ViewDefinition


def bind_view(
    sql: str,
    statement: CreateView,
    lookup: Lookup,
    *,
    max_text: int = MAX_TEXT,
    names: Names | None = None,
) -> ViewDefinition:
    """Return the view that a statement, whose text is `sql`, makes; raise QueryError if its query
    is refused, has parameters, or can't be queried in turn."""
    # Blanks take the place of what stands before the query, so errors point into the statement.
    before = re.sub(r"\S", " ", sql[: statement.begin])
    noted = _NotedLookup(lookup)
    try:
        query = bind_query(before + statement.text, noted, max_text=max_text, names=names)
    except QueryError as problem:
        problem.text = sql
        if isinstance(problem, UnknownParameter):
            problem.hint = "a view has no parameters: write the value, or give it to the query"
        raise
    terms = statement.name, statement.text, query.columns, statement.delivery
    view = ViewDefinition(*terms, noted.altered_at)
    try:
        _use(view, lookup)
    except QueryError as problem:
        problem.text, end = sql, statement.begin + len(statement.text)
        problem.span = Span(statement.begin, end)
        raise
    return view


def _use(view: ViewDefinition, lookup: Lookup) -> None:
    """Bind a query over a view; raise QueryError if that is refused."""
    bind_query(f"SELECT * FROM {write_name(view.name)}", _WithView(view, lookup))


@dataclass(slots=True)
class _NotedLookup:
    """A lookup that notes when columns of the streams it returns were last altered."""

    lookup: Lookup
    altered_at: int = 0

    def __call__(self, name: str) -> Named | None:
        return self._noted(self.lookup(name))

    def inside_views(self, name: str) -> Named | None:
        return self._noted(inside_views(self.lookup)(name))

    def _noted(self, source: Named | None) -> Named | None:
        if isinstance(source, StreamSchema):
            self.altered_at = max(self.altered_at, source.altered_at)
        return source


@dataclass(frozen=True, slots=True)
class _WithView:
    """A lookup with one more view."""

    view: ViewDefinition
    lookup: Lookup

    def __call__(self, name: str) -> Named | None:
        return self.view if name == self.view.name else self.lookup(name)

    def inside_views(self, name: str) -> Named | None:
        return self.view if name == self.view.name else inside_views(self.lookup)(name)
