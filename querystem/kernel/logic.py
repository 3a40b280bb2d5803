"""Three-valued logic, and the operations that choose between values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Mask
from datastem.types import Kind, Type
from querystem.expressions import Literal, Op
from querystem.kernel import integers
from querystem.kernel.compare import compare, cuts_of
from querystem.kernel.vector import Vector, boolean, both, of_text, repeatable


def conjunction(vectors: Iterable[Vector]) -> Vector:
    """Return the AND of the vectors; stop taking them once every row is false."""
    # A row is true, NULL (`not_false` but not `true`) or false. Masks of length 1 broadcast to the
    # rows.
    true, not_false = np.ones(1, np.bool_), np.ones(1, np.bool_)
    for vector in vectors:
        true = true & vector.where_true()
        not_false = not_false & ~vector.where_false()
        if not not_false.any():
            break
    return boolean(true, ~(not_false & ~true))


def disjunction(vectors: Iterable[Vector]) -> Vector:
    """Return the OR of the vectors; stop taking them once every row is true."""
    true, not_false = np.zeros(1, np.bool_), np.zeros(1, np.bool_)
    for vector in vectors:
        true = true | vector.where_true()
        not_false = not_false | ~vector.where_false()
        if true.all():
            break
    return boolean(true, ~(not_false & ~true))


def negation(vector: Vector) -> Vector:
    return boolean(~vector.values, vector.valid)


def is_null(vector: Vector) -> Vector:
    if vector.valid is None:
        return boolean(np.zeros(1, np.bool_))
    return boolean(~vector.valid)


def is_in(vector: Vector, constants: Sequence[Literal]) -> Vector:
    not_null = [constant for constant in constants if constant.value is not None]
    is_member = _member(vector, not_null)
    if len(not_null) == len(constants):
        return boolean(is_member, vector.valid)
    # With NULL in the list, a row that equals no other constant is NULL, not false.
    return boolean(is_member, both(vector.valid, is_member))


def case(type_: Type, args: Sequence[Vector]) -> Vector:
    """Return the value of the first true condition; `args` are (condition, value, …, else)."""
    result = args[-1]
    # The last branch is applied first, so that an earlier true condition overwrites it.
    for condition, value in reversed(list(zip(args[:-1:2], args[1:-1:2], strict=True))):
        result = choose(condition.where_true(), value, result, type_)
    return result


def coalesce(type_: Type, args: Sequence[Vector]) -> Vector:
    result = args[-1]
    for value in reversed(args[:-1]):
        result = value if value.valid is None else choose(value.valid, value, result, type_)
    return result


def nullif(lhs: Vector, rhs: Vector) -> Vector:
    equal = compare(Op.EQ, lhs, rhs)
    return lhs.also_valid(~equal.where_true())


def extreme(op: Op, type_: Type, args: Sequence[Vector]) -> Vector:
    """Return the greatest or the least value of each row, the first of equal ones; NULLs are left
    out."""
    better = Op.GT if op is Op.GREATEST else Op.LT
    result = args[0]
    for value in args[1:]:
        takes = compare(better, value, result).where_true() | (
            _validity(value) & ~_validity(result)
        )
        result = choose(takes, value, result, type_)
    return result


def choose(mask: Mask, yes: Vector, no: Vector, type_: Type) -> Vector:
    """Return the values of `yes` where the mask is true, of `no` elsewhere; both have one type."""
    if type_.kind is Kind.TEXT:
        return _choose_text(mask, yes, no)
    values = np.where(mask, yes.values, no.values)
    if yes.valid is None and no.valid is None:
        return Vector(type_, values)
    return Vector(type_, values, np.where(mask, _validity(yes), _validity(no)))


def _choose_text(mask: Mask, yes: Vector, no: Vector) -> Vector:
    length = np.broadcast_shapes(mask.shape, (len(yes),), (len(no),))[0]
    chosen = pc.if_else(
        pa.array(np.broadcast_to(mask, length)), repeatable(yes.values), repeatable(no.values)
    )
    return of_text(chosen)


def _validity(vector: Vector) -> Mask:
    return np.ones(1, np.bool_) if vector.valid is None else vector.valid


def _member(vector: Vector, constants: Sequence[Literal]) -> Mask:
    if vector.type.kind is Kind.TEXT:
        constants_array = pa.array([constant.value for constant in constants], pa.string())
        is_member: Mask = pc.is_in(vector.values, value_set=constants_array).to_numpy(
            zero_copy_only=False
        )
        return is_member
    # A constant that is no value of the type equals none of its values, and is left out.
    cuts = [cuts_of(constant, vector.type) for constant in constants]
    members = np.array([cut.at_least for cut in cuts if cut.is_value], object)
    if vector.type.kind is Kind.DOUBLE:
        return _double_member(vector.values, members.astype(np.float64))
    if vector.values.dtype != object:
        members = members[integers.in_int64(members)].astype(vector.values.dtype)
    return np.isin(vector.values, members)


def _double_member(values: Array, members: Array) -> Mask:
    is_member = np.isin(values, members)
    # `np.isin` finds no NaN, since NaN differs from itself in numpy.
    return is_member | np.isnan(values) if np.isnan(members).any() else is_member
