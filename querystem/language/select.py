"""A parsed query becomes a bound Query, whose parameters may still be without values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from datastem.types import Type
from querystem.language.blocks import QueryBinder, stream_item
from querystem.language.clauses import bind_condition
from querystem.language.errors import Span, UnknownParameter
from querystem.language.parse import Parsed, ParsedRefresh
from querystem.language.references import (
    Lookup,
    Names,
    Place,
    TextBinding,
    item_name,
    references,
)
from querystem.language.scope import Scope
from querystem.language.tails import Tail
from querystem.language.tree import consume
from querystem.language.window_checks import check_trigger
from querystem.query import Query
from querystem.refresh import RefreshOn


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
    if parsed.refresh is not None:
        query = replace(query, refresh=_trigger(parsed.refresh, text))
    refresh = parsed.refresh
    period, span = (refresh.period, refresh.span) if refresh else ((), None)
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


def _trigger(parsed: ParsedRefresh, text: TextBinding) -> RefreshOn | None:
    """The REFRESH ON clause of a text that is bound but for it; None for REFRESH EVERY."""
    if parsed.rows is None:
        return None
    table = references(parsed.rows)[0][0]
    consume(table, "this", "alias")
    rows = text.stream(table)
    text.trigger = rows
    if len(text.windows) == 1:
        check_trigger(text.windows[0].schema, rows, parsed.span)
    binder = text.binder(Scope((stream_item(item_name(table), rows),)))
    where = bind_condition(parsed.rows.args.get("where"), replace(binder, clause="REFRESH ON"))
    return RefreshOn(rows.name, where)
