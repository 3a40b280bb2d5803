"""A parsed query becomes a bound Query, whose parameters may still be without values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from datastem.types import Type
from querystem.language.blocks import QueryBinder
from querystem.language.errors import NotYet, Span, UnknownParameter
from querystem.language.parse import Parsed, ParsedRefresh
from querystem.language.references import Lookup, Names, Place, TextBinding
from querystem.language.scope import Scope
from querystem.language.tails import Tail
from querystem.language.window_checks import check_trigger
from querystem.query import Query


@dataclass(frozen=True, slots=True)
class BoundSelect:
    """A query that may still hold parameters, as its windows and REFRESH may.

    `places` says where each parameter first stands. The query's windows and its period are not set
    yet, and conditions over several streams are not pushed down.
    """

    query: Query
    tail: Tail
    places: Mapping[str, Span]


def bind_select(
    parsed: Parsed,
    end: int,
    lookup: Lookup,
    parameters: Mapping[str, Type | None],
    names: Names | None = None,
) -> BoundSelect:
    """Binds a query in a text of length `end`; `names` lists the streams, to suggest one."""
    text = TextBinding(lookup, names, parameters)
    place = replace(Place().within(parsed.query), own=False)
    query = QueryBinder(text).outermost(parsed.query, place)
    query = _with_refresh(query, parsed.refresh, text)
    refresh = parsed.refresh
    period, span = (refresh.period, refresh.span) if refresh else ((), None)
    span = text.triggers[0].span if text.triggers else span
    tail = Tail.of(text.windows, period, span, end, text.trigger)
    base = text.binder(Scope(()))
    for name, spot in tail.names.items():
        base.use(name, spot)
    _check_used(parameters, text.used)
    return BoundSelect(query, tail, text.used)


def _check_used(parameters: Mapping[str, Type | None], used: Mapping[str, Span]) -> None:
    for name in parameters:
        if name not in used:
            raise UnknownParameter(f"the text has no :{name}", hint="leave the value out")


def _with_refresh(query: Query, parsed: ParsedRefresh | None, text: TextBinding) -> Query:
    """The query with the REFRESH ON of its text, or of a view that is all of it; that of REFRESH
    EVERY is not read yet."""
    if text.triggers:
        return _with_view_trigger(query, parsed, text)
    if parsed is None or parsed.rows is None:
        return query
    refresh, text.trigger = QueryBinder(text).trigger(parsed)
    if len(text.windows) == 1:
        check_trigger(text.windows[0].schema, text.trigger, parsed.span)
    return replace(query, refresh=refresh)


def _with_view_trigger(query: Query, parsed: ParsedRefresh | None, text: TextBinding) -> Query:
    """The query over a view with REFRESH ON: rows that refresh the view refresh the query."""
    found = text.triggers[0]
    if parsed is not None or (found.first, found.stop) != (0, len(text.windows)):
        raise NotYet(
            "a view with REFRESH ON beside other streams, or in a query with a window or REFRESH",
            found.span,
            hint="write REFRESH ON after the query instead",
        )
    text.trigger = found.stream
    query = query.with_inner(lambda inner: replace(inner, open=False))
    return replace(query, refresh=found.refresh)
