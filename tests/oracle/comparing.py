"""Answers beside each other: equal values, of one type, in one order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

Values = tuple[Any, ...]


def same(left: Any, right: Any) -> bool:
    """Equal and of one type; NaN is NaN, and -0.0 is 0.0."""
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and bool(left == right)


def difference(expected: Sequence[Values], got: Sequence[Values], ordered: bool = True) -> str:
    """Empty where both are the same rows in the same order, or in any without `ordered`."""
    if not ordered:
        expected, got = in_any_order(expected), in_any_order(got)
    if len(expected) != len(got):
        return f"{len(got)} rows instead of {len(expected)}: {got[:5]} instead of {expected[:5]}"
    for place, (wanted, found) in enumerate(zip(expected, got, strict=True)):
        if not all(same(left, right) for left, right in zip(wanted, found, strict=True)):
            return f"row {place} is {found} instead of {wanted}"
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
