"""Where a constant cuts the ordered values of a type.

A comparison with a constant of any numeric type is a half-open interval of the operand's own
values: `x < c` are the values below the first one that is at least c. So 0.1 cuts BIGINT between
0 and 1, and 2^53 + 1 cuts DOUBLE above 2^53, without rounding anything.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from datastem.instants import to_micros
from datastem.types import Kind, Type
from querystem.expressions import Literal, Op
from querystem.kernel.integers import INT64_MAX, INT64_MIN

EPOCH_DAY = 719_163  # date(1970, 1, 1).toordinal()


class Edge(enum.Enum):
    """The cuts before the first value and after the last one."""

    START = "start"
    END = "end"


START, END = Edge.START, Edge.END


@dataclass(frozen=True, slots=True)
class Cuts:
    """`at_least`: the first value >= the constant; `above`: the first value > it."""

    at_least: Any
    above: Any

    @property
    def is_value(self) -> bool:
        """Whether the constant is one of the type's values: then `at_least` is that value."""
        return not isinstance(self.at_least, Edge) and self.at_least != self.above


def interval(op: Op, cuts: Cuts) -> tuple[Any, Any]:
    """The half-open interval of the values for which `value op constant` is true.

    `op` is one of = < <= > >=.
    """
    match op:
        case Op.EQ:
            return cuts.at_least, cuts.above
        case Op.LT:
            return START, cuts.at_least
        case Op.LE:
            return START, cuts.above
        case Op.GT:
            return cuts.above, END
        case Op.GE:
            return cuts.at_least, END
    raise ValueError(f"{op.value} has no interval")


def cuts_of(constant: Literal, type_: Type) -> Cuts:
    """How a constant that is not NULL cuts the values of a type it may be compared with.

    Cuts have the form a vector of the type has: microseconds, days, unscaled integers.
    """
    value: Any = constant.value
    match type_.kind:
        case Kind.BIGINT:
            return _bounded(_integer_cuts(value), INT64_MIN, INT64_MAX)
        case Kind.DECIMAL:
            most = 10**type_.precision - 1
            return _bounded(_integer_cuts(value, 10**type_.scale), -most, most)
        case Kind.DOUBLE:
            return _double_cuts(value)
        case Kind.TIMESTAMP:
            return _integer_cuts(to_micros(value))
        case Kind.DATE:
            return _integer_cuts(value.toordinal() - EPOCH_DAY)
        case Kind.TEXT:
            return Cuts(value, f"{value}\0")
        case Kind.BOOLEAN:
            return Cuts(True, END) if value else Cuts(False, True)


def _integer_cuts(value: Any, scale: int = 1) -> Cuts:
    if isinstance(value, int):
        return Cuts(value * scale, value * scale + 1)
    if isinstance(value, float) and not math.isfinite(value):
        return Cuts(START, START) if value < 0 else Cuts(END, END)
    scaled = Fraction(value) * scale
    return Cuts(math.ceil(scaled), math.floor(scaled) + 1)


def _bounded(cuts: Cuts, least: int, most: int) -> Cuts:
    return Cuts(_within(cuts.at_least, least, most), _within(cuts.above, least, most))


def _within(cut: Any, least: int, most: int) -> Any:
    if isinstance(cut, Edge):
        return cut
    if cut > most:
        return END
    return START if cut < least else cut


def _double_cuts(value: Any) -> Cuts:
    if value != value:
        return Cuts(math.nan, END)
    if isinstance(value, float):
        return Cuts(value, _next_double(value))
    exact = Fraction(value)
    nearest = float(exact)
    if exact == nearest:
        return Cuts(nearest, _next_double(nearest))
    first = nearest if exact < nearest else _next_double(nearest)
    return Cuts(first, first)


def _next_double(value: float) -> float:
    """NaN comes after infinity."""
    return math.nan if value == math.inf else math.nextafter(value, math.inf)
