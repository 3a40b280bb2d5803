"""Joins of rows with a validity: a combination is there if its rows are valid together.

With windows, the validities of its rows have an instant in common that all of the windows hold. For
intervals that is so if any two of them have an instant in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from datastem.schema import StreamSchema
from datastem.types import BOOLEAN, TIMESTAMP
from querystem.expressions import ColumnRef, Expression, Op
from querystem.language.normal_form.normal import call
from querystem.language.normal_form.rewrite import all_of
from querystem.legs import Leg, over_validities
from querystem.query import Query
from querystem.sources import From, SetOperation, item_column
from querystem.validity import end_of


def with_validities(query: Query, schemas: Sequence[StreamSchema]) -> Query:
    """Return a query whose windows have been read, with those of legs over streams with a validity
    as windows over that; `schemas` are those of its legs' streams."""
    if all(schema.validity is None for schema in schemas):
        return query
    ahead = iter(schemas)
    return _meeting(query.with_legs(lambda leg: over_validities(leg, next(ahead))))


def _meeting(query: Query) -> Query:
    """Return a query whose joins combine rows that are valid together."""
    source = query.source
    if isinstance(source, Leg):
        return query
    items = tuple(
        replace(item, queries=tuple(map(_meeting, item.queries)))
        if isinstance(item, SetOperation)
        else item
        for item in source.items
    )
    on = all_of([source.on, *_conditions(source)])
    return replace(query, source=replace(source, items=items, on=on))


def _conditions(source: From) -> Iterator[Expression]:
    """Yield the conditions that any two references of a FROM are valid together."""
    legs = [
        (item_column(number, ""), item.valid)
        for number, item in enumerate(source.items)
        if isinstance(item, Leg) and item.valid is not None
    ]
    for pair in combinations(legs, 2):
        for (first, valid), (other, beside) in (pair, pair[::-1]):
            starts = ColumnRef(first + valid.starts, TIMESTAMP)
            yield call(Op.LT, (starts, end_of(other + beside.ends)), BOOLEAN)
