"""The order in which legs are joined: by what steps have measured, the fewest combinations first.

A side's fan-out is how many combinations come of one that is looked up in it. What was measured is
forgotten by half in so many steps, so that an order follows the rows that come now.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import permutations

from psoup.engine.composites.keys import KeyEdge

HALF_LIFE = 16
# A composite is looked at over so many steps before it is suspended.
RECENT_STEPS = 10
# Up to so many other legs all orders are compared; beyond, the next leg is the best one each time.
_ALL_ORDERS = 5
# Measured of a side are at least one probe and one combination: an unknown fan-out is 1.
_PRIOR = 1.0
_KEPT = math.pow(0.5, 1 / HALF_LIFE)
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of a composite beside its box, kept as JSON in the mark's `order`.

    `orders[i]` are the legs that rows of leg i meet, in order. `fanouts` are (side, probes, found),
    `recent` (rows, combinations) of the last steps. `entered[k]` are the predicates by which rows
    of leg k have come to `joins/<id>`, also those that are admitted no more.
    """

    orders: tuple[tuple[int, ...], ...] = ()
    fanouts: tuple[tuple[int, float, float], ...] = ()
    recent: tuple[tuple[int, int], ...] = ()
    entered: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def read(cls, text: str) -> Measured:
        """Reads what `text` has written; nothing is known where that is empty."""
        form = json.loads(text) if text else {}
        return cls(**{name: tuple(map(tuple, rows)) for name, rows in form.items()})

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def after(self, edges: Sequence[KeyEdge], rows: int, count: int, fanouts: Fanouts) -> Measured:
        """The measures after a step that has found `count` combinations for `rows` rows."""
        known = {side: (probes, found) for side, probes, found in self.fanouts}
        for side, *new in fanouts:
            old = known.get(side, (0.0, 0.0))
            known[side] = old[0] + new[0], old[1] + new[1]
        kept = tuple(
            (side, round(_KEPT * probes, _DIGITS), round(_KEPT * found, _DIGITS))
            for side, (probes, found) in sorted(known.items())
        )
        recent = (*self.recent, (rows, count))[-RECENT_STEPS:]
        orders = best_orders(edges, kept)
        return replace(self, orders=orders, fanouts=kept, recent=recent)

    def explodes(self, most: int) -> bool:
        """Tells whether the last steps had more than `most` combinations for each row."""
        rows, count = (
            (sum(each) for each in zip(*self.recent, strict=True)) if self.recent else (0, 0)
        )
        return len(self.recent) == RECENT_STEPS and count > most * rows

    def with_entered(self, predicates: Iterable[Iterable[int]]) -> Measured:
        """Notes predicates by which rows come in, for each leg."""
        more = [set(some) for some in predicates]
        before = self.entered or ((),) * len(more)
        entered = (tuple(sorted(more_.union(old))) for more_, old in zip(more, before, strict=True))
        return replace(self, entered=tuple(entered))


Fanouts = Iterable[tuple[int, float, float]]


def best_orders(edges: Sequence[KeyEdge], fanouts: Fanouts = ()) -> tuple[tuple[int, ...], ...]:
    """The order in which rows of each leg meet the others: with the least combinations on the way,
    as far as fan-outs tell."""
    legs = 1 + max(leg for edge in edges for leg in edge.legs)
    costs = {side: (found + _PRIOR) / (probes + _PRIOR) for side, probes, found in fanouts}
    return tuple(_best(edges, costs, leg, legs) for leg in range(legs))


def _best(
    edges: Sequence[KeyEdge], costs: dict[int, float], first: int, legs: int
) -> tuple[int, ...]:
    others = [leg for leg in range(legs) if leg != first]
    if len(others) > _ALL_ORDERS:
        return _greedy(edges, costs, first, others)
    found = ((_expected(edges, costs, first, order), order) for order in permutations(others))
    return min((cost, order) for cost, order in found if cost is not None)[1]


def _expected(
    edges: Sequence[KeyEdge], costs: dict[int, float], first: int, order: Sequence[int]
) -> float | None:
    """How many combinations are expected on the way; None where a leg is not connected."""
    size, total, joined = 1.0, 0.0, {first}
    for leg in order:
        side = _side(edges, joined, leg)
        if side is None:
            return None
        size *= costs.get(side, 1.0)
        total += size
        joined.add(leg)
    return total


def _greedy(
    edges: Sequence[KeyEdge], costs: dict[int, float], first: int, others: Sequence[int]
) -> tuple[int, ...]:
    order: list[int] = []
    while len(order) < len(others):
        joined = {first, *order}
        near = [
            (costs.get(side, 1.0), leg)
            for leg in others
            if leg not in joined and (side := _side(edges, joined, leg)) is not None
        ]
        order.append(min(near)[1])
    return tuple(order)


def _side(edges: Sequence[KeyEdge], joined: set[int], leg: int) -> int | None:
    """The side by which a leg is looked up from joined ones: that of the first edge between."""
    for number, edge in enumerate(edges):
        for end in (0, 1):
            if edge.legs[end] in joined and edge.legs[1 - end] == leg:
                return 2 * number + 1 - end
    return None
