"""Predicates of every kind of template as stored texts, and rows that some of them match."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, Type, decimal_type
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op
from querystem.language.normal_form.normal import normal, sort_key

PRICE = decimal_type(12, 2)
_TYPES = {"a": BIGINT, "b": BIGINT, "station": BIGINT, "lane": BIGINT, "speed": DOUBLE}
_TYPES |= {"price": PRICE, "day": DATE, "name": TEXT, "ok": BOOLEAN}
_DAYS = np.datetime64("2020-01-01")


class Holes:
    """A template under construction: it remembers the values of each of its constants."""

    def __init__(self) -> None:
        self.values: list[list[Any]] = []

    def compare(self, op: Op, name: str, *values: Any) -> Expression:
        """Return `name op ?`, or `name IN (?, …)`, for columns of values as they are in JSON."""
        column = ColumnRef(name, _TYPES[name])
        return Call(op, (column, *[self._hole(_TYPES[name], each) for each in values]), BOOLEAN)

    def _hole(self, type_: Type, values: Any) -> Expression:
        self.values.append(list(values))
        return Literal(f"hole {len(self.values) - 1:03}", type_)


Make = Callable[[Holes, np.random.Generator, int], Expression]


def texts(make: Make, count: int, seed: int = 1) -> pa.Array:
    """Return `count` predicates of a template as the predicates table holds them."""
    holes = Holes()
    where = make(holes, np.random.default_rng(seed), count)
    form = sort_key(_normal(where)).replace("{", "{{").replace("}", "}}")
    for place in range(len(holes.values)):
        form = form.replace(f'"hole {place:03}"', f"{{{place}}}")
    columns = [[json.dumps(value) for value in values] for values in holes.values]
    return pa.array([form.format(*row) for row in zip(*columns, strict=True)])


def _normal(where: Expression) -> Expression:
    """Return the normal form, without moving the constants of IN, which are no values yet."""
    if isinstance(where, Call) and where.op in (Op.AND, Op.OR):
        parts = [_normal(part) for part in where.args]
        flat = [
            inner
            for part in parts
            for inner in (part.args if isinstance(part, Call) and part.op is where.op else (part,))
        ]
        return Call(where.op, tuple(sorted(flat, key=sort_key)), BOOLEAN)
    return where if isinstance(where, Call) and where.op is not Op.NOT else normal(where)


def _and(*parts: Expression) -> Expression:
    return Call(Op.AND, parts, BOOLEAN)


def _interval(holes: Holes, name: str, random: np.random.Generator, count: int) -> Expression:
    ends = np.sort(random.integers(0, 100_000, (count, 2)), axis=1).tolist()
    low, high = zip(*ends, strict=True)
    return _and(holes.compare(Op.GE, name, low), holes.compare(Op.LE, name, high))


def _two_intervals(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    return _and(*[_interval(holes, name, random, count) for name in ("a", "b")])


def _either_interval(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    parts = [_interval(holes, name, random, count) for name in ("a", "b")]
    return Call(Op.OR, tuple(parts), BOOLEAN)


def _station(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    return holes.compare(Op.EQ, "station", random.integers(0, 20_000, count).tolist())


def _speed(holes: Holes, op: Op, random: np.random.Generator, count: int) -> Expression:
    return holes.compare(op, "speed", (random.integers(0, 200, count) / 2).tolist())


def _lane(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    return holes.compare(Op.EQ, "lane", random.integers(1, 9, count).tolist())


def _equal_and_range(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    return _and(_station(holes, random, count), _interval(holes, "a", random, count))


def _two_equal(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    parts = [_lane(holes, random, count), _station(holes, random, count)]
    return _and(*parts, _speed(holes, Op.GT, random, count))


def _any_of(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    stations = np.sort(random.integers(0, 20_000, (count, 3)), axis=1) * 4 + np.arange(3)
    return _and(
        holes.compare(Op.IN, "station", *stations.T.tolist()),
        _speed(holes, Op.GE, random, count),
    )


def _small_family(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    return _and(_lane(holes, random, count), _interval(holes, "a", random, count))


def _decimals(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    low = random.integers(0, 1_000_000, count)
    high = low + random.integers(1, 10_000, count)
    sides = [[f"{value // 100}.{value % 100:02}" for value in each] for each in (low, high)]
    return _and(holes.compare(Op.GE, "price", sides[0]), holes.compare(Op.LT, "price", sides[1]))


def _dates(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    days = (_DAYS + random.integers(0, 3000, count)).astype(str).tolist()
    return _and(holes.compare(Op.GE, "day", days), _interval(holes, "a", random, count))


def _unequal(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    lane = holes.compare(Op.NE, "lane", random.integers(1, 9, count).tolist())
    return _and(lane, _interval(holes, "a", random, count))


def _like(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    patterns = [f"{number}%" for number in random.permutation(count)]
    return _and(holes.compare(Op.LIKE, "name", patterns), _speed(holes, Op.GT, random, count))


def _equal_and_like(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    patterns = [f"{number}%" for number in random.permutation(count)]
    return _and(_station(holes, random, count), holes.compare(Op.LIKE, "name", patterns))


def _boolean(holes: Holes, random: np.random.Generator, count: int) -> Expression:
    is_ok = holes.compare(Op.EQ, "ok", random.integers(0, 2, count).astype(bool).tolist())
    return _and(is_ok, _interval(holes, "a", random, count))


FAMILIES: dict[str, Make] = {
    "two intervals": _two_intervals,
    "= AND range": _equal_and_range,
    "= AND = AND >": _two_equal,
    "IN (3) AND >=": _any_of,
    "OR of two intervals": _either_interval,
    "a small family: = AND range": _small_family,
    "<> AND range": _unequal,
    "DECIMAL range": _decimals,
    "DATE and range": _dates,
    "BOOLEAN and range": _boolean,
    "LIKE AND >": _like,
    "= AND LIKE": _equal_and_like,
}


def rows(count: int, seed: int = 2) -> pa.RecordBatch:
    """Return rows with every column of the predicates."""
    random = np.random.default_rng(seed)
    price = pa.array(random.integers(0, 1_000_000, count)).cast(pa.decimal128(19, 0))
    return pa.record_batch(
        {
            "a": random.integers(0, 100_000, count),
            "b": random.integers(0, 100_000, count),
            "station": random.integers(0, 80_000, count),
            "lane": random.integers(1, 9, count),
            "speed": random.integers(0, 400, count) / 4,
            "price": price.cast(PRICE.arrow),
            "day": pa.array(_DAYS + random.integers(0, 3000, count)),
            "name": [str(number) for number in random.integers(0, 10**9, count)],
            "ok": random.integers(0, 2, count).astype(bool),
        }
    )
