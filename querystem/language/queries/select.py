"""A parsed query becomes a bound Query, whose parameters may still be without values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from datastem.types import Type
from querystem.language.errors import Span, UnknownParameter
from querystem.language.expressions.scope import Scope
from querystem.language.queries.blocks import QueryBinder
from querystem.language.queries.references import Lookup, Names, Place, TextBinding
from querystem.language.queries.tails import Tail
from querystem.query import Query


@dataclass(frozen=True, slots=True)
class BoundSelect:
    """A query that may still hold parameters, as its windows and REFRESH may.

    `places` has the first place of each parameter. The query's windows and periods are not set yet,
    and conditions over several streams are not pushed down.
    """

    query: Query
    tail: Tail
    places: Mapping[str, Span]


def bind_select(
    parsed: exp.Expr,
    end: int,
    lookup: Lookup,
    parameters: Mapping[str, Type | None],
    names: Names | None = None,
) -> BoundSelect:
    """Bind a query in a text of length `end`; `names` lists the streams, to suggest one."""
    text = TextBinding(lookup, names, parameters)
    place = replace(Place().within(parsed), has_own_window=False)
    query = QueryBinder(text).outermost(parsed, place)
    tail = Tail.of(text.windows, text.refreshes, end)
    base = text.binder(Scope(()))
    for name, spot in tail.names.items():
        base.use(name, spot)
    _check_used(parameters, text.used)
    return BoundSelect(query, tail, text.used)


def _check_used(parameters: Mapping[str, Type | None], used: Mapping[str, Span]) -> None:
    for name in parameters:
        if name not in used:
            raise UnknownParameter(f"the text has no :{name}", hint="leave the value out")
