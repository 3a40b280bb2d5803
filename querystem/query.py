"""A bound query: what the binder makes of a text, and what a registration keeps.

A query is a tree. Its leaves are *legs*, references to streams; a leg's *predicate* (stream and
conditions on its rows alone, in normal form) is what gets matched and shared; its window is applied
when the query is invoked. Over legs stand the combinations of FROM, set operations, and queries
inside queries. A query over one stream is the simplest tree: its source is the leg itself.

The other clauses of a query apply to the rows of its source, in this order: `grouping` turns them
into one row per group; `having` keeps some; `outputs` are computed; `distinct` removes repeats;
`order_by`, `offset` and `limit` cut. `refresh` says as of which instant all this is done.

Expressions name columns as the source shows them: a leg shows those of its stream; a From those of
its items, as `item_column` writes them. In a grouped query `having`, `outputs` and `order_by` see
only the columns `key_name(n)` and `aggregate_name(n)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from datastem.schema import Column
from querystem.expressions import (
    TRUE,
    ColumnRef,
    Expression,
    at_instant,
    columns_of,
    uses_now,
    weight_of,
)
from querystem.grouping import Function, Grouping, grouping_to_json
from querystem.legs import Leg
from querystem.refresh import (
    PartKind,
    Refresh,
    RefreshedPart,
    RefreshOn,
    periodic,
    triggers_of,
)
from querystem.sources import From, LeftJoin, SetOperation, SetOperator
from results.window import Window, depends_on_now


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class SortKey:
    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Query:
    """A SELECT. As an item of another query's FROM it may have a window `over` its rows. `view` is
    the name of the view that an item is, if any. If it is `open`, a window that a caller brings
    takes the place of `over`."""

    source: Source
    outputs: tuple[Output, ...]
    grouping: Grouping | None = None
    having: Expression = TRUE
    distinct: bool = False
    order_by: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    refresh: Refresh | None = None
    over: Window | None = None
    view: str = ""
    open: bool = False

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(output.name, output.expression.type) for output in self.outputs)

    @cached_property
    def timed(self) -> bool:
        """Whether its rows have a ts: they are rows of its source, each for itself."""
        limited = self.limit is not None or self.offset
        plain = self.grouping is None and not self.distinct and not limited
        return plain and is_timed(self.source)

    # ---- the legs

    @cached_property
    def legs(self) -> tuple[Leg, ...]:
        """The references to streams, in the order of the text."""
        return tuple(legs_of(self))

    @cached_property
    def moving(self) -> tuple[bool, ...]:
        """Whether NOW moves the rows of each leg: by its window, or by one over a query that it
        stands in."""
        return tuple(_moving(self, False))

    @cached_property
    def has_now(self) -> bool:
        """Whether an expression depends on NOW, except conditions that are left to a leg (`when`)
        and those inside inner queries."""
        return self.computes_now or uses_now(*_conditions(self.source))

    @cached_property
    def computes_now(self) -> bool:
        """Whether the answer is computed from the rows of the source with NOW."""
        return uses_now(*self._of_rows, *self._of_answers, self.having)

    @cached_property
    def uses_now(self) -> bool:
        """Whether an expression anywhere in the query depends on NOW."""
        late = any(leg.when != TRUE for leg in self.legs)
        return late or any(query.has_now for query in self.all_queries)

    @cached_property
    def all_queries(self) -> tuple[Query, ...]:
        """This query and those inside it, outer ones first."""
        return tuple(_inner_queries(self))

    @cached_property
    def view_windows(self) -> tuple[tuple[Window, ...], ...]:
        """The windows that views put on each leg: all that the text of a view has, none that the
        query has around or instead of it."""
        return tuple(_view_windows(self, False, ()))

    @property
    def leg(self) -> Leg:
        """The leg of a query whose source is one."""
        assert isinstance(self.source, Leg), "a query over one stream"
        return self.source

    @cached_property
    def predicate_keys(self) -> tuple[str, ...]:
        """The keys of the legs' predicates."""
        return tuple(leg.predicate_key for leg in self.legs)

    @cached_property
    def inner_queries(self) -> tuple[Query, ...]:
        """The queries inside it, outer ones first."""
        return tuple(_inner_queries(self.source))

    @cached_property
    def opened(self) -> tuple[Query, ...]:
        """The queries in FROM over which a caller may bring a window."""
        return tuple(query for query in self.inner_queries if query.open)

    def with_legs(self, change: Callable[[Leg], Leg]) -> Query:
        """Return this query with each leg changed, in the order of `legs`."""
        return self.with_parts(change, lambda query: query.with_legs(change))

    def with_window(self, window: Window) -> Query:
        """Return this query with another window for the legs that have none of their own, and over
        the views that take one."""

        def windowed(query: Query) -> Query:
            inside = query.with_window(window)
            return replace(inside, over=window) if query.open else inside

        return self.with_parts(
            lambda leg: leg if leg.has_own_window else leg.with_window(window), windowed
        )

    def with_inner(self, change: Callable[[Query], Query]) -> Query:
        """Return this query with the queries of its source changed, but not those inside them."""
        return self.with_parts(lambda leg: leg, change)

    def with_parts(self, change: Callable[[Leg], Leg], within: Callable[[Query], Query]) -> Query:
        """Return this query with the legs and the queries of its source changed."""
        return replace(self, source=_Changing(change, within).source(self.source))

    def mapped(self, change: Callable[[Expression], Expression]) -> Query:
        """Return this query with its expressions, but not those of its source, changed."""
        return replace(
            self,
            outputs=tuple(
                Output(output.name, change(output.expression)) for output in self.outputs
            ),
            grouping=None if self.grouping is None else self.grouping.mapped(change),
            having=change(self.having),
            order_by=tuple(
                SortKey(change(key.expression), key.descending, key.nulls_first)
                for key in self.order_by
            ),
        )

    def at_instant(self, now: int | None) -> Query:
        """Return this query with an instant in the place of NOW in its clauses, but not in its
        source."""
        if not self.has_now:
            return self
        return self.mapped(lambda expression: at_instant(expression, now))

    def with_where(self, where: Expression) -> Query:
        """Return this query over one leg with another predicate; other cached properties stay."""
        query = object.__new__(Query)
        query.__dict__.update(self.__dict__)
        query.__dict__["source"] = replace(self.leg, where=where)
        # Of the cached properties only these two depend on the predicate.
        for name in ("predicate_keys", "legs"):
            query.__dict__.pop(name, None)
        return query

    # ---- what it takes

    @cached_property
    def reads(self) -> frozenset[str]:
        """The columns of the source's rows that the answer is computed from."""
        named = frozenset(name for expression in self._of_rows for name in columns_of(expression))
        return named | {"ts", "row_id"} if self._by_time else named

    @cached_property
    def weight(self) -> int:
        """How much is computed for each row of the source: about a plain operation each."""
        evaluated = [*self._of_rows, self.having]
        if self.grouping is not None:
            evaluated += self._of_answers
        return sum(weight_of(expression) for expression in evaluated)

    @property
    def _by_time(self) -> bool:
        """Whether the answer depends on which of two rows is earlier."""
        ends = (Function.FIRST, Function.LAST)
        grouping = self.grouping
        return grouping is None or any(
            aggregate.function in ends for aggregate in grouping.aggregates
        )

    @property
    def _of_rows(self) -> list[Expression]:
        return self._of_answers if self.grouping is None else [*self.grouping.expressions]

    @property
    def _of_answers(self) -> list[Expression]:
        outputs = [output.expression for output in self.outputs]
        return [*outputs, *[key.expression for key in self.order_by]]

    @cached_property
    def plain(self) -> bool:
        """Whether the answer has all rows of the source, by (ts, row_id)."""
        cut = self.limit is not None or self.offset or self.having != TRUE
        return self.grouping is None and not (self.distinct or self.order_by or cut)

    @cached_property
    def shown(self) -> tuple[tuple[str, str], ...] | None:
        """The names of outputs and of the columns they show, if all outputs of a plain query are
        columns; else None."""
        pairs = [
            (output.name, output.expression.name)
            for output in self.outputs
            if isinstance(output.expression, ColumnRef)
        ]
        return tuple(pairs) if self.plain and len(pairs) == len(self.outputs) else None

    @cached_property
    def refreshed_parts(self) -> tuple[RefreshedPart, ...]:
        """The parts that have refresh points of their own, each before those inside it."""
        return tuple(_refreshed_parts(self, PartKind.WHOLE, 0))

    @property
    def stays(self) -> bool:
        """Whether the answer, or some part of it, changes at refresh points only."""
        return bool(self.refreshed_parts)

    def stays_inside(self, leg: int) -> bool:
        """Return whether the rows of a leg change at points of the leg's own, or of a query inside
        this one."""
        parts = self.refreshed_parts
        return any(leg in part.legs for part in parts if part.kind is not PartKind.WHOLE)

    @property
    def triggers(self) -> tuple[RefreshOn, ...]:
        """The rows that refresh the query or parts of it."""
        refreshes = (triggers_of(part.refresh) for part in self.refreshed_parts)
        return tuple(refresh for parts in refreshes for refresh in parts)

    @property
    def period(self) -> int | None:
        """The longest period by which REFRESH EVERY sets back a window that a caller may replace;
        None without any."""
        numbers = [number for number, leg in enumerate(self.legs) if not leg.has_own_window]
        return max(filter(None, map(self.period_of, numbers)), default=None)

    def period_of(self, leg: int) -> int | None:
        """Return the period that sets a leg's window back as much as every REFRESH EVERY around it
        together; None without any."""
        around = [periodic(part.refresh) for part in self.refreshed_parts if leg in part.legs]
        periods = [
            min(refresh.period for refresh in refreshes) for refreshes in around if refreshes
        ]
        # A period sets a window back by at most period − 1 microseconds, and these add up.
        return sum(periods) - len(periods) + 1 if periods else None

    @cached_property
    def grouping_key(self) -> str:
        """The grouping as text: equal for equal groupings."""
        form = None if self.grouping is None else grouping_to_json(self.grouping)
        return json.dumps(form, separators=(",", ":"))


Source: TypeAlias = Leg | From
Item: TypeAlias = Leg | Query | SetOperation | LeftJoin


# ---- what a source is made of


def _refreshed_parts(
    source: Source | Item, kind: PartKind, first: int, inside: bool = False
) -> Iterator[RefreshedPart]:
    """Yield the parts of a source whose first leg has the number `first`. `inside` says that the
    source stands in the text of a view."""
    inside = inside or _is_view(source)
    if isinstance(source, Leg | Query) and source.refresh is not None:
        kind = PartKind.LEG if isinstance(source, Leg) else kind
        # A window over a query is applied to what its points show.
        rows = source if isinstance(source, Leg) else source.source
        moving = tuple(_moving(rows, False))
        legs = range(first, first + len(moving))
        yield RefreshedPart(kind, source.refresh, legs, moving, inside)
    for inner in _inside(source):
        yield from _refreshed_parts(inner, PartKind.QUERY, first, inside)
        first += sum(1 for _ in legs_of(inner))


def _inside(source: Source | Item) -> Sequence[Source | Item]:
    """Return the direct parts of a source, in the order of their legs."""
    match source:
        case Leg():
            return ()
        case From(items, _, subqueries):
            return (*items, *(subquery.query for subquery in subqueries))
        case LeftJoin(left_side, right_side):
            return left_side, right_side
        case SetOperation(_, queries):
            return queries
        case Query():
            return (source.source,)


def is_timed(source: Source | Item) -> bool:
    """Return whether the rows of a source have a ts: that of a stream, or the greatest of all
    parts."""
    match source:
        case Leg():
            return True
        case From(items):
            return bool(items) and all(is_timed(item) for item in items)
        case LeftJoin(left_side, right_side):
            return is_timed(left_side) and is_timed(right_side)
        case SetOperation(operator, queries):
            return operator is SetOperator.UNION_ALL and all(query.timed for query in queries)
        case Query():
            return source.timed


def has_joins(source: Source | Item) -> bool:
    """Return whether a part of a query joins items of a FROM, at any depth."""
    joins = isinstance(source, LeftJoin) or (isinstance(source, From) and len(source.items) > 1)
    return joins or any(map(has_joins, _inside(source)))


def legs_of(source: Source | Item) -> Iterator[Leg]:
    """Yield the references to streams of a part of a query, in the order of the text."""
    if isinstance(source, Leg):
        yield source
    for inner in _inside(source):
        yield from legs_of(inner)


def _moving(source: Source | Item, around: bool) -> Iterator[bool]:
    """Yield whether NOW moves each leg; `around` says that it moves everything in the source."""
    if isinstance(source, Leg):
        yield around or depends_on_now(source.window) or uses_now(source.where, source.when)
    elif isinstance(source, Query):
        above = source.over is not None and depends_on_now(source.over)
        around = around or above or source.has_now
    for inner in _inside(source):
        yield from _moving(inner, around)


def _conditions(source: Source | Item) -> Iterator[Expression]:
    """Yield the conditions of a source over combinations of rows, and the expressions beside its
    subqueries, but none of the queries inside it."""
    match source:
        case From(items, on, subqueries, where):
            yield from (on, where)
            for subquery in subqueries:
                yield from subquery.expressions
            for item in items:
                yield from _conditions(item)
        case LeftJoin(left_side, right_side, on):
            yield on
            yield from _conditions(left_side)
            yield from _conditions(right_side)


def _view_windows(
    source: Source | Item, inside: bool, around: tuple[Window, ...]
) -> Iterator[tuple[Window, ...]]:
    """Yield the windows that views put on each leg of a source. `inside` says that the source
    stands in the text of a view, whose windows `around` it are known already."""
    if isinstance(source, Leg):
        yield (*around, source.window) if inside else around
        return
    if isinstance(source, Query) and inside and source.over is not None:
        around = (*around, source.over)
    inside = inside or _is_view(source)
    for inner in _inside(source):
        yield from _view_windows(inner, inside, around)


def _is_view(source: Source | Item) -> bool:
    """Return whether a source is the text of a view, with windows and REFRESH of its own. A leg
    that stands for a view has those of the query."""
    return isinstance(source, Query | SetOperation) and bool(source.view)


def _inner_queries(source: Source | Item) -> Iterator[Query]:
    """Yield the queries inside a source, outer ones first."""
    if isinstance(source, Query):
        yield source
    for inner in _inside(source):
        yield from _inner_queries(inner)


@dataclass(frozen=True, slots=True)
class _Changing:
    """Changes the legs of a source by `leg`, and the queries in it by `query`."""

    leg: Callable[[Leg], Leg]
    query: Callable[[Query], Query]

    def source(self, source: Source) -> Source:
        return self.leg(source) if isinstance(source, Leg) else self._from(source)

    def _from(self, source: From) -> From:
        items = tuple(self._item(item) for item in source.items)
        subqueries = tuple(
            replace(subquery, query=self.query(subquery.query)) for subquery in source.subqueries
        )
        return replace(source, items=items, subqueries=subqueries)

    def _item(self, item: Item) -> Item:
        match item:
            case Leg():
                return self.leg(item)
            case Query():
                return self.query(item)
            case LeftJoin(left_side, right_side):
                return replace(item, left=self._from(left_side), right=self._item(right_side))
            case SetOperation(_, queries):
                return replace(item, queries=tuple(self.query(query) for query in queries))
