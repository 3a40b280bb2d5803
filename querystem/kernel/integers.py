"""Exact integers in arrays: int64 if all values fit, else Python integers.

Every function takes and returns either form. The bounds of the operands decide before anything
is computed, so int64 never overflows and only batches that need the slow form use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from datastem.arrays import Integers, Mask

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
_LOW_64_BITS = 2**64 - 1


def constant(value: int) -> Integers:
    fits = INT64_MIN <= value <= INT64_MAX
    return np.array([value], np.int64 if fits else object)


def bound(values: Integers) -> int:
    """Return the greatest magnitude; 0 without values."""
    if not values.size:
        return 0
    # As a Python integer, because the negative of the least int64 is no int64.
    return max(int(values.max()), -int(values.min()))


def narrow(values: Integers) -> Integers:
    """Return the values as int64 if all fit, else as they are."""
    if values.dtype != object or (in_int64(values)).all():
        return values.astype(np.int64)
    return values


def in_int64(values: Integers) -> Mask:
    if values.dtype != object:
        return np.ones(values.shape, np.bool_)
    inside: Mask = (values >= INT64_MIN) & (values <= INT64_MAX)
    return inside


def add(lhs: Integers, rhs: Integers) -> Integers:
    return _apply(np.add, lhs, rhs, bound(lhs) + bound(rhs))


def subtract(lhs: Integers, rhs: Integers) -> Integers:
    return _apply(np.subtract, lhs, rhs, bound(lhs) + bound(rhs))


def multiply(lhs: Integers, rhs: Integers) -> Integers:
    return _apply(np.multiply, lhs, rhs, bound(lhs) * bound(rhs))


def negate(values: Integers) -> Integers:
    return subtract(constant(0), values)


def absolute(values: Integers) -> Integers:
    if bound(values) <= INT64_MAX:
        return np.abs(values)
    return narrow(np.abs(values.astype(object)))


def divide(lhs: Integers, rhs: Integers) -> Integers:
    """Return the quotient truncated towards zero; no divisor may be 0."""
    # A quotient of magnitudes is no greater than its dividend, so no bound is needed.
    return _signed(_apply(np.floor_divide, absolute(lhs), absolute(rhs), 0), lhs, rhs)


def remainder(lhs: Integers, rhs: Integers) -> Integers:
    """Return the remainder with the sign of the dividend; no divisor may be 0."""
    magnitude = _apply(np.remainder, absolute(lhs), absolute(rhs), 0)
    return np.where(lhs < 0, -magnitude, magnitude)


def divide_rounding(lhs: Integers, rhs: Integers) -> Integers:
    """Return the integer nearest to the quotient, halves away from zero; no divisor may be 0."""
    # The nearest integer to a / b is floor((2a + b) / 2b).
    twice = multiply(absolute(lhs), constant(2))
    magnitude = absolute(rhs)
    whole = _apply(np.floor_divide, add(twice, magnitude), multiply(magnitude, constant(2)), 0)
    return _signed(whole, lhs, rhs)


def divide_down(lhs: Integers, rhs: Integers) -> Integers:
    """Return the quotient rounded towards minus infinity; divisors are positive."""
    return _apply(np.floor_divide, lhs, rhs, 0)


def rescale(values: Integers, scale: int, target: int) -> Integers:
    """Return unscaled values at another scale, halves rounded away from zero."""
    if target >= scale:
        return multiply(values, constant(10 ** (target - scale))) if target > scale else values
    return divide_rounding(values, constant(10 ** (scale - target)))


def from_limbs(limbs: Integers, valid: Mask | None) -> Integers:
    """Return the integers of 128-bit two's complement in pairs (low, high) of int64; 0 if not
    valid."""
    if valid is not None:
        # An element that is NULL may hold any bits.
        limbs = np.where(valid[:, None], limbs, np.int64(0))
    low, high = limbs[:, 0], limbs[:, 1]
    # The high half only repeats the sign of the low one, so all values fit int64.
    if (high == low >> 63).all():
        return np.ascontiguousarray(low)
    wide: Integers = high.astype(object) * 2**64 + low.view(np.uint64).astype(object)
    return wide


def to_limbs(values: Integers) -> Integers:
    """Return the inverse of `from_limbs`. Values must fit 128 bits."""
    limbs = np.empty((len(values), 2), np.int64)
    if values.dtype == object:
        limbs[:, 0] = (values & _LOW_64_BITS).astype(np.uint64).view(np.int64)
        limbs[:, 1] = (values >> 64).astype(np.int64)
    else:
        limbs[:, 0] = values
        limbs[:, 1] = values >> 63
    return limbs


def _apply(
    operation: Callable[[Any, Any], Any], lhs: Integers, rhs: Integers, limit: int
) -> Integers:
    if lhs.dtype != object and rhs.dtype != object and limit <= INT64_MAX:
        exact: Integers = operation(lhs, rhs)
        return exact
    return narrow(operation(lhs.astype(object), rhs.astype(object)))


def _signed(magnitude: Integers, lhs: Integers, rhs: Integers) -> Integers:
    return np.where((lhs < 0) != (rhs < 0), negate(magnitude), magnitude)
