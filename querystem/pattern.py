"""The update pattern of a query: what can happen to rows of its answer (update-patterns 5.2)."""

from __future__ import annotations

import enum

from datastem.schema import StreamSchema
from querystem.query import Query
from results.window import TimeWindow, Window


class Pattern(enum.IntEnum):
    """From simple to involved: monotonic, weakest, weak, strict. Their names are the paper's."""

    MON = 1
    WKS = 2
    WK = 3
    STR = 4


def pattern_of(query: Query, schema: StreamSchema, window: Window | None = None) -> Pattern:
    """Of the query with its own window, or another.

    The paper has windows at the leaves; rows of a window that nothing ever leaves are monotonic.
    A later row may take the place of one among the first so many, so LIMIT is strict.
    """
    found = _leaf(query.window if window is None else window, schema)
    if query.grouping is not None:
        found = Pattern.WK
    if query.distinct and found is not Pattern.MON:
        found = max(found, Pattern.WK)
    if query.limit is not None or query.offset:
        found = Pattern.STR
    return found


def _leaf(window: Window, schema: StreamSchema) -> Pattern:
    if schema.key or not isinstance(window, TimeWindow):
        return Pattern.STR
    leaves = window.begin is not None and window.begin.relative
    return Pattern.WKS if leaves or schema.retain is not None else Pattern.MON
