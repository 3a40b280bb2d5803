"""A text bound once, with `:name` parameters filled in many times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from datastem.schema import Column
from datastem.types import TEXT, Type
from querystem.expressions import Literal, Scalar
from querystem.language.errors import Span, UnknownParameter, located
from querystem.language.filling import Filler, query_filler
from querystem.language.literals import infer, scalar
from querystem.language.parse import parse_query
from querystem.language.scan import MAX_TEXT
from querystem.language.select import bind_select
from querystem.language.sources import Lookup, Names
from querystem.query import Query


@dataclass(frozen=True)
class Template:
    """A bound query that may still hold parameters. Made by `prepare`.

    With parameters, `query` has neither LIMIT, OFFSET, window nor REFRESH EVERY yet; `fill` sets
    them.
    """

    text: str
    query: Query
    parameters: Mapping[str, Type | None]
    _places: Mapping[str, Span]
    _fill: Filler[Query]

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
            return self._fill(self._literals(values))

    def _literals(self, values: Mapping[str, Scalar]) -> dict[str, Literal]:
        for name in values:
            if name not in self.parameters:
                raise UnknownParameter(f"the text has no :{name}", hint="leave the value out")
        literals = {}
        for name, type_ in self.parameters.items():
            if name not in values:
                raise UnknownParameter(f":{name} has no value", self._places[name])
            literals[name] = _literal(name, values[name], type_, self._places[name])
        return literals


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
        draft = bind_select(parsed, len(text), lookup, parameter_types, names)
        fill = query_filler(draft)
        query = draft.query if parameter_types else fill({})
    return Template(text, query, dict(parameter_types), draft.places, fill)


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
