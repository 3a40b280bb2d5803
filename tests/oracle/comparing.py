"""Answers beside each other: equal values, of one type, in one order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

Values = tuple[Any, ...]


def same(first: Any, second: Any) -> bool:
    """Equal and of one type; NaN is NaN, and -0.0 is 0.0."""
    if isinstance(first, float) and isinstance(second, float) and math.isnan(first):
        return math.isnan(second)
    return type(first) is type(second) and bool(first == second)


def difference(expected: Sequence[Values], got: Sequence[Values], ordered: bool = True) -> str:
    """Return how the rows differ; empty if both are the same rows in the same order, or in any
    order without `ordered`."""
    if not ordered:
        expected, got = in_any_order(expected), in_any_order(got)
    if len(expected) != len(got):
        return f"{len(got)} rows instead of {len(expected)}: {got[:5]} instead of {expected[:5]}"
    for place, (expected_row, actual_row) in enumerate(zip(expected, got, strict=True)):
        if not all(
            same(first, second) for first, second in zip(expected_row, actual_row, strict=True)
        ):
            return f"row {place} is {actual_row} instead of {expected_row}"
    return ""


def in_any_order(rows: Sequence[Values]) -> list[Values]:
    """Return the rows in an order of their own: equal for answers that differ in their order
    alone."""
    return sorted(rows, key=lambda row: [repr(_plain(value)) for value in row])


def _plain(value: Any) -> Any:
    """Written in one way for equal values."""
    match value:
        case float():
            return value + 0.0
        case Decimal():
            return value.normalize() + 0
    return value
