"""Roots, powers, exponentials and logarithms of DOUBLE; a result that is no number is NULL.

They are computed by the C library of the machine, one value at a time, so that a value does not
depend on its neighbours. The last binary digit may differ between machines, except for SQRT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array
from datastem.types import BIGINT, DOUBLE, Kind
from querystem.kernel.vector import Vector, both


def square_root(operand: Vector) -> Vector:
    """Return the square root; NULL for a negative number."""
    values = operand.values
    return Vector(DOUBLE, np.sqrt(values), both(operand.valid, ~(values < 0)))


def exponential(operand: Vector) -> Vector:
    return Vector(DOUBLE, _through_arrow(pc.exp, operand.values), operand.valid)


def natural_logarithm(operand: Vector) -> Vector:
    return _logarithm(pc.ln, operand)


def decimal_logarithm(operand: Vector) -> Vector:
    return _logarithm(pc.log10, operand)


def power(base: Vector, exponent: Vector) -> Vector:
    """Return base ^ exponent; NULL for zero to a negative power, and for a negative number to a
    power that is not whole."""
    bases, exponents = np.broadcast_arrays(base.values, exponent.values)
    finite = np.isfinite(bases) & np.isfinite(exponents)
    divides_by_zero = (bases == 0) & (exponents < 0)
    is_root = finite & (bases < 0) & (exponents != np.trunc(exponents))
    values = _through_arrow(pc.power, bases, exponents)
    return Vector(
        DOUBLE, values, both(both(base.valid, exponent.valid), ~(divides_by_zero | is_root))
    )


def sign(operand: Vector) -> Vector:
    """Return −1, 0 or 1; 0 for NaN."""
    if operand.type.kind is Kind.DOUBLE:
        signs = np.where(np.isnan(operand.values), 0.0, np.sign(operand.values))
    else:
        signs = np.where(operand.values > 0, 1, np.where(operand.values < 0, -1, 0))
    return Vector(BIGINT, signs.astype(np.int64), operand.valid)


def _logarithm(function: Callable[..., Any], operand: Vector) -> Vector:
    positive = ~(operand.values <= 0)
    values = _through_arrow(function, np.where(positive, operand.values, 1.0))
    return Vector(DOUBLE, values, both(operand.valid, positive))


def _through_arrow(function: Callable[..., Any], *operands: Array) -> Array:
    arrays = [pa.array(np.ascontiguousarray(operand), pa.float64()) for operand in operands]
    values: Array = function(*arrays).to_numpy(zero_copy_only=False)
    return values
