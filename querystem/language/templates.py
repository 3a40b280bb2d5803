"""A text bound once, with `:name` parameters filled in many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from datastem.schema import Column
from datastem.types import TEXT, Type
from querystem.expressions import Call, Expression, Literal, Parameter, Scalar
from querystem.language.errors import Span, UnknownParameter, located
from querystem.language.literals import infer, scalar
from querystem.language.normal import call
from querystem.language.parse import parse_query
from querystem.language.scan import MAX_TEXT
from querystem.language.select import Lookup, bind_select
from querystem.query import Output, Query

_Filler = Callable[[Mapping[str, Literal]], Expression]


@dataclass(frozen=True)
class Template:
    """A bound query that may still hold parameters. Made by `prepare`."""

    text: str
    query: Query
    parameters: Mapping[str, Type | None]
    _places: Mapping[str, Span]
    _where: _Filler
    _outputs: tuple[tuple[str, _Filler], ...]

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
            literals = self._literals(values)
            outputs = tuple(Output(name, filler(literals)) for name, filler in self._outputs)
            return Query(self.query.stream, outputs, self._where(literals), self.query.window)

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
) -> Template:
    """Parses and binds once. A type of None is that of a parameter that is always NULL.

    Raises QueryError; also for a parameter that the text does not use.
    """
    with located(text):
        query, places = bind_select(parse_query(text, max_text), len(text), lookup, parameter_types)
    outputs = tuple((output.name, _filler(output.expression)) for output in query.outputs)
    return Template(text, query, dict(parameter_types), places, _filler(query.where), outputs)


def bind_query(
    text: str,
    lookup: Lookup,
    parameters: Mapping[str, Scalar] | None = None,
    *,
    max_text: int = MAX_TEXT,
) -> Query:
    """One text with its values; the parameters' types are those of the values."""
    values = parameters or {}
    with located(text):
        types = {name: infer(value, name) for name, value in values.items()}
    return prepare(text, lookup, types, max_text=max_text).fill(values)


def _literal(name: str, value: Scalar, type_: Type | None, place: Span) -> Literal:
    if type_ is None:
        if value is not None:
            raise UnknownParameter(f":{name} was declared without a type, for NULL only", place)
        return Literal(None, TEXT)
    return scalar(value, type_, name, place)


def _filler(expression: Expression) -> _Filler:
    """Compiled: what holds no parameter is not touched again."""
    if isinstance(expression, Parameter):
        name = expression.name
        return lambda literals: literals[name]
    if not isinstance(expression, Call) or not _has_parameter(expression):
        return lambda literals: expression
    op, type_ = expression.op, expression.type
    fillers = tuple(_filler(arg) for arg in expression.args)
    return lambda literals: call(op, tuple([filler(literals) for filler in fillers]), type_)


def _has_parameter(expression: Expression) -> bool:
    if isinstance(expression, Call):
        return any(_has_parameter(arg) for arg in expression.args)
    return isinstance(expression, Parameter)
