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
from datastem.types import BIGINT, DOUBLE, TEXT, Type, decimal_type
from psoup.engine.composites.combining import (
    CombinationRows,
    JoinPlan,
    LegJoin,
    Runs,
    TooManyCombinations,
)
from psoup.engine.composites.keys import KeyEdge, buckets
from psoup.engine.composites.runs import KeyRun, LegBatch, bucket_edges, key_rows, sorted_rows
from querystem.expressions import ColumnRef

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


def given(runs: Sequence[KeyRun]) -> Runs:
    return lambda _: runs


def equal(first: Any, second: Any) -> bool:
    if first is None or second is None:
        return False
    if first != first or second != second:
        return bool(first != first and second != second)
    return bool(first == second)


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
        self.edges = tuple(self._edge(first, second) for first, second in sorted(pairs))
        self.span = rng.choice([None, 0, 10, 40])
        orders = tuple(self._order(leg) for leg in range(self.count))
        self.plan = JoinPlan(self.count, self.edges, self.span, orders)

    def _edge(self, first: int, second: int) -> KeyEdge:
        width = self.rng.randint(1, len(self.legs[first].types))
        return KeyEdge(
            (first, second),
            tuple(
                (self._column(first, place), self._column(second, place)) for place in range(width)
            ),
        )

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
        return all(
            equal(rows[edge.legs[0]][1][place], rows[edge.legs[1]][1][place])
            for edge in self.edges
            for place in range(len(edge.equalities))
        )

    def step(self, old: list[list[KeyRun]], most: int = 1 << 30) -> list[CombinationRows]:
        """Return the combinations of random new rows at random legs. `old` has the runs so far."""
        lows = [len(leg.rows) for leg in self.legs]
        for leg in self.legs:
            for _ in range(self.rng.choice([0, 1, 2, 4])):
                leg.add(self.rng)
        news = [leg.between(low, len(leg.rows)) for leg, low in zip(self.legs, lows, strict=True)]
        came = [KeyRun.of(key_rows(self.edges, number, rows)) for number, rows in enumerate(news)]
        combinations = []
        for turn in range(self.count):
            runs = [[*old[leg], *([came[leg]] if leg < turn else [])] for leg in range(self.count)]
            turns = LegJoin(self.plan, [given(leg_runs) for leg_runs in runs], self._fetch, most)
            combinations += list(turns.combinations(turn, news[turn]))
        for runs_of_leg, run in zip(old, came, strict=True):
            runs_of_leg.append(run)
        return combinations

    def _fetch(self, leg: int, ids: Int64s) -> tuple[Int64s, pa.RecordBatch]:
        assert (np.diff(ids) > 0).all()
        return ids, self.legs[leg].at(ids).columns


@pytest.mark.parametrize("seed", range(120))
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
    for seed in range(120):
        case = Case(seed)
        runs: list[list[KeyRun]] = [[] for _ in range(case.count)]
        for _ in range(4):
            case.step(runs)
        sizes.append(len(case.all()))
    assert sum(size > 10 for size in sizes) > 20


def test_keys_that_are_equal_across_types_have_one_hash() -> None:
    for left_type, right_type in product(NUMBERS, NUMBERS):
        pair = ColumnRef("0.c0", left_type), ColumnRef("1.c0", right_type)
        edge = KeyEdge((0, 1), (pair,))
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
    return edge.hashes(end, pa.RecordBatch.from_arrays([column], names=[f"{end}.c0"]))


def test_a_representation_never_depends_on_the_other_values_of_a_batch() -> None:
    pair = ColumnRef("0.c0", MONEY), ColumnRef("1.c0", WIDE)
    edge = KeyEdge((0, 1), (pair,))
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
    edge = KeyEdge((0, 1), (pair,))
    plan = JoinPlan(2, (edge,), None, ((1,), (0,)))
    first, second = Leg(0, [BIGINT], [[1]]), Leg(1, [BIGINT], [[1]])
    first.rows = second.rows = [(0, [1])] * 100
    run = KeyRun.of(key_rows((edge,), 1, second.between(0, 100)))
    turn = LegJoin(
        plan, [given([]), given([run])], lambda leg, ids: (ids, second.at(ids).columns), 9_999
    )
    with pytest.raises(TooManyCombinations):
        list(turn.combinations(0, first.between(0, 100)))
    turn = LegJoin(
        plan, [given([]), given([run])], lambda leg, ids: (ids, second.at(ids).columns), 10_000
    )
    assert sum(map(len, turn.combinations(0, first.between(0, 100)))) == 10_000
    assert turn.fanouts == {1: (100, 10_000)}


def test_row_groups_end_at_buckets() -> None:
    pair = ColumnRef("0.c0", BIGINT), ColumnRef("1.c0", BIGINT)
    leg = Leg(0, [BIGINT], [list(range(1000))])
    leg.rows = [(n % 7, [n]) for n in range(1000)]
    table = key_rows((KeyEdge((0, 1), (pair,)),), 0, leg.between(0, 1000))
    assert table.equals(sorted_rows(table))
    hashes = table.column("key_hash").to_numpy()
    assert (np.diff(hashes) >= 0).all(), "the bucket is the top of the hash"
    numbers = table.column("bucket").to_numpy()
    assert (numbers == buckets(hashes)).all() and numbers.min() >= 0 and numbers.max() < 64
    edges = bucket_edges(table, 100)
    assert len(edges) > 4
    assert all(numbers[edge] != numbers[edge - 1] for edge in edges)
