"""The update pattern of an answer: how its rows come and go (update-patterns 5.2)."""

from __future__ import annotations

import enum
from collections.abc import Callable

from datastem.schema import StreamSchema
from querystem.expressions import TRUE, ColumnRef, Expression, factors_of, uses_now
from querystem.legs import AsOf, Leg
from querystem.query import Item, Query, Source
from querystem.sources import From, LeftJoin, SetOperation, SetOperator, subquery_column
from querystem.visibility import visibility_of
from results.window import TimeWindow, Window


class Pattern(enum.IntEnum):
    """The update pattern of an answer, from simple to involved: monotonic, weakest non-monotonic,
    weak, strict. The names are the paper's."""

    MON = 1
    WKS = 2
    WK = 3
    STR = 4


Schemas = Callable[[str], StreamSchema]


def pattern_of(query: Query, schemas: Schemas) -> Pattern:
    """Return the update pattern of a query; `schemas` returns the schema of a stream by its name.

    The paper has windows at the leaves; a window that no row ever leaves is monotonic. LIMIT is
    strict, because a later row may take the place of one that was among the first.
    """
    pattern = source_pattern(query.source, schemas)
    if query.grouping is not None:
        pattern = Pattern.WK
    if query.distinct and pattern is not Pattern.MON:
        pattern = max(pattern, Pattern.WK)
    # What is made of NOW changes at any instant, and no row says when.
    if query.limit is not None or query.offset or query.computes_now:
        pattern = Pattern.STR
    return pattern


def source_pattern(source: Source | Item, schemas: Schemas) -> Pattern:
    """Return the update pattern of the rows a query is about."""
    match source:
        case Leg(as_of=AsOf(row=row)):
            # A late row of the stream changes what was current; what was known never changes.
            return Pattern.STR if row is None else Pattern.MON
        case Leg(stream, _, window, when=when):
            pattern = _leaf(window, schemas(stream))
            return pattern if when == TRUE else max(pattern, _visible(when))
        case Query():
            inner = pattern_of(source, schemas)
            return inner if source.over is None else max(inner, _over(source.over))
        case From():
            return _combined(source, schemas)
        case LeftJoin():
            return Pattern.STR
        case SetOperation(operator, queries):
            patterns = [pattern_of(query, schemas) for query in queries]
            if operator is SetOperator.UNION_ALL:
                return _united(source, patterns)
            negates = operator in (SetOperator.EXCEPT, SetOperator.EXCEPT_ALL)
            return Pattern.STR if negates else _joined(patterns)


def _combined(source: From, schemas: Schemas) -> Pattern:
    """Return the pattern of combinations.

    A query that must be true of a combination is a semi-join (rule 3); any other use of a query may
    negate it (rule 5). What was known at a row comes and goes with the row (rule 1).
    """
    items = [item for item in source.items if not _is_known(item)]
    patterns = [source_pattern(item, schemas) for item in items]
    if uses_now(source.on, source.where):
        patterns.append(_visible(source.where))
    needed = {factor.name for factor in factors_of(source.where) if isinstance(factor, ColumnRef)}
    for number, subquery in enumerate(source.subqueries):
        if subquery_column(number) not in needed:
            return Pattern.STR
        patterns.append(pattern_of(subquery.query, schemas))
    return patterns[0] if len(patterns) == 1 else _joined(patterns)


def _is_known(item: Item) -> bool:
    return isinstance(item, Leg) and item.as_of is not None and item.as_of.row is not None


def _joined(inputs: list[Pattern]) -> Pattern:
    """Apply rule 3: strict if any input is, monotonic if all are, else weak."""
    if not inputs:
        return Pattern.MON
    if max(inputs) in (Pattern.MON, Pattern.STR):
        return max(inputs)
    return Pattern.WK


def _united(operation: SetOperation, inputs: list[Pattern]) -> Pattern:
    """Apply rule 2: rows leave in the order they came only if all windows have one length."""
    if max(inputs) is not Pattern.WKS:
        return max(inputs)
    windows = {leg.window for query in operation.queries for leg in query.legs}
    return Pattern.WKS if set(inputs) == {Pattern.WKS} and len(windows) == 1 else Pattern.WK


def _visible(when: Expression) -> Pattern:
    """Return the pattern of rows that a condition on NOW shows: a row says when it comes and goes
    only if the condition is an interval."""
    return Pattern.STR if visibility_of(when) is None else Pattern.WK


def _over(window: Window) -> Pattern:
    return Pattern.WK if isinstance(window, TimeWindow) else Pattern.STR


def _leaf(window: Window, schema: StreamSchema) -> Pattern:
    if schema.key or not isinstance(window, TimeWindow):
        return Pattern.STR
    if schema.validity is not None and schema.retention is not None:
        # The order in which rows end is not that in which they come.
        return Pattern.WK
    leaves = window.begin is not None and window.begin.relative
    return Pattern.WKS if leaves or schema.retain is not None else Pattern.MON
