"""Predicates of every shape over one batch, many by equality, the same for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.instants import MINUTE
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
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op

_LONG = "long " * 60
_WIDE = Decimal("123456789012345678901.25")
_NINE = datetime(2026, 11, 16, 9, tzinfo=UTC)
POOLS: dict[str, tuple[Type, Sequence[Any]]] = {
    "a": (BIGINT, (*range(12), 2**63 - 1, -(2**63))),
    "b": (DOUBLE, (0.0, -0.0, 0.5, 7.25, -5e-324, float("nan"), float("inf"), float("-inf"))),
    "t": (TEXT, ("", "a", "ab", "abcdefgh", "abcdefghi", "é日", _LONG, _LONG + "x")),
    "at": (TIMESTAMP, [_NINE + timedelta(minutes=5 * n) for n in range(8)]),
    "day": (DATE, [date(2026, 1, 1) + timedelta(days=n) for n in range(6)]),
    "d": (decimal_type(10, 2), [Decimal(n) / 4 for n in range(-3, 6)]),
    "w": (decimal_type(30, 2), [_WIDE * n for n in range(4)]),
    "ok": (BOOLEAN, (True, False)),
}
AFTER_NINE = Call(Op.SUB, (ColumnRef("at", TIMESTAMP), Literal(_NINE, TIMESTAMP)), DURATION)
_ORDERED = ("a", "b", "at", "day", "d", "w")


def batch(random: np.random.Generator, length: int, nulls: float = 0.1) -> pa.RecordBatch:
    arrays = []
    for type_, pool in POOLS.values():
        values = [pool[n] for n in random.integers(0, len(pool), length)]
        missing = random.random(length) < nulls
        values = [
            None if is_missing else value for is_missing, value in zip(missing, values, strict=True)
        ]
        arrays.append(pa.array(values, type_.arrow, from_pandas=False))
    return pa.record_batch(arrays, names=list(POOLS))


class Shapes:
    """Makes predicates."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def predicate(self) -> Expression:
        """Return a conjunction, most often of equalities and a little more; else anything."""
        if self._random.random() < 0.2:
            return self._any(2)
        names = self._random.choice(["a", "t", "b", "at", "d"], self._count(1, 2), replace=False)
        fixed = [self._fixed(str(name)) for name in names]
        more = [self._any(1) for _ in range(self._count(0, 2))]
        parts = [*fixed, *more]
        return parts[0] if len(parts) == 1 else Call(Op.AND, tuple(parts), BOOLEAN)

    def _fixed(self, name: str) -> Expression:
        if self._random.random() < 0.2:
            return self._in(name)
        return self._compare(Op.EQ, name)

    def _any(self, depth: int) -> Expression:
        kind = self._count(0, 8)
        if depth and kind < 2:
            op = (Op.AND, Op.OR)[kind]
            return Call(op, tuple(self._any(depth - 1) for _ in range(2)), BOOLEAN)
        if depth and kind == 2:
            return Call(Op.NOT, (self._any(depth - 1),), BOOLEAN)
        match kind:
            case 3:
                pattern = Literal(str(self._pick(["a%", "%b", "_", "ab%"])), TEXT)
                return Call(Op.LIKE, (self._column("t"), pattern), BOOLEAN)
            case 4:
                return Call(Op.IS_NULL, (self._column(self._pick(list(POOLS))),), BOOLEAN)
            case 5:
                more = Call(Op.ADD, (self._column("a"), Literal(3, BIGINT)), BIGINT)
                return Call(Op.LT, (self._column("b"), more), BOOLEAN)
            case 6:
                return self._in(self._pick(["a", "t", "w", "b"]))
            case 8:
                return self._duration()
        op = self._pick([Op.LT, Op.LE, Op.GT, Op.GE, Op.NE, Op.EQ])
        return self._compare(op, self._pick(_ORDERED))

    def _duration(self) -> Expression:
        """Return the time since nine, compared with a duration."""
        minutes = Literal(self._count(-1, 8) * 5 * MINUTE, DURATION)
        return Call(self._pick([Op.LT, Op.GE, Op.EQ, Op.NE]), (AFTER_NINE, minutes), BOOLEAN)

    def _in(self, name: str) -> Expression:
        type_, pool = POOLS[name]
        chosen = [Literal(self._pick(pool), type_) for _ in range(self._count(1, 4))]
        return Call(Op.IN, (self._column(name), *chosen), BOOLEAN)

    def _compare(self, op: Op, name: str) -> Expression:
        type_, pool = POOLS[name]
        return Call(op, (self._column(name), Literal(self._pick(pool), type_)), BOOLEAN)

    def _column(self, name: str) -> ColumnRef:
        return ColumnRef(name, POOLS[name][0])

    def _pick(self, values: Sequence[Any]) -> Any:
        return values[int(self._random.integers(len(values)))]

    def _count(self, least: int, most: int) -> int:
        return int(self._random.integers(least, most + 1))
