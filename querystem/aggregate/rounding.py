"""Exact sums become values: integers, doubles rounded once, averages, spreads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from datastem.arrays import Doubles, Int64s, Integers
from querystem.aggregate.limbs import BITS, Limbs, magnitude
from querystem.kernel.integers import narrow

_LEAST_NORMAL = 2.0**-1022
# Up to this many groups, Python divides one by one faster than numpy divides digits.
_FEW_GROUPS = 8
# Digits below the unit to which a quotient by a count is computed.
_EXTRA_DIGITS = 3


def to_integers(limbs: Limbs) -> Integers:
    """Return the sums in their own unit, as int64 if all fit, else as Python integers."""
    digits = limbs.digits
    if limbs.offset == 0 and digits.shape[1] == 1:
        return digits[:, 0]
    # The test is 0 only if the upper digit fits 32 signed bits: then both fit int64.
    if limbs.offset == 0 and digits.shape[1] == 2 and not ((digits[:, 1] >> 31) + 1 >> 1).any():
        return digits[:, 0] + (digits[:, 1] << BITS)
    return narrow(_wide(limbs))


def _wide(limbs: Limbs) -> Integers:
    return _digits(limbs) << (BITS * limbs.offset)


def _digits(limbs: Limbs) -> Integers:
    """Return the sums as Python integers, in units of the lowest digit."""
    total = limbs.digits[:, -1].astype(object)
    for place in range(limbs.digits.shape[1] - 2, -1, -1):
        total = (total << BITS) + limbs.digits[:, place].astype(object)
    return total


def to_doubles(limbs: Limbs, unit: int) -> Doubles:
    """Return the sums times 2^unit, rounded to the nearest double, ties to even, or infinite."""
    digits, negative = magnitude(limbs.digits)
    cut = np.zeros(len(digits), np.bool_)
    return _signed(_rounded(digits, cut, BITS * limbs.offset + unit), negative)


def averages(limbs: Limbs, counts: Int64s, unit: int) -> Doubles:
    """Return the sums times 2^unit by counts below 2^32, rounded once. A group with a count of 0
    has any value."""
    if len(counts) <= _FEW_GROUPS:
        exponent = BITS * limbs.offset + unit
        return _few_averages(limbs.digits.tolist(), counts.tolist(), exponent)
    digits, negative = magnitude(limbs.digits)
    divisor = np.maximum(counts, 1).astype(np.uint64)
    # Zeros below the unit, so that the quotient has more bits than a double keeps.
    padded = np.concatenate([np.zeros((len(digits), _EXTRA_DIGITS), np.int64), digits], axis=1)
    remainder = np.zeros(len(digits), np.uint64)
    # Long division, highest digit first. The remainder is below 2^32, so it and a digit fit 64
    # bits.
    for place in range(padded.shape[1] - 1, -1, -1):
        remainder = (remainder << np.uint64(BITS)) | padded[:, place].astype(np.uint64)
        padded[:, place] = (remainder // divisor).astype(np.int64)
        remainder %= divisor
    exponent = BITS * (limbs.offset - _EXTRA_DIGITS) + unit
    rounded = _rounded(padded, remainder != 0, exponent)
    for group in np.flatnonzero((rounded < 2 * _LEAST_NORMAL) & (digits != 0).any(axis=1)):
        # Doubles below the normal ones are rounded at another place: rare enough for Python.
        total = abs(int(_digits(Limbs(0, limbs.digits[group : group + 1]))[0]))
        rounded[group] = _quotient(total, int(divisor[group]), BITS * limbs.offset + unit)
    return _signed(rounded, negative)


def _few_averages(digits: list[list[int]], counts: list[int], exponent: int) -> Doubles:
    totals = [
        sum(digit << BITS * place for place, digit in enumerate(group_digits))
        for group_digits in digits
    ]
    pairs = zip(totals, counts, strict=True)
    quotients = [_quotient(total, max(count, 1), exponent) for total, count in pairs]
    return np.array(quotients, np.float64) + 0.0


def spreads(
    sums: Limbs,
    squares: Limbs,
    counts: Int64s,
    unit: int,
    scale: int,
    fewer: int,
    is_root: bool,
) -> Doubles:
    """Return the variances, or their roots, rounded once; NaN if a count is `fewer` or less.

    The squared distances from the mean are divided by the count less `fewer`: 1 for a sample, 0 for
    all values. Sums count in 2^unit / 10^scale, squares in its square. Takes one Python step for
    each group.
    """
    values = np.full(len(counts), np.nan)
    chosen = np.flatnonzero(counts > fewer)
    # Both terms are brought to one unit, 2^base. The variance is (n Σx² − (Σx)²) / (n (n − fewer)).
    base = BITS * min(squares.offset, 2 * sums.offset)
    up = 2 * BITS * sums.offset - base, BITS * squares.offset - base
    moments = (_digits(sums)[chosen], _digits(squares)[chosen], counts[chosen])
    power = 100**scale
    values[chosen] = [
        _spread(
            count * (square << up[1]) - (total * total << up[0]),
            count * (count - fewer) * power,
            2 * unit + base,
            is_root,
        )
        for total, square, count in zip(*(moment.tolist() for moment in moments), strict=True)
    ]
    return values


def _spread(numerator: int, denominator: int, exponent: int, is_root: bool) -> float:
    """Return numerator / denominator * 2^exponent, or its root; `exponent` is even."""
    if is_root:
        return _root(numerator, denominator, exponent // 2)
    return _quotient(numerator, denominator, exponent)


def _root(numerator: int, denominator: int, unit: int) -> float:
    """Return sqrt(numerator / denominator) * 2^unit, rounded once: the last bit that stays says
    whether anything was cut off."""
    if not numerator:
        return 0.0
    # The quotient has about 140 bits and its root 70: more than the 53 that stay. The shift is
    # even, so that its root is a shift too.
    shift = max(0, 140 - numerator.bit_length() + denominator.bit_length())
    shift += shift % 2
    whole, remainder = divmod(numerator << shift, denominator)
    root = math.isqrt(whole)
    inexact = remainder or root * root != whole
    return _quotient(root << 1 | bool(inexact), 1, unit - shift // 2 - 1)


def _quotient(numerator: int, denominator: int, exponent: int) -> float:
    """Return numerator / denominator * 2^exponent: Python rounds a quotient of integers once."""
    up, down = max(exponent, 0), max(-exponent, 0)
    try:
        return (numerator << up) / (denominator << down)
    except OverflowError:
        return math.copysign(math.inf, numerator)


def _rounded(digits: Int64s, cut: Any, exponent: int) -> Doubles:
    """Return digits in `[0, 2^32)` times 2^exponent, rounded; `cut` says of which groups digits
    below were cut off.

    The result is right if it is a normal double, or exact.
    """
    groups, width = digits.shape
    # One row per group, the lowest digit first, with two zeros below it.
    padded = np.concatenate([np.zeros((groups, 2), np.int64), digits], axis=1).astype(np.uint64)
    # top[g] is the column of group g's highest digit that is not 0. The top three digits decide the
    # 64 bits of `head`; the digits below only whether anything is cut off.
    top = width + 1 - np.argmax(padded[:, ::-1] != 0, axis=1)
    row = np.arange(groups)
    head = (padded[row, top] << np.uint64(32)) | padded[row, top - 1]
    third = padded[row, top - 2]
    below = np.cumsum(padded != 0, axis=1)
    lower = np.where(top >= 3, below[row, np.maximum(top - 3, 0)], 0) > 0
    # Bring the highest bit to the top; there are at most 31 zeros above it.
    length = np.frexp(padded[row, top].astype(np.float64))[1]
    lead = np.where(length, 32 - length, 0).astype(np.uint64)
    head = (head << lead) | ((third << lead) >> np.uint64(32))
    sticky = cut | lower | (((third << lead) & np.uint64(0xFFFFFFFF)) != 0)
    # 53 bits stay, and 11 are cut. A tail above one half rounds up; exactly one half, with
    # nothing cut off below it, rounds to even.
    mantissa, tail = head >> np.uint64(11), head & np.uint64(0x7FF)
    odd = (mantissa & np.uint64(1)) == 1
    mantissa += ((tail > 0x400) | ((tail == 0x400) & (sticky | odd))).astype(np.uint64)
    place = 32 * (top - 3) - lead.astype(np.int64) + 11 + exponent
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(mantissa.astype(np.float64), place.astype(np.int32)))


def _signed(values: Doubles, negative: Any) -> Doubles:
    return np.where(negative & (values != 0), -values, values)
