"""What each operation means, by example."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from datastem.instants import DAY, MAX_INSTANT, MIN_INSTANT, SECOND, from_micros
from datastem.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    TEXT,
    TIMESTAMP,
    Type,
    decimal_type,
)
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, Parameter
from querystem.kernel import evaluate, matches
from tests.oracle import evaluate_row
from tests.querystem.test_kernel_oracle import same

MOST, LEAST = 2**63 - 1, -(2**63)
NAN, INF = float("nan"), float("inf")
MONEY, WIDE, UNIT = decimal_type(10, 2), decimal_type(38, 0), decimal_type(38, 38)
NINE = datetime(2026, 11, 16, 9, tzinfo=UTC)


def value_of(op: Op, type_: Type, *args: tuple[Any, Type]) -> Any:
    """Over a column for each argument, twice: as columns and as literals, and by the oracle."""
    columns = {f"c{i}": pa.array([value, None], kind.arrow) for i, (value, kind) in enumerate(args)}
    batch = pa.record_batch(columns)
    literals = tuple(Literal(value, kind) for value, kind in args)
    references = tuple(ColumnRef(f"c{i}", kind) for i, (_, kind) in enumerate(args))
    constant = evaluate(Call(op, literals, type_), batch).to_pylist()
    assert same(constant[0], constant[1])
    assert same(constant[0], evaluate_row(Call(op, literals, type_), {}))
    if op not in (Op.IN, Op.LIKE, Op.EXTRACT, Op.DATE_TRUNC) and (op is not Op.ROUND):
        assert same(evaluate(Call(op, references, type_), batch)[0].as_py(), constant[0])
    return constant[0]


COMPARED = [
    ((2**53 + 1, BIGINT), (2.0**53, DOUBLE), 1),
    ((MOST, BIGINT), (2.0**63, DOUBLE), -1),
    ((LEAST, BIGINT), (-(2.0**63), DOUBLE), 0),
    ((5, BIGINT), (INF, DOUBLE), -1),
    ((5, BIGINT), (NAN, DOUBLE), -1),
    ((NAN, DOUBLE), (NAN, DOUBLE), 0),
    ((NAN, DOUBLE), (INF, DOUBLE), 1),
    ((-0.0, DOUBLE), (0.0, DOUBLE), 0),
    ((Decimal("0.10"), MONEY), (0.1, DOUBLE), -1),
    ((Decimal("0.50"), MONEY), (0.5, DOUBLE), 0),
    ((Decimal("0.00"), MONEY), (5e-324, DOUBLE), -1),
    ((Decimal(10**38 - 1), WIDE), (1e38, DOUBLE), 1),
    ((Decimal(10**38 - 1), WIDE), (-INF, DOUBLE), 1),
    ((Decimal(10**38 - 1), WIDE), (Decimal("0." + "9" * 38), UNIT), 1),
    ((Decimal("7.00"), MONEY), (7, BIGINT), 0),
    ((Decimal("0.0001"), decimal_type(4, 4)), (-1, BIGINT), 1),
    ((LEAST, BIGINT), (Decimal(LEAST - 1), WIDE), 1),
    (("\U0001d11e", TEXT), ("\uffee", TEXT), 1),
    (("a", TEXT), ("a\0", TEXT), -1),
    (("Z", TEXT), ("a", TEXT), -1),
    ((False, BOOLEAN), (True, BOOLEAN), -1),
    ((date(1969, 12, 31), DATE), (date(1970, 1, 1), DATE), -1),
]


@pytest.mark.parametrize(("lhs", "rhs", "sign"), COMPARED)
def test_comparisons(lhs: Any, rhs: Any, sign: int) -> None:
    for a, b, way in ((lhs, rhs, sign), (rhs, lhs, -sign)):
        assert value_of(Op.LT, BOOLEAN, a, b) is (way < 0)
        assert value_of(Op.LE, BOOLEAN, a, b) is (way <= 0)
        assert value_of(Op.EQ, BOOLEAN, a, b) is (way == 0)
        assert value_of(Op.NE, BOOLEAN, a, b) is (way != 0)
        assert value_of(Op.IS_DISTINCT, BOOLEAN, a, b) is (way != 0)
        assert value_of(Op.GE, BOOLEAN, a, b) is (way >= 0)
        assert value_of(Op.GT, BOOLEAN, a, b) is (way > 0)
        assert value_of(Op.IN, BOOLEAN, a, b) is (way == 0)


CALCULATED = [
    (Op.ADD, BIGINT, [MOST, 1], None),
    (Op.ADD, BIGINT, [MOST, 0], MOST),
    (Op.SUB, BIGINT, [LEAST, 1], None),
    (Op.MUL, BIGINT, [2**32, 2**31], None),
    (Op.MUL, BIGINT, [-(2**32), 2**31], LEAST),
    (Op.NEG, BIGINT, [LEAST], None),
    (Op.ABS, BIGINT, [LEAST], None),
    (Op.ABS, BIGINT, [-7], 7),
    (Op.INT_DIV, BIGINT, [LEAST, -1], None),
    (Op.INT_DIV, BIGINT, [-7, 2], -3),
    (Op.INT_DIV, BIGINT, [7, 0], None),
    (Op.MOD, BIGINT, [-7, 2], -1),
    (Op.MOD, BIGINT, [7, -2], 1),
    (Op.MOD, BIGINT, [LEAST, -1], 0),
    (Op.MOD, BIGINT, [7, 0], None),
    (Op.DIV, DOUBLE, [1.0, 0.0], None),
    (Op.DIV, DOUBLE, [1.0, -0.0], None),
    (Op.DIV, DOUBLE, [NAN, 0.0], None),
    (Op.MUL, DOUBLE, [1e300, 1e300], INF),
    (Op.MOD, DOUBLE, [-7.5, 2.0], -1.5),
    (Op.MOD, DOUBLE, [INF, 2.0], NAN),
    (Op.FLOOR, DOUBLE, [-0.5], -1.0),
    (Op.CEIL, BIGINT, [5], 5),
]


@pytest.mark.parametrize(("op", "type_", "args", "expected"), CALCULATED)
def test_arithmetic(op: Op, type_: Type, args: list[Any], expected: Any) -> None:
    assert same(value_of(op, type_, *[(arg, type_) for arg in args]), expected)


DECIMALS = [
    (Op.ADD, WIDE, [(10**38 - 1, WIDE), (1, WIDE)], None),
    (Op.MUL, WIDE, [(10**19, WIDE), (10**18, WIDE)], 10**37),
    (Op.MUL, WIDE, [(10**19, WIDE), (10**19, WIDE)], None),
    (Op.MUL, MONEY, [("0.05", MONEY), ("0.10", MONEY)], "0.01"),
    (Op.DIV, decimal_type(38, 6), [("1.00", MONEY), ("3.00", MONEY)], "0.333333"),
    (Op.DIV, decimal_type(38, 6), [("-2.00", MONEY), ("3.00", MONEY)], "-0.666667"),
    (Op.DIV, decimal_type(38, 6), [("1.00", MONEY), ("0.00", MONEY)], None),
    (Op.MOD, MONEY, [("-7.50", MONEY), ("2.00", MONEY)], "-1.50"),
    (Op.FLOOR, decimal_type(9, 0), [("-0.01", MONEY)], "-1"),
    (Op.CEIL, decimal_type(9, 0), [("0.01", MONEY)], "1"),
    (Op.SUB, decimal_type(38, 38), [("0." + "9" * 38, UNIT), (10**37, WIDE)], None),
]


@pytest.mark.parametrize(("op", "type_", "args", "expected"), DECIMALS)
def test_decimals(op: Op, type_: Type, args: list[Any], expected: Any) -> None:
    got = value_of(op, type_, *[(Decimal(value), kind) for value, kind in args])
    assert got == (None if expected is None else Decimal(expected))


ROUNDED = [
    ((2.5, DOUBLE), 0, DOUBLE, 3.0),
    ((-2.5, DOUBLE), 0, DOUBLE, -3.0),
    ((0.49999999999999994, DOUBLE), 0, DOUBLE, 0.0),
    ((2.675, DOUBLE), 2, DOUBLE, 2.68),
    ((1250.0, DOUBLE), -2, DOUBLE, 1300.0),
    ((1e300, DOUBLE), 5, DOUBLE, 1e300),
    ((1.7e308, DOUBLE), -308, DOUBLE, INF),
    ((NAN, DOUBLE), 2, DOUBLE, NAN),
    ((15, BIGINT), -1, BIGINT, 20),
    ((-15, BIGINT), -1, BIGINT, -20),
    ((MOST, BIGINT), -1, BIGINT, None),
    ((MOST, BIGINT), -38, BIGINT, 0),
    ((Decimal("2.675"), decimal_type(4, 3)), 2, decimal_type(4, 2), Decimal("2.68")),
    ((Decimal("95.00"), MONEY), -1, decimal_type(9, 0), Decimal("100")),
]


@pytest.mark.parametrize(("value", "digits", "type_", "expected"), ROUNDED)
def test_round(value: tuple[Any, Type], digits: int, type_: Type, expected: Any) -> None:
    assert same(value_of(Op.ROUND, type_, value, (digits, BIGINT)), expected)


CASTS = [
    ((2.9, DOUBLE), BIGINT, 2),
    ((-2.9, DOUBLE), BIGINT, -2),
    ((NAN, DOUBLE), BIGINT, None),
    ((2.0**63, DOUBLE), BIGINT, None),
    ((-(2.0**63), DOUBLE), BIGINT, LEAST),
    ((Decimal("-2.90"), MONEY), BIGINT, -2),
    ((0.285, DOUBLE), decimal_type(3, 2), Decimal("0.29")),
    ((9.995, DOUBLE), decimal_type(3, 2), None),
    ((INF, DOUBLE), WIDE, None),
    ((Decimal("0.1"), decimal_type(2, 1)), DOUBLE, 0.1),
    ((2**53 + 1, BIGINT), DOUBLE, 2.0**53),
    ((True, BOOLEAN), BIGINT, 1),
    ((" 12 ", TEXT), BIGINT, 12),
    (("12.0", TEXT), BIGINT, None),
    (("1_0", TEXT), BIGINT, None),
    (("٣", TEXT), BIGINT, None),
    (("9223372036854775808", TEXT), BIGINT, None),
    (("1e3", TEXT), DOUBLE, 1000.0),
    (("-Infinity", TEXT), DOUBLE, -INF),
    (("0x10", TEXT), DOUBLE, None),
    (("1.005", TEXT), MONEY, Decimal("1.01")),
    (("1e30", TEXT), MONEY, None),
    (("Yes", TEXT), BOOLEAN, True),
    (("perhaps", TEXT), BOOLEAN, None),
    (("2024-02-29", TEXT), DATE, date(2024, 2, 29)),
    (("2023-02-29", TEXT), DATE, None),
    (("2026-11-16T10:00:00+01:00", TEXT), TIMESTAMP, NINE),
    (("2026-11-16 09:00", TEXT), TIMESTAMP, NINE),
    (("2026-11-16 09:00:00.0000001", TEXT), TIMESTAMP, None),
    (("0001-01-01 00:00+01:00", TEXT), TIMESTAMP, None),
    ((1.0, DOUBLE), TEXT, "1.0"),
    ((-0.0, DOUBLE), TEXT, "0.0"),
    ((1e22, DOUBLE), TEXT, "1e+22"),
    ((-INF, DOUBLE), TEXT, "-Infinity"),
    ((Decimal("-0.05"), MONEY), TEXT, "-0.05"),
    ((NINE, TIMESTAMP), TEXT, "2026-11-16 09:00:00"),
    ((NINE.replace(year=1, microsecond=250), TIMESTAMP), TEXT, "0001-11-16 09:00:00.000250"),
    ((datetime(1969, 12, 31, 23, 59, tzinfo=UTC), TIMESTAMP), DATE, date(1969, 12, 31)),
    ((date(1, 1, 1), DATE), TIMESTAMP, datetime(1, 1, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize(("value", "type_", "expected"), CASTS)
def test_casts(value: tuple[Any, Type], type_: Type, expected: Any) -> None:
    assert same(value_of(Op.CAST, type_, value), expected)


TEXTS = [
    (Op.LENGTH, BIGINT, ["日𝄞e\u0301"], 4),
    (Op.SUBSTRING, TEXT, ["日𝄞abc", 2, 2], "𝄞a"),
    (Op.SUBSTRING, TEXT, ["abc", -1, 3], "a"),
    (Op.SUBSTRING, TEXT, ["abc", 0], "abc"),
    (Op.SUBSTRING, TEXT, ["abc", 2, MOST], "bc"),
    (Op.SUBSTRING, TEXT, ["abc", LEAST, MOST], ""),
    (Op.SUBSTRING, TEXT, ["abc", MOST, MOST], ""),
    (Op.SUBSTRING, TEXT, ["abc", 1, -1], None),
    (Op.TRIM, TEXT, ["  a\t "], "a\t"),
    (Op.UPPER, TEXT, ["éж日"], "ÉЖ日"),
    (Op.LIKE, BOOLEAN, ["a\nb", "a_b"], True),
    (Op.LIKE, BOOLEAN, ["日本", "_本"], True),
    (Op.LIKE, BOOLEAN, ["a%b", "a\\%b"], True),
    (Op.LIKE, BOOLEAN, ["axb", "a\\%b"], False),
    (Op.LIKE, BOOLEAN, ["a.b", "a.%"], True),
    (Op.LIKE, BOOLEAN, ["aXb", "a.%"], False),
    (Op.LIKE, BOOLEAN, ["a\n", "a"], False),
    (Op.LIKE, BOOLEAN, ["A", "a"], False),
    (Op.LIKE, BOOLEAN, ["xaybz", "%a%b%"], True),
]


@pytest.mark.parametrize(("op", "type_", "args", "expected"), TEXTS)
def test_texts(op: Op, type_: Type, args: list[Any], expected: Any) -> None:
    typed = [(arg, TEXT if isinstance(arg, str) else BIGINT) for arg in args]
    assert same(value_of(op, type_, *typed), expected)


BEFORE = datetime(1969, 12, 31, 23, 59, 58, 750_001, tzinfo=UTC)
MOMENTS = [
    ("year", 1969, datetime(1969, 1, 1, tzinfo=UTC)),
    ("quarter", 4, datetime(1969, 10, 1, tzinfo=UTC)),
    ("month", 12, datetime(1969, 12, 1, tzinfo=UTC)),
    ("week", 1, datetime(1969, 12, 29, tzinfo=UTC)),
    ("day", 31, datetime(1969, 12, 31, tzinfo=UTC)),
    ("hour", 23, datetime(1969, 12, 31, 23, tzinfo=UTC)),
    ("minute", 59, datetime(1969, 12, 31, 23, 59, tzinfo=UTC)),
    ("second", 58.750001, datetime(1969, 12, 31, 23, 59, 58, tzinfo=UTC)),
    ("dow", 3, None),
    ("doy", 365, None),
    ("millisecond", None, datetime(1969, 12, 31, 23, 59, 58, 750_000, tzinfo=UTC)),
]


@pytest.mark.parametrize(("unit", "field", "start"), MOMENTS)
def test_moments(unit: str, field: Any, start: Any) -> None:
    args = (unit, TEXT), (BEFORE, TIMESTAMP)
    if field is not None:
        type_ = DOUBLE if isinstance(field, float) else BIGINT
        assert same(value_of(Op.EXTRACT, type_, *args), field)
    if start is not None:
        assert value_of(Op.DATE_TRUNC, TIMESTAMP, *args) == start


FIRST, LAST = from_micros(MIN_INSTANT), from_micros(MAX_INSTANT)
TIMES = [
    (Op.SUB, DURATION, [(NINE, TIMESTAMP), (NINE, TIMESTAMP)], 0),
    (Op.SUB, DURATION, [(FIRST, TIMESTAMP), (LAST, TIMESTAMP)], MIN_INSTANT - MAX_INSTANT),
    (Op.ADD, TIMESTAMP, [(NINE, TIMESTAMP), (DAY, DURATION)], NINE.replace(day=17)),
    (Op.SUB, TIMESTAMP, [(NINE, TIMESTAMP), (-DAY, DURATION)], NINE.replace(day=17)),
    (Op.ADD, TIMESTAMP, [(LAST, TIMESTAMP), (1, DURATION)], None),
    (Op.ADD, TIMESTAMP, [(LAST, TIMESTAMP), (0, DURATION)], LAST),
    (Op.SUB, TIMESTAMP, [(FIRST, TIMESTAMP), (1, DURATION)], None),
    (Op.ADD, TIMESTAMP, [(NINE, TIMESTAMP), (MOST, DURATION)], None),
    (Op.SUB, TIMESTAMP, [(NINE, TIMESTAMP), (LEAST, DURATION)], None),
    (Op.ADD, DURATION, [(MOST, DURATION), (1, DURATION)], None),
    (Op.SUB, DURATION, [(LEAST, DURATION), (1, DURATION)], None),
    (Op.NEG, DURATION, [(LEAST, DURATION)], None),
    (Op.ABS, DURATION, [(-DAY, DURATION)], DAY),
    (Op.MUL, DURATION, [(DAY, DURATION), (MOST, BIGINT)], None),
    (Op.MUL, DURATION, [(3, DURATION), (0.5, DOUBLE)], 2),
    (Op.MUL, DURATION, [(-3, DURATION), (0.5, DOUBLE)], -2),
    (Op.MUL, DURATION, [(1, DURATION), (0.49999999999999994, DOUBLE)], 0),
    (Op.MUL, DURATION, [(1, DURATION), (2.0**63, DOUBLE)], None),
    (Op.MUL, DURATION, [(1, DURATION), (-(2.0**63), DOUBLE)], LEAST),
    (Op.MUL, DURATION, [(0, DURATION), (INF, DOUBLE)], None),
    (Op.MUL, DURATION, [(1, DURATION), (NAN, DOUBLE)], None),
    (Op.MUL, DURATION, [(10, DURATION), (Decimal("0.25"), MONEY)], 3),
]


@pytest.mark.parametrize(("op", "type_", "args", "expected"), TIMES)
def test_times(op: Op, type_: Type, args: list[Any], expected: Any) -> None:
    assert same(value_of(op, type_, *args), expected)


@pytest.mark.parametrize(
    ("unit", "micros", "expected"),
    [
        ("second", 90 * SECOND + 250_000, 90.25),
        ("minute", -90 * SECOND, -1.5),
        ("day", DAY // 2, 0.5),
        ("week", 7 * DAY, 1.0),
        ("millisecond", 1, 0.001),
        ("second", MOST, 9223372036854.775),
        ("microsecond", LEAST, LEAST),
    ],
)
def test_a_duration_in_a_unit(unit: str, micros: int, expected: Any) -> None:
    type_ = BIGINT if unit == "microsecond" else DOUBLE
    assert same(value_of(Op.EXTRACT, type_, (unit, TEXT), (micros, DURATION)), expected)


def test_logic_has_three_values() -> None:
    def got(op: Op, *args: bool | None) -> Any:
        return value_of(op, BOOLEAN, *[(arg, BOOLEAN) for arg in args])

    assert [got(Op.AND, None, arg) for arg in (True, False, None)] == [None, False, None]
    assert [got(Op.OR, None, arg) for arg in (True, False, None)] == [True, None, None]
    assert [got(Op.NOT, arg) for arg in (True, False, None)] == [False, True, None]
    assert got(Op.IS_DISTINCT, None, None) is False
    assert got(Op.IS_DISTINCT, None, False) is True


def test_in_with_null_is_never_false() -> None:
    def got(*args: int | None) -> Any:
        return value_of(Op.IN, BOOLEAN, *[(arg, BIGINT) for arg in args])

    assert [got(1, 1, None), got(2, 1, None), got(2, 1), got(None, 1)] == [True, None, False, None]


def test_a_slice_of_a_larger_batch_is_read_from_its_offset() -> None:
    kinds = {"n": BIGINT, "x": DOUBLE, "d": MONEY, "t": TEXT, "b": BOOLEAN, "at": TIMESTAMP}
    values: dict[str, list[Any]] = {
        "n": [1, None, 3, 4, 5],
        "x": [1.5, 2.5, None, 4.5, 5.5],
        "d": [Decimal(i) for i in range(5)],
        "t": ["a", "b", "c", None, "e"],
        "b": [True, False, None, True, False],
        "at": [NINE, None, NINE, NINE, NINE],
    }
    whole = pa.record_batch({name: pa.array(values[name], kinds[name].arrow) for name in kinds})
    for name, kind in kinds.items():
        got = evaluate(Call(Op.COALESCE, (ColumnRef(name, kind),) * 2, kind), whole.slice(2, 3))
        assert got.to_pylist() == whole.column(name).to_pylist()[2:]
    table = pa.Table.from_batches([whole.slice(0, 2), whole.slice(2)])
    is_large = Call(Op.GT, (ColumnRef("n", BIGINT), Literal(2, BIGINT)), BOOLEAN)
    assert matches(is_large, table).tolist() == [False, False, True, True, True]


def test_what_is_null_may_hold_anything_underneath() -> None:
    raw = np.array([LEAST, 7], np.int64)
    array = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(raw)])
    batch = pa.record_batch({"n": array})
    assert evaluate(Call(Op.NEG, (ColumnRef("n", BIGINT),), BIGINT), batch).to_pylist() == [
        None,
        -7,
    ]


def test_misuse_is_refused() -> None:
    batch = pa.record_batch({"n": pa.array([1], pa.int32())})
    with pytest.raises(TypeError, match="expected Arrow int64"):
        evaluate(ColumnRef("n", BIGINT), batch)
    with pytest.raises(KeyError):
        evaluate(ColumnRef("m", BIGINT), batch)
    with pytest.raises(TypeError, match=":limit has no value"):
        evaluate(Parameter("limit", BIGINT), batch)
    unknown: Expression = Call(Op.CAST, (Literal(True, BOOLEAN),), TIMESTAMP)
    with pytest.raises(TypeError, match="can't be cast"):
        evaluate(unknown, batch)
