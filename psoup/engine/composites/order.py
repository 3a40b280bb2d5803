"""The order in which legs are joined: by measurements of steps, the fewest combinations first.

A side's fan-out is how many combinations result from one that is looked up in it. Measurements
decay with a half-life in steps, so that the order follows the rows that arrive now.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import permutations

from datastem.instants import HOUR
from psoup.engine.composites.legs import LegPredicates, without
from psoup.engine.composites.lookup.edges import KeyEdge

HALF_LIFE = 16  # steps
# A composite is suspended if it has too many combinations over this many steps.
RECENT_STEPS = 10
# With at most this many other legs, all orders are compared; with more, the search is greedy.
_MAX_PERMUTED_LEGS = 5
# Added to the probes and combinations of a side: an unknown fan-out is 1.
_PRIOR = 1.0
_DECAY = math.pow(0.5, 1 / HALF_LIFE)
_DIGITS = 4
# A suspended composite is tried again at least this often.
_MAX_REST_MICROS = 32 * HOUR


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of a composite, stored as JSON in the mark's `order`.

    `orders[i]` are the legs with which rows of leg i are joined, in order. `fanouts` are (side,
    probes, combinations), `recent` are (rows, combinations) of the last steps. `unadmitted[k]` are
    the predicates that are not yet or no longer admitted, by which rows of leg k got into
    `joins/<id>`. `rests` are (instant, microseconds) of the last suspension: when it began, and how
    long it lasts at least.
    """

    orders: tuple[tuple[int, ...], ...] = ()
    fanouts: tuple[tuple[int, float, float], ...] = ()
    recent: tuple[tuple[int, int], ...] = ()
    unadmitted: tuple[tuple[int, ...], ...] = ()
    rests: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read(cls, text: str) -> Measured:
        """Return the measurements in a text of `text`; none if it is empty."""
        form = json.loads(text) if text else {}
        if "entered" in form:
            # Earlier engines also named the admitted predicates; too many do no harm.
            form["unadmitted"] = form.pop("entered")
        return cls(**{name: tuple(map(tuple, rows)) for name, rows in form.items()})

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def after(self, edges: Sequence[KeyEdge], rows: int, count: int, fanouts: Fanouts) -> Measured:
        """Return the measurements after a step that found `count` combinations for `rows` rows."""
        totals = {side: (probes, combinations) for side, probes, combinations in self.fanouts}
        for side, *new in fanouts:
            old = totals.get(side, (0.0, 0.0))
            totals[side] = old[0] + new[0], old[1] + new[1]
        decayed = tuple(
            (side, round(_DECAY * probes, _DIGITS), round(_DECAY * combinations, _DIGITS))
            for side, (probes, combinations) in sorted(totals.items())
        )
        recent = (*self.recent, (rows, count))[-RECENT_STEPS:]
        orders = best_orders(edges, decayed)
        return replace(self, orders=orders, fanouts=decayed, recent=recent)

    def explodes(self, limit: int) -> bool:
        """Return True if the last steps had more than `limit` combinations per row."""
        rows, count = (
            (sum(counts) for counts in zip(*self.recent, strict=True)) if self.recent else (0, 0)
        )
        return len(self.recent) == RECENT_STEPS and count > limit * rows

    def resting(self, now: int, again: bool) -> Measured:
        """Return the measurements of a composite that is suspended now; `again` if it is already. A
        rest is twice as long as the one before, unless the composite was kept up for longer than
        that in between."""
        since, before = self.rests[0] if self.rests else (now, 0)
        is_longer = before and (again or now - since <= 2 * before)
        length = min(2 * before, _MAX_REST_MICROS) if is_longer else HOUR
        return Measured(rests=((now, length),))

    def is_rested(self, now: int) -> bool:
        """Return True if the last rest is over."""
        return all(now - since >= length for since, length in self.rests)

    def with_unadmitted(self, predicates: LegPredicates) -> Measured:
        """Return the measurements with more predicates of each leg in `unadmitted`."""
        before = self.unadmitted or ((),) * len(predicates)
        pairs = zip(before, predicates, strict=True)
        return replace(self, unadmitted=tuple(tuple(sorted({*old, *new})) for old, new in pairs))

    def admitting(self, predicates: LegPredicates) -> Measured:
        """Return the measurements without predicates that are admitted now in `unadmitted`."""
        return replace(self, unadmitted=without(self.unadmitted, predicates))


Fanouts = Iterable[tuple[int, float, float]]


def best_orders(edges: Sequence[KeyEdge], fanouts: Fanouts = ()) -> tuple[tuple[int, ...], ...]:
    """Return for each leg the order in which its rows are joined with the others: the one with the
    fewest intermediate combinations, by the fan-outs."""
    legs = 1 + max(leg for edge in edges for leg in edge.legs)
    costs = {
        side: (combinations + _PRIOR) / (probes + _PRIOR) for side, probes, combinations in fanouts
    }
    return tuple(_best(edges, costs, leg, legs) for leg in range(legs))


def _best(
    edges: Sequence[KeyEdge], costs: dict[int, float], first: int, legs: int
) -> tuple[int, ...]:
    other_legs = [leg for leg in range(legs) if leg != first]
    if len(other_legs) > _MAX_PERMUTED_LEGS:
        return _greedy(edges, costs, first, other_legs)
    candidates = (
        (_expected(edges, costs, first, order), order) for order in permutations(other_legs)
    )
    return min((cost, order) for cost, order in candidates if cost is not None)[1]


def _expected(
    edges: Sequence[KeyEdge], costs: dict[int, float], first: int, order: Sequence[int]
) -> float | None:
    """Return the expected number of intermediate combinations; None if a leg is not connected."""
    # `size` is the expected number of combinations so far of one row of the first leg.
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
    edges: Sequence[KeyEdge], costs: dict[int, float], first: int, other_legs: Sequence[int]
) -> tuple[int, ...]:
    order: list[int] = []
    while len(order) < len(other_legs):
        joined = {first, *order}
        reachable = [
            (costs.get(side, 1.0), leg)
            for leg in other_legs
            if leg not in joined and (side := _side(edges, joined, leg)) is not None
        ]
        order.append(min(reachable)[1])
    return tuple(order)


def _side(edges: Sequence[KeyEdge], joined: set[int], leg: int) -> int | None:
    """Return the side by which a leg is looked up from joined ones, by the first edge between them;
    None if they are not connected."""
    for edge in edges:
        for end in (0, 1):
            if edge.legs[end] in joined and edge.legs[1 - end] == leg:
                return edge.first_side + 1 - end
    return None
