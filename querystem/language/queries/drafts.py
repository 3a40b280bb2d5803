"""Draft queries: windows are not read yet, LIMIT and OFFSET may have no value yet."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from querystem.expressions import ColumnRef, Literal, Parameter
from querystem.language.errors import Span
from querystem.language.tokens.literals import Typed
from querystem.legs import AsOf
from querystem.query import Query
from querystem.refresh import RefreshEvery, RefreshOn
from results.window import TimeWindow


@dataclass(frozen=True, slots=True)
class DraftWindow(TimeWindow):
    """A window that is not read yet; its text has a `number`."""

    number: int = 0


@dataclass(frozen=True, slots=True)
class DraftEvery(RefreshEvery):
    """A REFRESH EVERY that is not read yet; its text has a `number`."""

    number: int = 0


@dataclass(frozen=True, slots=True)
class DraftOn(RefreshOn):
    """A REFRESH ON whose condition may hold parameters; its text has a `number`."""

    number: int = 0


@dataclass(frozen=True)
class DraftAsOf(AsOf):
    """A look-up at `span` without its keys yet: these are what conditions equate the `columns` of
    KEY with, whose `labels` people use."""

    columns: tuple[ColumnRef, ...] = ()
    labels: tuple[str, ...] = ()
    span: Span | None = None


@dataclass(frozen=True)
class LimitedQuery(Query):
    """A query whose LIMIT and OFFSET, at least one of which is a parameter, are not set yet."""

    limit_from: Typed | None = None
    offset_from: Typed | None = None

    @property
    def timed(self) -> bool:
        return False


def limited(query: Query, limit: Typed | None, offset: Typed | None) -> Query:
    """Return the query with its LIMIT and OFFSET, as soon as they have values."""
    if limit is None and offset is None:
        return query
    if any(count is not None and isinstance(count.node, Parameter) for count in (limit, offset)):
        parts = {field.name: getattr(query, field.name) for field in fields(query)}
        return LimitedQuery(**parts, limit_from=limit, offset_from=offset)
    return replace(query, limit=_number(limit), offset=_number(offset) or 0)


def with_counts(query: LimitedQuery, limit: int | None, offset: int) -> Query:
    """Return the query once its LIMIT and OFFSET have values."""
    parts = {field.name: getattr(query, field.name) for field in fields(Query)}
    return Query(**{**parts, "limit": limit, "offset": offset})


def is_limited(query: Query) -> bool:
    return isinstance(query, LimitedQuery) or query.limit is not None or query.offset > 0


def unordered(query: Query) -> Query:
    """Return a query inside another, without its order unless it has a LIMIT."""
    return query if is_limited(query) else replace(query, order_by=())


def _number(count: Typed | None) -> int | None:
    if count is None:
        return None
    assert isinstance(count.node, Literal) and isinstance(count.node.value, int)
    return count.node.value
