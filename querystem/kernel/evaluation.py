"""The evaluation of an expression over a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Mask
from datastem.errors import TooMuchText
from datastem.zones import ZoneRules, unpacked
from querystem.expressions import Call, ColumnRef, Expression, Literal, Now, Op, Parameter, Zone
from querystem.kernel import logic
from querystem.kernel.arithmetic import absolute, binary, ceil, floor, negate, round_to
from querystem.kernel.cast import cast
from querystem.kernel.compare import COMPARISONS, compare, is_distinct
from querystem.kernel.dates import at_time_zone, date_trunc, date_trunc_in, extract
from querystem.kernel.powers import (
    decimal_logarithm,
    exponential,
    natural_logarithm,
    power,
    sign,
    square_root,
)
from querystem.kernel.text import length, like, lower, substring, trim, upper
from querystem.kernel.text_functions import (
    concatenate,
    left,
    position,
    replace,
    right,
    split_part,
    starts_with,
)
from querystem.kernel.vector import Vector, from_arrow, of_scalars, to_arrow
from querystem.pace import spending


class Frame:
    """The columns of one batch; each becomes a vector when it is first read."""

    def __init__(self, batch: pa.RecordBatch | pa.Table) -> None:
        self.length: int = batch.num_rows
        self._batch = batch
        self._vectors: dict[str, Vector] = {}
        self._spend = spending()

    def column(self, reference: ColumnRef) -> Vector:
        """Return the vector of a column; raise KeyError if the batch lacks it, TypeError for
        another type."""
        vector = self._vectors.get(reference.name)
        if vector is None:
            array = self._batch.column(reference.name)
            if isinstance(array, pa.ChunkedArray):
                array = array.combine_chunks()
            vector = self._vectors[reference.name] = from_arrow(array, reference.type)
        return vector

    def vector(self, expression: Expression) -> Vector:
        """Return a vector of the batch's length, or of length 1 if every row has that value."""
        if isinstance(expression, ColumnRef):
            return self.column(expression)
        # Overflow and division by zero give values that the language defines, so numpy need not
        # warn.
        with np.errstate(all="ignore"):
            return self._vector(expression)

    def _vector(self, expression: Expression) -> Vector:
        match expression:
            case ColumnRef():
                return self.column(expression)
            case Literal(value, type_):
                return of_scalars([value], type_)
            case Call(op, args, _):
                self._spend(_CALL_UNITS + len(args) * _ARGUMENT_UNITS + self.length * _units(op))
                return _OPERATIONS[op](self, expression)
            case Parameter(name, _):
                raise TypeError(f"parameter :{name} has no value; bind one before evaluating")
            case Now():
                raise TypeError("NOW has no value; call at_instant before evaluating")
            case Zone():
                raise TypeError("a time zone is no value")

    def _args(self, call: Call) -> Iterator[Vector]:
        return (self._vector(arg) for arg in call.args)


def evaluate(expression: Expression, batch: pa.RecordBatch | pa.Table) -> pa.Array:
    """Return the value of the expression for every row, in the Arrow form of its type; raise
    TooMuchText for texts of more than MAX_COLUMN_BYTES that the expression makes."""
    # Columns and literals are not computed, so only calls are cut into slices.
    if isinstance(expression, Call) and batch.num_rows > _MAX_ROWS_AT_ONCE:
        return _joined([evaluate(expression, part) for part in _slices(batch, _MAX_ROWS_AT_ONCE)])
    try:
        return to_arrow(Frame(batch).vector(expression), batch.num_rows)
    except TooMuchText:
        return _joined([evaluate(expression, part) for part in _halves(batch)])


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    nbytes = sum(part.nbytes for part in parts)
    if nbytes > MAX_COLUMN_BYTES and pa.types.is_string(parts[0].type):
        raise TooMuchText(nbytes, MAX_COLUMN_BYTES)
    return pa.concat_arrays(parts)


def values_of(expression: Expression, rows: pa.RecordBatch) -> pa.Array:
    """Return the value of the expression for every row; a column is given as it is, without a
    copy."""
    if isinstance(expression, ColumnRef):
        return rows.column(expression.name)
    return evaluate(expression, rows)


def matches(where: Expression, batch: pa.RecordBatch | pa.Table) -> Mask:
    """Return a mask of the rows for which the condition is true, neither false nor NULL."""
    if batch.num_rows > _MAX_ROWS_AT_ONCE:
        parts = _slices(batch, _MAX_ROWS_AT_ONCE)
        return np.concatenate([matches(where, part) for part in parts])
    try:
        true = Frame(batch).vector(where).where_true()
    except TooMuchText:
        return np.concatenate([matches(where, part) for part in _halves(batch)])
    # The mask may be one element that stands for all rows. A broadcast array is read-only, so it is
    # copied.
    return np.array(np.broadcast_to(true, batch.num_rows))


def _halves(batch: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch | pa.Table]:
    return _slices(batch, (batch.num_rows + 1) // 2)


def _slices(batch: pa.RecordBatch | pa.Table, rows: int) -> Iterator[pa.RecordBatch | pa.Table]:
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


# A computed column of texts takes at most this much memory.
MAX_COLUMN_BYTES = 1 << 28


# One operation over this many rows takes a few milliseconds; larger batches are cut.
_MAX_ROWS_AT_ONCE = 1 << 17
# The units of work (`querystem.pace`) of a call, of one of its arguments, and of a row.
_CALL_UNITS, _ARGUMENT_UNITS, _ROW_UNITS = 10_000, 100, 4
_SLOW_ROW_UNITS = 60
_SLOW = frozenset(
    {Op.IN, Op.CAST, Op.ROUND, Op.LOWER, Op.UPPER, Op.TRIM, Op.SUBSTRING, Op.DATE_TRUNC, Op.EXTRACT}
    | {Op.AT_TIME_ZONE}
    | {Op.POWER, Op.EXP, Op.LN, Op.LOG10, Op.CONCAT, Op.LEFT, Op.RIGHT}
)


def _units(op: Op) -> int:
    """Return the units of work of a row; LIKE counts its own as well, by the length of the
    texts."""
    return _SLOW_ROW_UNITS if op in _SLOW else _ROW_UNITS


Operation = Callable[[Frame, Call], Vector]


def _constant(expression: Expression) -> Any:
    if not isinstance(expression, Literal):
        raise TypeError(f"expected a literal, got {expression}")
    return expression.value


def _plain(function: Callable[..., Vector]) -> Operation:
    return lambda frame, call: function(*frame._args(call))


def _typed(function: Callable[..., Vector]) -> Operation:
    return lambda frame, call: function(call.type, *frame._args(call))


def _binary(op: Op) -> Operation:
    return lambda frame, call: binary(op, call.type, *frame._args(call))


def _comparison(op: Op) -> Operation:
    return lambda frame, call: compare(op, *frame._args(call))


def _in(frame: Frame, call: Call) -> Vector:
    constants = [arg for arg in call.args[1:] if isinstance(arg, Literal)]
    if len(constants) != len(call.args) - 1:
        raise TypeError("IN takes literals; write OR for other expressions")
    return logic.is_in(frame._vector(call.args[0]), constants)


def _like(frame: Frame, call: Call) -> Vector:
    operand, pattern = frame._vector(call.args[0]), _constant(call.args[1])
    if pattern is None:
        return frame._vector(Literal(None, call.type))
    return like(operand, pattern)


def _round(frame: Frame, call: Call) -> Vector:
    digits = _constant(call.args[1]) if len(call.args) > 1 else 0
    if digits is None:
        return frame._vector(Literal(None, call.type))
    return round_to(call.type, frame._vector(call.args[0]), digits)


def _date_trunc(frame: Frame, call: Call) -> Vector:
    unit, moment = _constant(call.args[0]), frame._vector(call.args[1])
    if len(call.args) == 2:
        return date_trunc(unit, moment)
    return date_trunc_in(unit, _rules(call.args[2]), moment)


def _at_time_zone(frame: Frame, call: Call) -> Vector:
    return at_time_zone(_rules(call.args[1]), frame._vector(call.args[0]))


def _rules(zone: Expression) -> ZoneRules:
    if not isinstance(zone, Zone) or not zone.rules:
        raise TypeError(f"{zone} has no rules; call with_zones before evaluating")
    return unpacked(zone.name, zone.rules)


def _extract(frame: Frame, call: Call) -> Vector:
    return extract(_constant(call.args[0]), call.type, frame._vector(call.args[1]))


def _extreme(frame: Frame, call: Call) -> Vector:
    return logic.extreme(call.op, call.type, list(frame._args(call)))


_OPERATIONS: dict[Op, Operation] = {
    **{op: _comparison(op) for op in COMPARISONS},
    **{op: _binary(op) for op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.INT_DIV, Op.MOD)},
    Op.IS_DISTINCT: _plain(is_distinct),
    Op.AND: lambda frame, call: logic.conjunction(frame._args(call)),
    Op.OR: lambda frame, call: logic.disjunction(frame._args(call)),
    Op.NOT: _plain(logic.negation),
    Op.IS_NULL: _plain(logic.is_null),
    Op.IN: _in,
    Op.LIKE: _like,
    Op.CASE: lambda frame, call: logic.case(call.type, list(frame._args(call))),
    Op.COALESCE: lambda frame, call: logic.coalesce(call.type, list(frame._args(call))),
    Op.NULLIF: _plain(logic.nullif),
    Op.CAST: lambda frame, call: cast(frame._vector(call.args[0]), call.type),
    Op.NEG: _typed(negate),
    Op.ABS: _typed(absolute),
    Op.ROUND: _round,
    Op.FLOOR: _typed(floor),
    Op.CEIL: _typed(ceil),
    Op.LOWER: _plain(lower),
    Op.UPPER: _plain(upper),
    Op.LENGTH: _plain(length),
    Op.TRIM: _plain(trim),
    Op.SUBSTRING: _plain(substring),
    Op.SIGN: _plain(sign),
    Op.SQRT: _plain(square_root),
    Op.POWER: _plain(power),
    Op.EXP: _plain(exponential),
    Op.LN: _plain(natural_logarithm),
    Op.LOG10: _plain(decimal_logarithm),
    Op.CONCAT: _plain(concatenate),
    Op.LEFT: _plain(left),
    Op.RIGHT: _plain(right),
    Op.REPLACE: _plain(replace),
    Op.SPLIT_PART: _plain(split_part),
    Op.STRPOS: _plain(position),
    Op.STARTS_WITH: _plain(starts_with),
    Op.GREATEST: _extreme,
    Op.LEAST: _extreme,
    Op.DATE_TRUNC: _date_trunc,
    Op.AT_TIME_ZONE: _at_time_zone,
    Op.EXTRACT: _extract,
}
