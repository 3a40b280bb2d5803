"""A text bound once, with `:name` parameters filled in many times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from datastem.schema import Column
from datastem.types import TEXT, Kind, Type
from querystem.expressions import Literal, Parameter, Scalar
from querystem.language.clauses import Lookup, Names
from querystem.language.errors import Span, UnknownParameter, located
from querystem.language.filling import Filler, query_filler
from querystem.language.filling_many import Unfit, computed_with, only_in_where, where_texts
from querystem.language.literals import decimal_literal, infer, scalar
from querystem.language.parse import Parsed, parse_query
from querystem.language.scan import MAX_TEXT
from querystem.language.select import bind_select
from querystem.query import Query


@dataclass(frozen=True)
class Template:
    """A bound query that may still hold parameters. Made by `prepare`.

    With parameters, `query` has neither LIMIT, OFFSET, window nor REFRESH EVERY yet; `fill` sets
    them. `_cut`: one of them is a parameter. `_any_decimal`: a DECIMAL keeps the type of its value.
    """

    text: str
    query: Query
    parameters: Mapping[str, Type | None]
    _places: Mapping[str, Span]
    _fill: Filler[Query]
    _cut: bool
    _any_decimal: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.query.columns

    def fill(self, values: Mapping[str, Scalar]) -> Query:
        """The query with these values: the same as if they stood in the text.

        Raises QueryError where a value is missing, unknown, or not of its parameter's type.
        """
        if not self.parameters and not values:
            return self.query
        with located(self.text):
            self._check_names(values)
            return self._fill({name: self._literal(name, values[name]) for name in self.parameters})

    def fill_many(self, columns: Mapping[str, Sequence[Scalar]]) -> tuple[str, list[str]] | None:
        """The `form` that the queries of all rows share, and each one's `predicate_key`.

        None where rows differ in more than their factors, or there are none: `fill` them one by
        one. Raises what `fill` raises.
        """
        count = len(next(iter(columns.values()), ()))
        if not count or self._cut or not only_in_where(self.query):
            return None
        with located(self.text):
            self._check_names(columns)
            try:
                keys = where_texts(self.query.where, columns, self._literal, count)
            except Unfit:
                return None
        return self.fill({name: values[0] for name, values in columns.items()}).form, keys

    def for_any_decimal(self) -> Template | None:
        """The template for DECIMALs of every precision and scale.

        None where it may be another one for each: a DECIMAL is more than compared under WHERE, and
        its type is part of other types.
        """
        decimals = {
            n for n, type_ in self.parameters.items() if type_ and type_.kind is Kind.DECIMAL
        }
        if self._cut or not only_in_where(self.query) or decimals & computed_with(self.query.where):
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
    """Parses and binds once. A type of None is that of a parameter that is always NULL.

    `names` lists the streams `lookup` knows; a misspelled one is then met with the nearest.
    Raises QueryError; also for a parameter that the text does not use.
    """
    with located(text):
        parsed = parse_query(text, max_text)
    return bind_template(text, parsed, lookup, parameter_types, names)


def bind_template(
    text: str,
    parsed: Parsed,
    lookup: Lookup,
    parameter_types: Mapping[str, Type | None],
    names: Names | None = None,
) -> Template:
    """What `prepare` gives for a text that is parsed already. Raises QueryError."""
    with located(text):
        draft = bind_select(parsed, len(text), lookup, parameter_types, names)
        fill = query_filler(draft)
        query = draft.query if parameter_types else fill({})
    counts = draft.limit, draft.offset
    cut = bool(draft.tail.names) or any(isinstance(count, Parameter) for count in counts)
    return Template(text, query, dict(parameter_types), draft.places, fill, cut)


def bind_query(
    text: str,
    lookup: Lookup,
    parameters: Mapping[str, Scalar] | None = None,
    *,
    max_text: int = MAX_TEXT,
    names: Names | None = None,
) -> Query:
    """One text with its values; the parameters' types are those of the values."""
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
