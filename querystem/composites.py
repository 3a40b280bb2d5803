"""Composites: what inner joins can share.

A composite is the streams of a join, the conditions that connect them, and a span: parts whose ts
are further apart are left out. Equalities connect legs, or else an OR of equalities, or else
inequalities; those only if windows are bounded in time, since nothing else bounds their number.
Queries that differ only in their other conditions have the same composite, in whichever order they
name the streams. What else a query asks of a combination is a predicate over the composite's
columns, which are named as those of a FROM: `0.price`, `1.name`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, permutations, product

from datastem.instants import DAY, HOUR, MINUTE
from datastem.schema import StreamSchema
from datastem.types import BOOLEAN
from querystem.expressions import (
    TRUE,
    Call,
    ColumnRef,
    Expression,
    Literal,
    Op,
    from_json,
    predicate_key,
    to_json,
)
from querystem.join.factors import items_of
from querystem.language.normal_form.normal import call, sort_key
from querystem.language.normal_form.rewrite import all_of, as_item, conjuncts, moved
from querystem.legs import Leg
from querystem.links import LegEdge, Link, edge_of, links_of
from querystem.operators import leg_labels
from querystem.query import Query
from querystem.reach import reach_of
from querystem.sources import From, LeftJoin, item_column

# The spans of composites that equalities connect; None leaves out nothing. 27 hours and 32 days are
# for days and months of time zones, which may be three hours longer than others.
SPANS = (HOUR, DAY, 27 * HOUR, 30 * DAY, 32 * DAY, None)
# The spans of composites with an inequality: closer together, because their combinations grow with
# the span.
RANGE_SPANS = tuple(MINUTE << power for power in range(17))

# With at most this many orders of the legs, the one with the least text is taken. With more, trying
# them all would take too long, and the query's own order is.
_MAX_ORDERS = 120

# The engine tries the orders of the legs of a composite, whose number is the factorial of theirs.
MAX_LEGS = 8
_ONE_STREAM = "it joins no streams"


@dataclass(frozen=True)
class ComposedStream:
    """A stream that a leg of a query reads."""

    id: int
    schema: StreamSchema


@dataclass(frozen=True)
class Shape:
    """What a composite is: the ids of its streams, the conditions between its legs, its span.

    Equal composites have equal shapes. Legs ascend by stream id, factors are in normal form and
    sorted. `span` is in microseconds; None leaves out nothing.
    """

    legs: tuple[int, ...]
    factors: tuple[Expression, ...]
    span: int | None

    @cached_property
    def factors_key(self) -> str:
        """The factors as JSON."""
        return _factors_key(self.factors)

    @classmethod
    def read(cls, legs: Sequence[int], factors_key: str, span: int | None) -> Shape:
        """Return the shape with these legs, and factors as `factors_key` writes them."""
        factors = tuple(from_json(form) for form in json.loads(factors_key))
        return cls(tuple(legs), factors, span)

    @cached_property
    def on(self) -> Expression:
        """The condition that all factors are true."""
        return all_of(self.factors)

    @cached_property
    def edges(self) -> tuple[LegEdge, ...]:
        """What connects each pair of legs that has factors: those without inequalities first, then
        in the order of the pairs."""
        factors: dict[tuple[int, int], list[Expression]] = {}
        for factor in self.factors:
            first, second = sorted(items_of(factor))
            factors.setdefault((first, second), []).append(factor)
        edges = (edge_of(legs, factors[legs]) for legs in factors)
        return tuple(sorted(edges, key=lambda edge: (edge.is_range, edge.legs)))

    @property
    def wider_spans(self) -> Sequence[int | None]:
        """The spans, this one first, of the composites that hold all combinations of this one."""
        spans = RANGE_SPANS if any(edge.is_range for edge in self.edges) else SPANS
        return spans[spans.index(self.span) :]


@dataclass(frozen=True)
class Composition:
    """How a query is a predicate over a composite.

    `places[k]` is the number of the query's leg, and of its item of FROM, that is leg k of the
    composite. `where` is the predicate: all conditions of the join that are no factor, and those of
    the legs, which are `local`. `key` is the normal form of `where` as text.
    """

    shape: Shape
    places: tuple[int, ...]
    where: Expression
    local: Expression

    @cached_property
    def key(self) -> str:
        return predicate_key(self.where)

    @cached_property
    def wider_keys(self) -> tuple[str, ...]:
        """The predicates, this one first, whose combinations include those of this one."""
        return self.key, predicate_key(self.local), predicate_key(TRUE)


@dataclass(frozen=True)
class NotComposed:
    """The reason why a query has no composite, to be read after "computed at invoke: "."""

    reason: str


def compose(query: Query, streams: Sequence[ComposedStream]) -> Composition | NotComposed:
    """Return the composite of a query, or why it has none. `streams` are those of the query's legs,
    in their order."""
    source = query.source
    if isinstance(source, Leg):
        return NotComposed(_ONE_STREAM)
    legs = [item for item in source.items if isinstance(item, Leg)]
    # The legs of subqueries come after those of the items, and are not joined here.
    streams = streams[: len(legs)]
    reason = _item_problem(source) or _time_problem(legs, streams)
    if len(legs) > MAX_LEGS:
        reason = f"it joins more than {MAX_LEGS} references"
    if reason is not None:
        return NotComposed(reason)
    factors, remaining = _split_conditions(len(legs), source.on)
    alone = _unconnected(len(legs), factors)
    if alone is not None:
        labels = leg_labels(legs)
        return NotComposed(f"no comparison joins {labels[0]} and {labels[alone]}")
    factors += tuple(_implied_equalities(legs, factors))
    reach = reach_of([leg.window for leg in legs])
    is_range = any(link.is_range for factor in factors for link in links_of(factor))
    spans: Sequence[int | None] = RANGE_SPANS if is_range else SPANS
    span = next((span for span in spans if _reaches(span, reach)), 0)
    if span == 0:
        return NotComposed("an inequality joins rows, and windows are long or not bounded in time")
    return _least(_Join(tuple(legs), tuple(streams), factors, remaining, span))


# ---- which joins have one


def _item_problem(source: From) -> str | None:
    """Return the reason why an item of FROM can't be a leg of a composite; None if all can."""
    for item in source.items:
        if isinstance(item, LeftJoin):
            return "a LEFT JOIN also has rows without a partner"
        if not isinstance(item, Leg) and len(source.items) == 1:
            return "joins of queries inside the query are not found ahead of time"
        if not isinstance(item, Leg):
            return "it joins rows of a query, not of a stream"
        if item.as_of is not None:
            return f"rows of {item.stream} are looked up as of others"
        if item.valid is not None:
            return f"rows of {item.stream} come and go by their validity"
        if item.refresh is not None:
            return f"rows of {item.stream} change at refresh points of its own"
    return _ONE_STREAM if len(source.items) == 1 else None


def _time_problem(legs: Sequence[Leg], streams: Sequence[ComposedStream]) -> str | None:
    """Return the reason why rows of the legs are not taken at one NOW; None if they are."""
    by_clock = {
        stream.schema.now_is_clock: leg.stream for leg, stream in zip(legs, streams, strict=True)
    }
    if len(by_clock) < 2:
        return None
    return f"{by_clock[False]} has event time and {by_clock[True]} arrival time"


def _split_conditions(
    legs: int, on: Expression
) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """Return the conditions of a join that connect its legs, and the others."""
    factors, remaining = list[Expression](), list(conjuncts(on))
    # A kind of condition counts only between legs that the kinds before it do not connect: what is
    # no factor does not keep queries from sharing.
    for is_of_kind in (_is_equality, _is_hashed, _is_linked):
        groups = _connected(legs, factors)
        chosen = [
            condition
            for condition in remaining
            if is_of_kind(links_of(condition))
            and len({groups[leg] for leg in items_of(condition)}) == 2
        ]
        remaining = [condition for condition in remaining if condition not in chosen]
        factors += chosen
    return tuple(factors), tuple(remaining)


def _is_equality(links: Sequence[Link]) -> bool:
    return len(links) == 1 and _is_hashed(links)


def _is_hashed(links: Sequence[Link]) -> bool:
    """Return True for an equality, or an OR of equalities."""
    return bool(links) and not any(link.is_range for link in links)


def _is_linked(links: Sequence[Link]) -> bool:
    return bool(links)


def _implied_equalities(legs: Sequence[Leg], factors: Sequence[Expression]) -> Iterator[Expression]:
    """Yield `a.x = b.x` if a query fixes both to one value, for legs that equalities connect.

    Queries that each fix another value then share a composite without the combinations of one
    query's rows with another's.
    """
    fixed = [_fixed_columns(leg.where) for leg in legs]
    connected = {items_of(factor) for factor in factors if _is_equality(links_of(factor))}
    for first, second in sorted(sorted(pair) for pair in connected):
        for column in sorted(fixed[first].keys() & fixed[second].keys()):
            values = fixed[first][column], fixed[second][column]
            sides = tuple(
                ColumnRef(item_column(leg, column), value.type)
                for leg, value in zip((first, second), values, strict=True)
            )
            if values[0] == values[1]:
                yield call(Op.EQ, sides, BOOLEAN)


def _fixed_columns(where: Expression) -> dict[str, Literal]:
    """Return the columns that a condition about one leg fixes to a value of their own type, and the
    values."""
    fixed: dict[str, Literal] = {}
    for condition in conjuncts(where):
        match condition:
            case Call(Op.EQ, (ColumnRef(name, type_), Literal() as value), _):
                if value.type == type_:
                    fixed[name] = value
    return fixed


def _connected(legs: int, factors: Sequence[Expression]) -> list[int]:
    """Return a number for each leg, equal for those that factors connect, by way of others or
    not."""
    # A factor merges the numbers of its two legs.
    group = list(range(legs))
    for factor in factors:
        first_group, second_group = (group[leg] for leg in items_of(factor))
        group = [first_group if number == second_group else number for number in group]
    return group


def _unconnected(legs: int, factors: Sequence[Expression]) -> int | None:
    """Return the first leg that factors don't connect with leg 0; None if all are."""
    group = _connected(legs, factors)
    return next((leg for leg in range(legs) if group[leg] != group[0]), None)


def _reaches(span: int | None, reach: int | None) -> bool:
    """Return True if a span holds all that windows allow; `reach` is None if they allow all."""
    return span is None or (reach is not None and reach <= span)


# ---- the order of the legs


@dataclass(frozen=True)
class _Join:
    """A join that has a composite: its legs, the factors between them, its other conditions."""

    legs: tuple[Leg, ...]
    streams: tuple[ComposedStream, ...]
    factors: tuple[Expression, ...]
    conditions: tuple[Expression, ...]
    span: int | None

    def ordered(self, places: tuple[int, ...]) -> Composition:
        """Return the composition with the legs in this order."""
        prefixes = {str(place): item_column(k, "") for k, place in enumerate(places)}
        # By their text: a factor that is written twice counts once, and the order is always the
        # same.
        by_key = {sort_key(factor): factor for factor in _moved(self.factors, prefixes)}
        factors = tuple(by_key[key] for key in sorted(by_key))
        local = [as_item(self.legs[place].where, k) for k, place in enumerate(places)]
        where = all_of([*_moved(self.conditions, prefixes), *local])
        ids = tuple(self.streams[place].id for place in places)
        return Composition(Shape(ids, factors, self.span), places, where, all_of(local))

    def orders(self) -> Iterator[tuple[int, ...]]:
        """Yield the orders of the legs by stream id. Legs of one stream are in any order, or, where
        there are too many of those, in that of the query."""
        by_stream = sorted(range(len(self.legs)), key=lambda place: self.streams[place].id)
        counts = Counter(stream.id for stream in self.streams)
        if math.prod(map(math.factorial, counts.values())) > _MAX_ORDERS:
            yield tuple(by_stream)
            return
        groups = groupby(by_stream, key=lambda place: self.streams[place].id)
        for parts in product(*(list(permutations(group)) for _, group in groups)):
            yield tuple(place for part in parts for place in part)


def _least(join: _Join) -> Composition:
    """Return the composition whose factors have the least text, and of those the least
    predicate."""
    compositions = [join.ordered(places) for places in join.orders()]
    return min(
        compositions, key=lambda composition: (composition.shape.factors_key, composition.key)
    )


def _moved(conditions: Sequence[Expression], prefixes: Mapping[str, str]) -> list[Expression]:
    return [moved(condition, prefixes) for condition in conditions]


def _factors_key(factors: Sequence[Expression]) -> str:
    return json.dumps([to_json(factor) for factor in factors], separators=(",", ":"))
