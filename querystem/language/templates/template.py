"""A template: a text bound once, whose `:name` parameters are filled in many times.

One row of values is filled in by what `filling` compiles, many at once as `predicate_texts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from sqlglot import exp

from datastem.schema import Column
from datastem.types import TEXT, Kind, Type
from querystem.expressions import Literal, Scalar, uses_now
from querystem.language.errors import Span, UnknownParameter, located
from querystem.language.queries.drafts import LimitedQuery
from querystem.language.queries.references import Lookup, Names
from querystem.language.queries.select import BoundSelect, bind_select
from querystem.language.syntax.parse import parse_query
from querystem.language.templates.filling import Filler, clauses_filler, expression_filler
from querystem.language.templates.predicate_texts import Unfit, computed_with, predicate_texts
from querystem.language.templates.push import pushed_down
from querystem.language.tokens.literals import decimal_literal, infer, scalar
from querystem.language.tokens.scan import MAX_TEXT
from querystem.legs import Leg
from querystem.query import Query
from querystem.query_json import query_form


@dataclass(frozen=True)
class Template:
    """A bound query that may still hold parameters; `prepare` makes it.

    With parameters, `query` has neither LIMIT, OFFSET, window nor REFRESH EVERY yet; `fill` sets
    them. `_beside_where` is the query with all of these if only its WHERE holds parameters, else
    None. With `_any_decimal` a DECIMAL keeps the type of its value.
    """

    text: str
    query: Query
    parameters: Mapping[str, Type | None]
    _places: Mapping[str, Span]
    _fill: Filler[Query]
    _beside_where: Query | None
    _any_decimal: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.query.columns

    def fill(self, values: Mapping[str, Scalar]) -> Query:
        """Return the query with these values, which equals that of a text with the values in it.

        Raise QueryError if a value is missing, unknown, or not of its parameter's type.
        """
        if not self.parameters and not values:
            return self.query
        with located(self.text):
            self._check_names(values)
            return self._fill({name: self._literal(name, values[name]) for name in self.parameters})

    def fill_constants(self, constants: Mapping[str, Literal]) -> Query:
        """Return the query with a constant, of the parameter's type, for each parameter."""
        return self._fill(constants)

    def fill_many(self, columns: Mapping[str, Sequence[Scalar]]) -> tuple[str, list[str]] | None:
        """Return the `form` that the queries of all rows share, and each one's `predicate_key`.

        None without rows, or if they differ in more than their factors: they are then filled one
        by one. Raise QueryError as `fill` does.
        """
        count = len(next(iter(columns.values()), ()))
        if not count or self._beside_where is None:
            return None
        with located(self.text):
            self._check_names(columns)
            try:
                keys = predicate_texts(self.query.leg.where, columns, self._literal, count)
            except Unfit:
                return None
        return query_form(self._beside_where), keys

    def for_any_decimal(self) -> Template | None:
        """Return the template for DECIMALs of every precision and scale.

        None if each may need its own template: the type of a DECIMAL that stands elsewhere than in
        a comparison under WHERE is part of other types.
        """
        decimals = {
            n for n, type_ in self.parameters.items() if type_ and type_.kind is Kind.DECIMAL
        }
        if self._beside_where is None or decimals & computed_with(self.query.leg.where):
            return None
        return replace(self, _any_decimal=True)

    def _check_names(self, values: Mapping[str, Any]) -> None:
        for name in values:
            if name not in self.parameters:
                raise UnknownParameter(f"the text has no :{name}", hint="leave the value out")
        for name in self.parameters:
            if name not in values:
                raise UnknownParameter(f":{name} has no value", self._places[name])

    def _literal(self, name: str, value: Scalar) -> Literal:
        place = self._places[name]
        if self._any_decimal and isinstance(value, Decimal):
            return decimal_literal(value, place)
        return _literal(name, value, self.parameters[name], place)


def prepare(
    text: str,
    lookup: Lookup,
    parameter_types: Mapping[str, Type | None],
    *,
    max_text: int = MAX_TEXT,
    names: Names | None = None,
) -> Template:
    """Return the template of a text, which is parsed and bound once. A type of None is that of a
    parameter that is always NULL.

    `names` lists the streams that `lookup` knows; the error for a misspelled name suggests the
    nearest of them. Raise QueryError, also for a parameter that the text does not use.
    """
    with located(text):
        parsed = parse_query(text, max_text)
    return bind_template(text, parsed, lookup, parameter_types, names)


def bind_template(
    text: str,
    parsed: exp.Expr,
    lookup: Lookup,
    parameter_types: Mapping[str, Type | None],
    names: Names | None = None,
) -> Template:
    """Return the template that `prepare` gives, for a text that is parsed already; raise
    QueryError."""
    with located(text):
        draft = bind_select(parsed, len(text), lookup, parameter_types, names)
        if not parameter_types:
            query = pushed_down(draft.tail.fill(draft.query, {}))
            return Template(text, query, {}, {}, lambda _: query, None)
        beside_where = _beside_where(draft)
        # If only WHERE has parameters, nothing else is rebuilt when values are filled in.
        fill = _query_filler(draft) if beside_where is None else _where_filler(beside_where)
    return Template(text, draft.query, dict(parameter_types), draft.places, fill, beside_where)


def bind_query(
    text: str,
    lookup: Lookup,
    parameters: Mapping[str, Scalar] | None = None,
    *,
    max_text: int = MAX_TEXT,
    names: Names | None = None,
) -> Query:
    """Return the query of one text with its values, whose types are those of the parameters."""
    values = parameters or {}
    with located(text):
        types = {name: infer(value, name) for name, value in values.items()}
    return prepare(text, lookup, types, max_text=max_text, names=names).fill(values)


def _literal(name: str, value: Scalar, type_: Type | None, place: Span) -> Literal:
    if type_ is None:
        if value is not None:
            raise UnknownParameter(f":{name} was declared without a type, for NULL only", place)
        return Literal(None, TEXT)
    return scalar(value, type_, name, place)


# ---- filling in one row of values


def _beside_where(draft: BoundSelect) -> Query | None:
    """Return the query over one stream, complete but for its WHERE; None if anything else holds a
    parameter."""
    if not isinstance(draft.query.source, Leg) or uses_now(draft.query.leg.where):
        return None
    if draft.tail.names or isinstance(draft.query, LimitedQuery):
        return None
    query = draft.tail.fill(draft.query, {})
    return None if '["par",' in query_form(query) else query


def _where_filler(query: Query) -> Filler[Query]:
    where = expression_filler(query.leg.where)
    return lambda literals: query.with_where(where(literals))


def _query_filler(draft: BoundSelect) -> Filler[Query]:
    """Return a filler that reads windows before it pushes conditions down, because a window decides
    how far they may go."""
    tail = draft.tail
    clauses = clauses_filler(draft.query if tail.names else tail.fill(draft.query, {}))

    def fill(literals: Mapping[str, Literal]) -> Query:
        filled = clauses(literals)
        return pushed_down(tail.fill(filled, literals) if tail.names else filled)

    return fill
