"""Composites: what inner joins can share.

A composite is the streams of a join, the equalities that connect them, and a span: parts whose ts
are further apart are left out. Queries that differ only in their other conditions have the same
composite, in whichever order they name the streams. What else a query asks of a combination is a
predicate over the composite's columns, which are named as those of a FROM: `0.price`, `1.name`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, permutations, product
from typing import TypeAlias

from datastem.instants import DAY, HOUR
from datastem.schema import StreamSchema
from querystem.expressions import (
    Call,
    Expression,
    Op,
    columns_of,
    from_json,
    predicate_key,
    to_json,
)
from querystem.join.differences import without_differences
from querystem.join.factors import item_of, items_of
from querystem.language.normal_form.normal import sort_key
from querystem.language.normal_form.rewrite import all_of, as_item, conjuncts, moved
from querystem.operators import leg_labels
from querystem.query import From, LeftJoin, Leg, Query, item_column
from querystem.reach import reach_of
from results.window import Window

# The spans that composites may have, besides none at all.
SPANS = (HOUR, DAY, 30 * DAY)

# With at most this many orders of the legs, the one with the least text is taken. With more, trying
# them all would take too long, and the query's own order is.
_MAX_ORDERS = 120

_ONE_STREAM = "it joins no streams"


@dataclass(frozen=True)
class ComposedStream:
    """A stream that a leg of a query reads."""

    id: int
    schema: StreamSchema


# The equalities between two legs, the lesser first: each an expression over the one, and one over
# the other.
EqualSides: TypeAlias = tuple[tuple[Expression, Expression], ...]


@dataclass(frozen=True)
class Shape:
    """What a composite is: the ids of its streams, the equalities between its legs, its span.

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
    def edges(self) -> tuple[tuple[int, int, EqualSides], ...]:
        """The pairs of legs between which there are equalities, in their order, and those."""
        edges: dict[tuple[int, int], EqualSides] = {}
        for factor in self.factors:
            pair, sides = _sides(factor)
            edges[pair] = *edges.get(pair, ()), sides
        return tuple((*pair, edges[pair]) for pair in sorted(edges))


@dataclass(frozen=True)
class Composition:
    """How a query is a predicate over a composite.

    `places[k]` is the number of the query's leg, and of its item of FROM, that is leg k of the
    composite. `where` is the predicate: all conditions of the join that are no factor, and those of
    the legs. `key` is the normal form of `where` as text.
    """

    shape: Shape
    places: tuple[int, ...]
    where: Expression

    @cached_property
    def key(self) -> str:
        return predicate_key(self.where)


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
    if reason is not None:
        return NotComposed(reason)
    equalities, remaining = _split_conditions(source.on)
    alone = _unconnected(len(legs), equalities)
    if alone is not None:
        labels = leg_labels(legs)
        return NotComposed(f"no equality joins {labels[0]} and {labels[alone]}")
    return _least(_Join(tuple(legs), tuple(streams), equalities, remaining))


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
        if item.refresh is not None:
            return f"rows of {item.stream} change at refresh points of its own"
    return _ONE_STREAM if len(source.items) == 1 else None


def _time_problem(legs: Sequence[Leg], streams: Sequence[ComposedStream]) -> str | None:
    """Return the reason why rows of the legs are not taken at one NOW; None if they are."""
    by_event = {
        stream.schema.ordered_by is not None: leg.stream
        for leg, stream in zip(legs, streams, strict=True)
    }
    if len(by_event) < 2:
        return None
    return f"{by_event[True]} has event time and {by_event[False]} arrival time"


def _split_conditions(on: Expression) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """Return the conditions of a join that are equalities of two legs, and the others."""
    equalities, remaining = [], []
    for condition in conjuncts(on):
        # `a.ts - b.ts = d` also is an equality of the two legs, once the difference is taken apart.
        separated = without_differences([condition])
        if len(separated) == 1 and _is_equality(separated[0]):
            equalities.append(separated[0])
        else:
            remaining.append(condition)
    return tuple(equalities), tuple(remaining)


def _is_equality(condition: Expression) -> bool:
    if not isinstance(condition, Call) or condition.op is not Op.EQ:
        return False
    sides = [items_of(side) for side in condition.args]
    return all(len(side) == 1 for side in sides) and sides[0] != sides[1]


def _unconnected(legs: int, equalities: Sequence[Expression]) -> int | None:
    """Return the first leg that equalities don't connect with leg 0, by way of others or not; None
    if all are."""
    # Legs with equal labels are connected; an equality merges the labels of its two legs.
    group = list(range(legs))
    for equality in equalities:
        first_group, second_group = (group[number] for number in items_of(equality))
        group = [first_group if number == second_group else number for number in group]
    return next((number for number in range(legs) if group[number] != group[0]), None)


def _span(windows: Sequence[Window]) -> int | None:
    """Return the least span that holds all that these windows allow."""
    reach = reach_of(windows)
    return None if reach is None else next((span for span in SPANS if reach <= span), None)


# ---- the order of the legs


@dataclass(frozen=True)
class _Join:
    """A join that has a composite: its legs, the equalities between them, its other conditions."""

    legs: tuple[Leg, ...]
    streams: tuple[ComposedStream, ...]
    equalities: tuple[Expression, ...]
    conditions: tuple[Expression, ...]

    def ordered(self, places: tuple[int, ...]) -> Composition:
        """Return the composition with the legs in this order."""
        prefixes = {str(place): item_column(k, "") for k, place in enumerate(places)}
        # By their text: an equality that is written twice counts once, and the order is always the
        # same.
        by_key = {sort_key(equality): equality for equality in _moved(self.equalities, prefixes)}
        factors = tuple(by_key[key] for key in sorted(by_key))
        local = [as_item(self.legs[place].where, k) for k, place in enumerate(places)]
        where = all_of([*_moved(self.conditions, prefixes), *local])
        ids = tuple(self.streams[place].id for place in places)
        shape = Shape(ids, factors, _span([leg.window for leg in self.legs]))
        return Composition(shape, places, where)

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


# ---- factors


def _sides(factor: Expression) -> tuple[tuple[int, int], tuple[Expression, Expression]]:
    """Return the two legs of a factor, the lesser first, and what it compares of each."""
    assert isinstance(factor, Call)
    first, second = factor.args
    first_leg, second_leg = (item_of(next(columns_of(side))) for side in (first, second))
    return (
        ((first_leg, second_leg), (first, second))
        if first_leg < second_leg
        else ((second_leg, first_leg), (second, first))
    )


def _factors_key(factors: Sequence[Expression]) -> str:
    return json.dumps([to_json(factor) for factor in factors], separators=(",", ":"))
