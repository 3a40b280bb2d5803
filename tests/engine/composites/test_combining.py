"""Every combination is found exactly once, whatever the order of arrival."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from datastem.arrays import Int64s
from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT, Type, decimal_type
from psoup.engine.composites.combining import (
    CombinationRows,
    JoinPlan,
    LegJoin,
    Runs,
    TooManyCombinations,
)
from psoup.engine.composites.lookup.edges import KeyEdge, numbered
from psoup.engine.composites.lookup.hashes import HashKey, buckets
from psoup.engine.composites.lookup.probes import SideRows
from psoup.engine.composites.lookup.ranges import RangeKey
from psoup.engine.composites.runs import KeyRun, LegBatch, bucket_edges, key_rows, sorted_rows
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op
from querystem.join.factors import Comparison
from querystem.links import edge_of
from tests.support.lengths import short_first

# Types that can all be compared with each other, with values that several of them share.
MONEY = decimal_type(12, 2)
WIDE = decimal_type(38, 2)
NUMBERS: dict[Type, list[Any]] = {
    BIGINT: [None, 1, 0, 2, -3, 2**53 + 1],
    DOUBLE: [None, 1.0, 0.0, -0.0, 0.5, 2.0, -3.0, float(2**53), float("nan")],
    MONEY: [None, Decimal("1.00"), Decimal("0.00"), Decimal("0.50"), Decimal("-3.00")],
    WIDE: [None, Decimal("1.00"), Decimal("0.50"), Decimal("90071992547409930000.00")],
}
TEXTS: dict[Type, list[Any]] = {TEXT: [None, "a", "", "ä", "a" * 40]}
RANGES = (Op.LT, Op.LE, Op.GT, Op.GE)


def fixed_runs(runs: Sequence[KeyRun]) -> Runs:
    return lambda _: runs


def equal(first: Any, second: Any) -> bool:
    return compared(Op.EQ, first, second)


def compared(op: Op, first: Any, second: Any) -> bool:
    """Compare two values as the language does: NULL makes nothing true, NaN is the greatest."""
    if first is None or second is None:
        return False
    # Numbers of all types compare exactly in Python, once NaN is out of the way.
    lhs, rhs = ((value != value, 0 if value != value else value) for value in (first, second))
    return {
        Op.EQ: lhs == rhs,
        Op.LT: lhs < rhs,
        Op.LE: lhs <= rhs,
        Op.GT: lhs > rhs,
        Op.GE: lhs >= rhs,
    }[op]


def comparison(op: Op, first: Expression, second: Expression) -> Expression:
    return Call(op, (first, second), BOOLEAN)


def equality(first: ColumnRef, second: ColumnRef) -> KeyEdge:
    """Return the only edge of two legs, an equality."""
    return numbered([edge_of((0, 1), [comparison(Op.EQ, first, second)])], None)[0]


@dataclass
class Leg:
    """The rows of a leg, in the order of their ids: (ts, key values)."""

    number: int
    types: list[Type]
    values: list[list[Any]]
    rows: list[tuple[int, list[Any]]] = field(default_factory=list)

    def add(self, rng: random.Random) -> None:
        self.rows.append((rng.randrange(100), [rng.choice(values) for values in self.values]))

    def between(self, low: int, high: int) -> LegBatch:
        return self.at(np.arange(low, high))

    def at(self, ids: Int64s) -> LegBatch:
        rows = [self.rows[number] for number in ids.tolist()]
        columns = [
            pa.array([values[place] for _, values in rows], type_.arrow)
            for place, type_ in enumerate(self.types)
        ]
        names = [f"{self.number}.c{place}" for place in range(len(self.types))]
        batch = pa.RecordBatch.from_arrays(columns, names=names)
        ts = np.array([ts for ts, _ in rows], np.int64)
        return LegBatch(ids, ts, ids * 10 + self.number, batch)


class Case:
    """Legs joined in a tree, sometimes with one more edge; rows arrive in steps."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.count = rng.randint(2, 4)
        kinds = rng.choice([NUMBERS, NUMBERS, TEXTS])
        width = rng.randint(1, 2)
        self.legs = []
        for number in range(self.count):
            types = [rng.choice(list(kinds)) for _ in range(width)]
            # The second of each list equals that of the others, so that there are combinations.
            values = [kinds[type_] + 4 * kinds[type_][1:2] for type_ in types]
            self.legs.append(Leg(number, types, values))
        pairs = {(rng.randrange(later), later) for later in range(1, self.count)}
        if rng.random() < 0.4:
            pairs.add((0, self.count - 1))
        self.span = rng.choice([None, 0, 10, 40])
        edges = [edge_of((first, second), self._factors(first, second)) for first, second in pairs]
        # As `Shape.edges` sorts them.
        edges.sort(key=lambda edge: (edge.is_range, edge.legs))
        self.edges = numbered(edges, self.span)
        orders = tuple(self._order(leg) for leg in range(self.count))
        self.plan = JoinPlan(self.count, self.edges, self.span, orders)

    def _factors(self, first: int, second: int) -> list[Expression]:
        """Return the conditions between two legs, of one kind or another."""
        rng, width = self.rng, len(self.legs[first].types)
        kind = rng.choice(["equal", "range", "or", "or"])
        if kind == "equal":
            places = range(rng.randint(1, width))
            return [self._comparison(Op.EQ, first, second, place) for place in places]
        ranges = [place for place in range(width) if self._has_order(first, second, place)]
        if kind == "range" and ranges:
            count = rng.randint(1, 3)
            return [
                self._comparison(rng.choice(RANGES), first, second, rng.choice(ranges))
                for _ in range(count)
            ]
        return [self._union(first, second, ranges)]

    def _union(self, first: int, second: int, ranges: list[int]) -> Expression:
        """Return an OR of equalities and inequalities, some of them with a further condition."""
        parts = list[Expression]()
        for _ in range(self.rng.randint(2, 3)):
            if ranges and self.rng.random() < 0.4:
                op, place = self.rng.choice(RANGES), self.rng.choice(ranges)
            else:
                op, place = Op.EQ, self.rng.randrange(len(self.legs[first].types))
            part = self._comparison(op, first, second, place)
            if self.rng.random() < 0.3:
                further = self._column(self.rng.choice([first, second]), place)
                part = Call(Op.AND, (part, comparison(Op.EQ, further, further)), BOOLEAN)
            parts.append(part)
        return Call(Op.OR, tuple(parts), BOOLEAN)

    def _comparison(self, op: Op, first: int, second: int, place: int) -> Expression:
        sides = [self._side(op, leg, place) for leg in (first, second)]
        return comparison(op, *(sides if self.rng.random() < 0.5 else sides[::-1]))

    def _side(self, op: Op, leg: int, place: int) -> Expression:
        column = self._column(leg, place)
        if op is Op.EQ or column.type != BIGINT or self.rng.random() < 0.5:
            return column
        return Call(Op.ADD, (column, Literal(self.rng.choice([-2, 1]), BIGINT)), BIGINT)

    def _has_order(self, first: int, second: int, place: int) -> bool:
        types = {self.legs[leg].types[place] for leg in (first, second)}
        return self.span is not None and types.isdisjoint({WIDE, TEXT})

    def _column(self, leg: int, place: int) -> ColumnRef:
        return ColumnRef(f"{leg}.c{place}", self.legs[leg].types[place])

    def _order(self, first: int) -> tuple[int, ...]:
        joined, order = {first}, []
        while len(joined) < self.count:
            near = [
                leg
                for leg in range(self.count)
                if leg not in joined
                and any(leg in e.legs and joined & set(e.legs) for e in self.edges)
            ]
            order.append(self.rng.choice(near))
            joined.add(order[-1])
        return tuple(order)

    def all(self) -> set[tuple[int, ...]]:
        """Return every combination, found by trying all."""
        every = product(*(range(len(leg.rows)) for leg in self.legs))
        return {parts for parts in every if self._holds(parts)}

    def _holds(self, parts: tuple[int, ...]) -> bool:
        rows = [leg.rows[part] for leg, part in zip(self.legs, parts, strict=True)]
        ts = [at for at, _ in rows]
        if self.span is not None and max(ts) - min(ts) > self.span:
            return False
        return all(_is_true(edge.condition, rows) for edge in self.edges)

    def step(self, old: list[list[KeyRun]], most: int = 1 << 30) -> list[CombinationRows]:
        """Return the combinations of random new rows at random legs. `old` has the runs so far."""
        lows = [len(leg.rows) for leg in self.legs]
        self.arrive()
        news = [leg.between(low, len(leg.rows)) for leg, low in zip(self.legs, lows, strict=True)]
        came = [KeyRun.of(key_rows(self.edges, number, rows)) for number, rows in enumerate(news)]
        combinations = []
        for turn in range(self.count):
            runs = [[*old[leg], *([came[leg]] if leg < turn else [])] for leg in range(self.count)]
            turns = LegJoin(
                self.plan, [fixed_runs(leg_runs) for leg_runs in runs], self._fetch, most
            )
            combinations += list(turns.combinations(turn, news[turn]))
        for runs_of_leg, run in zip(old, came, strict=True):
            runs_of_leg.append(run)
        return combinations

    def arrive(self) -> None:
        """Add random new rows at random legs."""
        for leg in self.legs:
            for _ in range(self.rng.choice([0, 1, 2, 4])):
                leg.add(self.rng)

    def _fetch(self, leg: int, ids: Int64s) -> tuple[Int64s, pa.RecordBatch]:
        assert (np.diff(ids) > 0).all()
        return ids, self.legs[leg].at(ids).columns


def _is_true(condition: Expression, rows: list[tuple[int, list[Any]]]) -> bool:
    assert isinstance(condition, Call)
    if condition.op in (Op.AND, Op.OR):
        parts = [_is_true(part, rows) for part in condition.args]
        return all(parts) if condition.op is Op.AND else any(parts)
    return compared(condition.op, *(_value(side, rows) for side in condition.args))


def _value(expression: Expression, rows: list[tuple[int, list[Any]]]) -> Any:
    match expression:
        case ColumnRef(name, _):
            leg, _, column = name.partition(".c")
            return rows[int(leg)][1][int(column)]
        case Call(Op.ADD, (base, Literal(int() as more, _)), _):
            value = _value(base, rows)
            return None if value is None else value + more
    raise AssertionError(expression)


SHORT_SEEDS = 80


@pytest.mark.parametrize("seed", short_first(range(240), SHORT_SEEDS))
def test_every_combination_is_found_once(seed: int) -> None:
    case = Case(seed)
    runs: list[list[KeyRun]] = [[] for _ in range(case.count)]
    batches: list[CombinationRows] = []
    for _ in range(case.rng.randint(1, 8)):
        batches += case.step(runs)
    together = CombinationRows.joined(batches, case.count)
    parts = list(zip(*(part.tolist() for part in together.parts), strict=True))
    assert len(parts) == len(set(parts)), "a combination was found twice"
    assert set(parts) == case.all()
    for number, combination in enumerate(parts):
        ts = [leg.rows[part][0] for leg, part in zip(case.legs, combination, strict=True)]
        assert (together.ts[number], together.until[number]) == (min(ts), max(ts))
        greatest = max(10 * part + leg for leg, part in enumerate(combination))
        assert together.positions[number] == greatest


def test_some_have_combinations() -> None:
    sizes = []
    kinds = set()
    for seed in range(SHORT_SEEDS):
        case = Case(seed)
        kinds |= {(len(edge.keys), type(edge.keys[0])) for edge in case.edges}
        for _ in range(4):
            case.arrive()
        sizes.append(len(case.all()))
    assert sum(size > 10 for size in sizes) > 20
    assert kinds >= {(1, HashKey), (1, RangeKey), (2, HashKey), (2, RangeKey)}


def test_keys_that_are_equal_across_types_have_one_hash() -> None:
    for left_type, right_type in product(NUMBERS, NUMBERS):
        pair = ColumnRef("0.c0", left_type), ColumnRef("1.c0", right_type)
        edge = equality(*pair)
        hashes, valid = _hashed(edge, 0, NUMBERS[left_type], left_type)
        other_hashes, other_valid = _hashed(edge, 1, NUMBERS[right_type], right_type)
        for place, value in enumerate(NUMBERS[left_type]):
            for other_place, other_value in enumerate(NUMBERS[right_type]):
                if equal(value, other_value):
                    assert valid[place] and other_valid[other_place]
                    assert hashes[place] == other_hashes[other_place], (value, other_value)
                elif valid[place] and other_valid[other_place]:
                    assert hashes[place] != other_hashes[other_place], (value, other_value)


def _hashed(edge: KeyEdge, end: int, values: list[Any], type_: Type) -> Any:
    column = pa.array(values, type_.arrow)
    return edge.keys[0].keys(end, pa.RecordBatch.from_arrays([column], names=[f"{end}.c0"]))


def test_a_representation_never_depends_on_the_other_values_of_a_batch() -> None:
    pair = ColumnRef("0.c0", MONEY), ColumnRef("1.c0", WIDE)
    edge = equality(*pair)
    alone, _ = _hashed(edge, 1, [Decimal("1.00")], WIDE)
    beside, _ = _hashed(edge, 1, [Decimal("90071992547409930000.00"), Decimal("1.00")], WIDE)
    assert alone[0] == beside[1]


def test_rows_that_are_gone_make_no_combination() -> None:
    case = Case(3)
    runs: list[list[KeyRun]] = [[] for _ in range(case.count)]
    case.step(runs)
    case.step(runs)
    fetch = case._fetch

    def odd(leg: int, ids: Int64s) -> tuple[Int64s, pa.RecordBatch]:
        return fetch(leg, ids[ids % 2 == 1])

    case._fetch = odd  # type: ignore[method-assign]
    old = [len(leg.rows) for leg in case.legs]
    for combinations in case.step(runs):
        for leg, parts in enumerate(combinations.parts):
            before = parts[parts < old[leg]]
            assert (before % 2 == 1).all()


def test_more_candidates_than_allowed() -> None:
    pair = ColumnRef("0.c0", BIGINT), ColumnRef("1.c0", BIGINT)
    edge = equality(*pair)
    plan = JoinPlan(2, (edge,), None, ((1,), (0,)))
    first, second = Leg(0, [BIGINT], [[1]]), Leg(1, [BIGINT], [[1]])
    first.rows = second.rows = [(0, [1])] * 100
    run = KeyRun.of(key_rows((edge,), 1, second.between(0, 100)))
    turn = LegJoin(
        plan,
        [fixed_runs([]), fixed_runs([run])],
        lambda leg, ids: (ids, second.at(ids).columns),
        9_999,
    )
    with pytest.raises(TooManyCombinations):
        list(turn.combinations(0, first.between(0, 100)))
    turn = LegJoin(
        plan,
        [fixed_runs([]), fixed_runs([run])],
        lambda leg, ids: (ids, second.at(ids).columns),
        10_000,
    )
    assert sum(map(len, turn.combinations(0, first.between(0, 100)))) == 10_000
    assert turn.fanouts == {1: (100, 10_000)}


def test_row_groups_end_at_buckets() -> None:
    pair = ColumnRef("0.c0", BIGINT), ColumnRef("1.c0", BIGINT)
    leg = Leg(0, [BIGINT], [list(range(1000))])
    leg.rows = [(n % 7, [n]) for n in range(1000)]
    table = key_rows((equality(*pair),), 0, leg.between(0, 1000))
    assert table.equals(sorted_rows(table))
    hashes = table.column("key").to_numpy()
    assert (np.diff(hashes) >= 0).all(), "the bucket is the top of the hash"
    numbers = table.column("bucket").to_numpy()
    assert (numbers == buckets(hashes)).all() and numbers.min() >= 0 and numbers.max() < 64
    edges = bucket_edges(table, 100)
    assert len(edges) > 4
    assert all(numbers[edge] != numbers[edge - 1] for edge in edges)


# ---- keys of inequalities

FINE = decimal_type(18, 5)
ORDERED: dict[Type, list[Any]] = {
    BIGINT: [None, -(2**63), -3, 0, 1, 2**53 + 1, 2**63 - 1],
    DOUBLE: [None, float("-inf"), -3.0, -0.0, 0.1, 1.0, float(2**53), 1e300, float("nan")],
    MONEY: [Decimal("-3.00"), Decimal("0.10"), Decimal("1.00"), Decimal("9999999999.99")],
    FINE: [None, Decimal("0.10000"), Decimal("0.99999"), Decimal("9999999999.99001")],
}


@pytest.mark.parametrize("op", RANGES)
@pytest.mark.parametrize("types", list(product(ORDERED, ORDERED)))
def test_a_range_of_keys_has_every_row_for_which_the_comparison_is_true(
    op: Op, types: tuple[Type, Type]
) -> None:
    sides = [ColumnRef(f"{end}.c0", type_) for end, type_ in enumerate(types)]
    key = RangeKey((Comparison(op, *sides),), 10)
    batches = [
        pa.RecordBatch.from_arrays([pa.array(ORDERED[type_], type_.arrow)], names=[f"{end}.c0"])
        for end, type_ in enumerate(types)
    ]
    for end in (0, 1):
        keys, valid = key.keys(1 - end, batches[1 - end])
        ids = np.flatnonzero(valid)
        order = ids[np.argsort(keys[ids], kind="stable")]
        zeros = np.zeros(len(order), np.int64)
        stored = SideRows(zeros, keys[order], order, zeros, zeros)
        times = np.zeros(batches[end].num_rows, np.int64)
        probes, probing = key.probes(end, batches[end], times, times)
        pairs = set()
        for match in probes.find(stored):
            numbers, places = match.pairs(0, len(probing))
            probed = probing[numbers].tolist()
            pairs |= set(zip(probed, stored.ids[places].tolist(), strict=True))
        for row, value in enumerate(ORDERED[types[end]]):
            for partner, partner_value in enumerate(ORDERED[types[1 - end]]):
                ends = (value, partner_value) if end == 0 else (partner_value, value)
                if compared(op, *ends):
                    assert (row, partner) in pairs, (op, ends)


def test_a_band_finds_few_candidates_from_both_sides() -> None:
    """`x >= y AND x < y + 5` bounds either leg by the other from both sides."""
    first, second = ColumnRef("0.c0", BIGINT), ColumnRef("1.c0", BIGINT)
    later = Call(Op.ADD, (second, Literal(5, BIGINT)), BIGINT)
    factors = [comparison(Op.GE, first, second), comparison(Op.GT, later, first)]
    (edge,) = numbered([edge_of((0, 1), factors)], 1_000)
    plan = JoinPlan(2, (edge,), 1_000, ((1,), (0,)))
    legs = Leg(0, [BIGINT], []), Leg(1, [BIGINT], [])
    for leg in legs:
        leg.rows = [(0, [number]) for number in range(100)]
    for probing in (0, 1):
        stored = legs[1 - probing]
        run = KeyRun.of(key_rows((edge,), 1 - probing, stored.between(0, 100)))
        turn = LegJoin(
            plan,
            [fixed_runs([run]), fixed_runs([run])],
            lambda leg, ids: (ids, legs[leg].at(ids).columns),
            1_000,
        )
        assert sum(map(len, turn.combinations(probing, legs[probing].between(0, 100)))) == 490
        assert turn.candidates < 600


def test_rows_of_other_times_are_no_candidates() -> None:
    """Rows far apart in time are in other buckets, so that old rows cost nothing."""
    pair = ColumnRef("0.c0", BIGINT), ColumnRef("1.c0", BIGINT)
    (edge,) = numbered([edge_of((0, 1), [comparison(Op.LT, *pair)])], 10)
    plan = JoinPlan(2, (edge,), 10, ((1,), (0,)))
    stored, arriving = Leg(1, [BIGINT], []), Leg(0, [BIGINT], [])
    stored.rows = [(number, [1]) for number in range(1_000)]
    arriving.rows = [(500, [0])]
    run = KeyRun.of(key_rows((edge,), 1, stored.between(0, 1_000)))
    turn = LegJoin(
        plan,
        [fixed_runs([]), fixed_runs([run])],
        lambda _, ids: (ids, stored.at(ids).columns),
        1_000,
    )
    assert sum(map(len, turn.combinations(0, arriving.between(0, 1)))) == 21
    assert turn.candidates == 30
