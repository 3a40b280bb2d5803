"""The order of the legs follows the measurements of recent steps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from datastem.types import BIGINT, BOOLEAN
from psoup.engine.composites.combining import JoinPlan, LegJoin
from psoup.engine.composites.lookup.edges import KeyEdge, numbered
from psoup.engine.composites.order import HALF_LIFE, RECENT_STEPS, Measured, best_orders
from psoup.engine.composites.runs import KeyRun, LegBatch, key_rows
from querystem.expressions import Call, ColumnRef, Op
from querystem.links import LegEdge, edge_of


def edge(first: int, second: int) -> LegEdge:
    pair = ColumnRef(f"{first}.c{second}", BIGINT), ColumnRef(f"{second}.c{first}", BIGINT)
    return edge_of((first, second), [Call(Op.EQ, pair, BOOLEAN)])


def edges(*pairs: tuple[int, int]) -> tuple[KeyEdge, ...]:
    return numbered([edge(*pair) for pair in pairs], None)


# Leg 0 is joined with both others.
EDGES = edges((0, 1), (0, 2))


def rows(leg: int, columns: dict[str, list[int]]) -> LegBatch:
    count = len(next(iter(columns.values())))
    ids = np.arange(count)
    return LegBatch(ids, ids, ids, pa.RecordBatch.from_pydict(columns))


def step(measured: Measured, legs: dict[int, LegBatch]) -> Measured:
    """Return the measurements after four rows have arrived at leg 0."""
    plan = JoinPlan(3, EDGES, None, measured.orders or best_orders(EDGES))
    runs = {leg: KeyRun.of(key_rows(EDGES, leg, batch)) for leg, batch in legs.items()}
    turn = LegJoin(
        plan,
        [lambda _: (), lambda _: (runs[1],), lambda _: (runs[2],)],
        lambda leg, ids: (ids, legs[leg].columns.take(pa.array(ids))),
        1 << 20,
    )
    came = rows(0, {"0.c1": [0] * 4, "0.c2": [0] * 4})
    count = sum(map(len, turn.combinations(0, came)))
    assert count == 32
    fanouts = [(side, *counts) for side, counts in turn.fanouts.items()]
    return Measured.read(measured.after(EDGES, 4, count, fanouts).text)


def test_the_order_changes_when_selectivities_swap() -> None:
    """Each row of leg 0 finds one of leg 1 and eight of leg 2; from half-way on it is reversed."""
    few, many = list(range(8)), [0] * 8
    measured, orders = Measured(), []
    for number in range(20 + 2 * HALF_LIFE):
        swapped = number >= 20
        first = rows(1, {"1.c0": many if swapped else few})
        second = rows(2, {"2.c0": few if swapped else many})
        measured = step(measured, {1: first, 2: second})
        orders.append(measured.orders[0])
    assert orders[19] == (1, 2)
    assert orders[-1] == (2, 1)


def test_every_leg_is_connected_to_one_before_it() -> None:
    chain = edges(*((leg, leg + 1) for leg in range(3)))
    assert best_orders(chain) == ((1, 2, 3), (0, 2, 3), (1, 0, 3), (2, 1, 0))
    long = edges(*((leg, leg + 1) for leg in range(7)))
    assert best_orders(long)[7] == (6, 5, 4, 3, 2, 1, 0)
    star = edges(*((0, leg) for leg in range(1, 8)))
    fanouts = [(2 * number + 1, 10.0, float(number)) for number in range(7)]
    assert best_orders(star, fanouts)[0] == (1, 2, 3, 4, 5, 6, 7)
    assert best_orders(star, fanouts)[7][0] == 0


def test_too_many_combinations_over_all_of_the_last_steps() -> None:
    measured = Measured()
    for _ in range(RECENT_STEPS - 1):
        measured = measured.after(EDGES, 10, 1_001, [])
        assert not measured.explodes(100)
    measured = measured.after(EDGES, 10, 1_001, [])
    assert measured.explodes(100) and not measured.explodes(101)
    assert not measured.after(EDGES, 10, 0, []).explodes(100)


def test_predicates_that_brought_rows_in_are_remembered() -> None:
    measured = Measured().with_unadmitted(((3,), ())).with_unadmitted(((1,), (2,)))
    assert Measured.read(measured.text).unadmitted == ((1, 3), (2,))
    assert measured.admitting(((1, 4), ())).unadmitted == ((3,), (2,))
