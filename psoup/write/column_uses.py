"""What reads a column of a stream: registrations, views, row policies. It can't be dropped before
them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from datastem.schema import Column
from psoup.lookup import TenantStreams
from psoup.store import Registration, State, StreamState, ViewState, views_over
from psoup.store.state.access import Policy
from querystem.combine import leg_reads
from querystem.expressions import ColumnRef, columns_of, to_json
from querystem.language import bind_query, write_name
from querystem.query import Query
from querystem.query_json import read_shape
from results.window import CountWindow


@dataclass(frozen=True, slots=True)
class ColumnUses:
    """What reads a column: the first `registrations` of as many as `count` says, views, those that
    are read by others after these, and policies."""

    registrations: tuple[Registration, ...]
    count: int
    views: tuple[ViewState, ...]
    policies: tuple[Policy, ...]

    def __bool__(self) -> bool:
        return bool(self.count or self.views or self.policies)


def uses_of(state: State, stream: StreamState, column: Column, limit: int) -> ColumnUses:
    """Return what reads a column of a stream, with at most `limit` registrations."""
    name = stream.schema.name
    # How expressions write the column as JSON. Inside a text its quotes would be escaped.
    written = json.dumps(to_json(ColumnRef(column.name, column.type)), separators=(",", ":"))
    handles = state.registrations.using(
        stream.id,
        lambda form: _reads(read_shape(form), name, column.name),
        state.predicates.containing(stream.id, written),
    )
    policies = state.access.policies_of(stream.id)
    return ColumnUses(
        tuple(state.registrations[handle] for handle in handles[:limit]),
        len(handles),
        tuple(_views(state, stream, column)),
        tuple(policy for policy in policies if written in policy.form),
    )


def _views(state: State, stream: StreamState, column: Column) -> Iterator[ViewState]:
    """Yield the views that read a column, and those over them, the outermost first."""
    views, ending = views_over(state.views, stream.id), set[int]()
    # From the inside out.
    for view in reversed(views):
        if not ending.isdisjoint(view.over) or _view_reads(state, stream, view, column.name):
            ending.add(view.id)
    yield from (view for view in views if view.id in ending)


def _view_reads(state: State, stream: StreamState, view: ViewState, name: str) -> bool:
    """Return True if a view reads a column of a stream."""
    lookup = TenantStreams(state, stream.tenant).lookup
    query = bind_query(f"SELECT * FROM {write_name(view.definition.name)}", lookup)
    conditions = [(leg.stream, leg.where) for leg in query.legs]
    conditions += [(trigger.stream, trigger.where) for trigger in query.triggers]
    return _reads(query, stream.schema.name, name) or any(
        over == stream.schema.name and name in columns_of(where) for over, where in conditions
    )


def _reads(query: Query, stream: str, name: str) -> bool:
    """Return True if a query reads a column of the rows of a stream, its predicates left out."""
    for leg, reads in zip(query.legs, leg_reads(query), strict=True):
        window = leg.window
        parts = window.partition_by if isinstance(window, CountWindow) else ()
        if leg.stream == stream and name in {*reads, *parts, *columns_of(leg.when)}:
            return True
    return False
