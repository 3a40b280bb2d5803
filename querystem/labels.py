"""Bound expressions as people read them: with the labels of columns in the place of the names that
never change. Only texts are made of the results; they are not evaluated."""

from __future__ import annotations

from dataclasses import replace

from datastem.schema import StreamSchema
from querystem.expressions import Call, ColumnRef, Expression
from querystem.legs import Leg
from querystem.patterns import Schemas
from querystem.refresh import Refresh, RefreshAny, RefreshEvery, RefreshOn
from results.window import CountWindow, Window


def labelled(expression: Expression, schema: StreamSchema) -> Expression:
    """Return an expression over rows of a stream."""
    if schema.labelled is schema:
        return expression
    match expression:
        case ColumnRef(name, type_):
            return ColumnRef(schema.label(name), type_)
        case Call(op, args, type_):
            return Call(op, tuple([labelled(arg, schema) for arg in args]), type_)
    return expression


def labelled_leg(leg: Leg, schemas: Schemas) -> Leg:
    """Return a leg with its condition, its window and its REFRESH; `schemas` returns the schema of
    a stream by its name."""
    schema = schemas(leg.stream)
    return replace(
        leg,
        where=labelled(leg.where, schema),
        moment=labelled(leg.moment, schema),
        window=labelled_window(leg.written_window, schema),
        valid=None,
        refresh=labelled_refresh(leg.refresh, schemas),
    )


def labelled_window(window: Window, schema: StreamSchema) -> Window:
    """Return a window over a stream."""
    if not isinstance(window, CountWindow):
        return window
    return replace(window, partition_by=tuple(map(schema.label, window.partition_by)))


def labelled_refresh(refresh: Refresh | None, schemas: Schemas) -> Refresh | None:
    """Return a REFRESH, whose rows may be those of several streams."""
    match refresh:
        case RefreshAny(parts):
            return RefreshAny(tuple(_labelled_points(part, schemas) for part in parts))
        case None:
            return None
    return _labelled_points(refresh, schemas)


def _labelled_points(
    points: RefreshEvery | RefreshOn, schemas: Schemas
) -> RefreshEvery | RefreshOn:
    if isinstance(points, RefreshEvery):
        return points
    return replace(points, where=labelled(points.where, schemas(points.stream)))
