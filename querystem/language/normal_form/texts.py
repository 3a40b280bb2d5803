"""Texts of expressions, windows and REFRESH, for people.

They are written in the language itself, with brackets only if they are needed. Binding the text of
a window gives the same window.
"""

from __future__ import annotations

import datetime

from datastem.calendar import Unit
from datastem.instants import format_instant, to_micros
from datastem.types import Kind, Type
from querystem.expressions import (
    TRUE,
    Call,
    ColumnRef,
    Expression,
    Literal,
    Now,
    Op,
    Parameter,
    Scalar,
    Zone,
)
from querystem.language.tokens.durations import UNITS, write_duration, write_interval
from querystem.language.tokens.names import write_name
from querystem.legs import Leg
from querystem.refresh import Refresh, RefreshEvery, RefreshOn, points_of
from results.window import (
    UNBOUNDED,
    Bound,
    CalendarBound,
    CountWindow,
    RowWindow,
    TimeWindow,
    Window,
)

_WEAKEST_FIRST = (
    {Op.OR},
    {Op.AND},
    {Op.NOT},
    {Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.IS_DISTINCT, Op.LIKE, Op.IN, Op.IS_NULL},
    {Op.CONCAT},
    {Op.ADD, Op.SUB},
    {Op.MUL, Op.DIV, Op.INT_DIV, Op.MOD},
    {Op.NEG},
    {Op.AT_TIME_ZONE},
)
_STRENGTH = {op: strength for strength, ops in enumerate(_WEAKEST_FIRST) for op in ops}
_CLOSED = len(_WEAKEST_FIRST)


def expression_text(expression: Expression) -> str:
    match expression:
        case Literal(int() as micros, Type(Kind.DURATION)):
            return write_interval(micros)
        case Literal(value, _):
            return literal_text(value)
        case ColumnRef(name, _):
            return write_name(name)
        case Parameter(name, type_) if name.startswith(f"{type_} "):
            # A claim of a row policy, whose parameter has its type in front.
            return f"CAST(claim({literal_text(name.removeprefix(f'{type_} '))}) AS {type_})"
        case Parameter(name, _):
            return f":{name}"
        case Now():
            return "NOW"
        case Zone(name):
            return literal_text(name)
        case Call():
            return _call_text(expression)


def literal_text(value: Scalar) -> str:
    match value:
        case None | bool():
            return "NULL" if value is None else str(value).upper()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime.datetime():
            return f"'{format_instant(to_micros(value))}'"
        case datetime.date():
            return f"'{value.isoformat()}'"
        case float():
            return repr(value)
    return str(value)


def _call_text(call: Call) -> str:
    strength = _STRENGTH.get(call.op, _CLOSED)
    args = [_bracketed(arg, strength) for arg in call.args]
    match call.op:
        case Op.NOT:
            return f"NOT {args[0]}"
        case Op.NEG:
            return f"-{args[0]}"
        case Op.IS_NULL:
            return f"{args[0]} IS NULL"
        case Op.IN:
            return f"{args[0]} IN ({', '.join(args[1:])})"
        case Op.CAST:
            return f"CAST({args[0]} AS {call.type})"
        case Op.CASE:
            return _case_text(args)
    if strength == _CLOSED:
        return f"{call.op.value}({', '.join(args)})"
    return f" {call.op.value.upper()} ".join(args)


def _case_text(args: list[str]) -> str:
    branches = zip(args[:-1:2], args[1::2], strict=True)
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
    return f"CASE {whens} ELSE {args[-1]} END"


def compared_text(operand: Expression) -> str:
    """Return the text of an operand as it stands beside a comparison."""
    return _bracketed(operand, _STRENGTH[Op.EQ])


def _bracketed(arg: Expression, around: int) -> str:
    text = expression_text(arg)
    inner = _STRENGTH.get(arg.op, _CLOSED) if isinstance(arg, Call) else _CLOSED
    return f"({text})" if inner <= around < _CLOSED else text


_LARGER = 2 * max(UNITS.values())


def window_text(window: Window) -> str:
    """Return the window clause in normal form; binding it again gives the same window."""
    match window:
        case TimeWindow():
            return _time_text(window)
        case RowWindow(begin, end):
            last = Bound(end.offset - 1, end.relative)
            return f"BEGIN {_row_text(begin)} END {_row_text(last)}"
        case CountWindow():
            return _count_text(window)


def leg_window_text(leg: Leg) -> str:
    """Return the window of a leg as it stands in WINDOW(), with its REFRESH; empty if rows are
    looked up."""
    if leg.as_of is not None:
        return ""
    return f"{window_text(leg.written_window)} {refresh_text(leg.refresh)}".rstrip()


def _time_text(window: TimeWindow) -> str:
    if window == UNBOUNDED:
        return "UNBOUNDED"
    begin, end = window.begin, window.end
    if isinstance(begin, CalendarBound):
        return _during_text(begin)
    assert not isinstance(end, CalendarBound), "only a calendar window ends with a unit"
    if window.slide is not None:
        assert begin and begin.relative and end is None, "only RANGE slides"
        return f"{_range_text(begin)} SLIDE {write_duration(window.slide)}"
    if begin and begin.relative and end is None and _reads_as_range(begin.offset):
        return _range_text(begin)
    last = Bound(0, True) if end is None else Bound(end.offset - 1, end.relative)
    first = "'0001-01-01 00:00:00'" if begin is None else _instant_text(begin)
    return f"BEGIN {first} END {_instant_text(last)}"


def _during_text(begin: CalendarBound) -> str:
    """Return the calendar window that begins there, in normal form."""
    zone = f" AT TIME ZONE '{begin.zone}'" if begin.zone else ""
    if begin.unit is Unit.DAY and begin.back <= 1:
        return f"DURING {('TODAY', 'YESTERDAY')[begin.back]}{zone}"
    if not begin.back:
        return f"DURING THIS {begin.unit}{zone}"
    word, *sunday = begin.unit.split(" ")
    plural = f"{word}S" if begin.back > 1 else word
    count = f"{begin.back} " if begin.back > 1 else ""
    return f"DURING LAST {count}{' '.join([plural, *sunday])}{zone}"


def _range_text(begin: Bound) -> str:
    return f"RANGE {write_duration(1 - begin.offset)}"


def _reads_as_range(offset: int) -> bool:
    return offset <= 0 and _unit_size(1 - offset) > _unit_size(-offset)


def _unit_size(micros: int) -> int:
    return max(size for size in UNITS.values() if micros % size == 0) if micros else _LARGER


def _instant_text(bound: Bound) -> str:
    if not bound.relative:
        return f"'{format_instant(bound.offset)}'"
    sign = "-" if bound.offset < 0 else "+"
    return f"NOW {sign} {write_duration(abs(bound.offset))}" if bound.offset else "NOW"


def _row_text(bound: Bound) -> str:
    if not bound.relative:
        return f"ROW {bound.offset}"
    return f"ROW LAST - {-bound.offset}" if bound.offset else "ROW LAST"


def _count_text(window: CountWindow) -> str:
    text = f"ROWS {window.rows}"
    if window.slide is not None:
        text += f" SLIDE {window.slide}"
    if window.partition_by:
        text += f" PARTITION BY {', '.join(map(write_name, window.partition_by))}"
    return text


def refresh_text(refresh: Refresh | None) -> str:
    """Return the REFRESH clause in normal form; empty without one."""
    match refresh:
        case None:
            return ""
        case _:
            return f"REFRESH {' OR '.join(map(_points_text, points_of(refresh)))}"


def _points_text(points: RefreshEvery | RefreshOn) -> str:
    match points:
        case RefreshEvery(period, offset):
            begin = f" OFFSET {write_duration(offset)}" if offset else ""
            return f"EVERY {write_duration(period)}{begin}"
        case RefreshOn(stream, where):
            condition = "" if where == TRUE else f" WHERE {expression_text(where)}"
            return f"ON {write_name(stream)}{condition}"
