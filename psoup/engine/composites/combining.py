"""The join of rows that arrive at legs with the rows that are stored.

Rows that arrive at leg i are joined with the arrivals and stored rows of the legs before i, and
only with the stored rows of the legs after i. So each combination is found exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.instants import FOR_EVER
from psoup.engine.composites.lookup.edges import KeyEdge, LinkSide, all_sides
from psoup.engine.composites.lookup.probes import SideMatches
from psoup.engine.composites.runs import KeyRun, LegBatch, pieces_of
from querystem.expressions import Expression
from querystem.join.factors import conjunction
from querystem.join.sides import PAIRS_AT_ONCE, Pairs, Side, other_pairs, true_pairs

# Fetches rows of a leg by ascending ids: returns the ids that still exist, and their columns.
Fetch = Callable[[int, Int64s], tuple[Int64s, pa.RecordBatch]]
# Returns the ends of a keyed leg's rows with ascending ids; FOR_EVER for those without one.
Ends = Callable[[Int64s], Int64s]
# Returns the runs of a leg that may have rows of these ascending buckets.
Runs = Callable[[Int64s], Iterable[KeyRun]]

# Runs that are joined together: more may not be in memory.
_RUN_BYTES = 32 << 20


class TooManyCombinations(Exception):
    """Rows have more candidates than one task may examine."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"{count:,} candidates, more than the {limit:,} of one task")
        self.count = count


@dataclass(frozen=True, slots=True)
class CombinationRows:
    """Combinations of a row of each leg: the row ids by leg (`parts`), the earliest and the latest
    ts, and the greatest position. All arrays have one entry per combination."""

    parts: tuple[Int64s, ...]
    ts: Int64s
    until: Int64s
    positions: Int64s

    def __len__(self) -> int:
        return len(self.ts)

    def take(self, places: Int64s | slice) -> CombinationRows:
        parts = tuple(part[places] for part in self.parts)
        return CombinationRows(parts, self.ts[places], self.until[places], self.positions[places])

    @classmethod
    def joined(cls, groups: Sequence[CombinationRows], legs: int) -> CombinationRows:
        """Return all combinations of several groups."""
        return cls(
            tuple(_joined([group.parts[leg] for group in groups]) for leg in range(legs)),
            _joined([group.ts for group in groups]),
            _joined([group.until for group in groups]),
            _joined([group.positions for group in groups]),
        )


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """The plan of a join: the edges between `legs` legs, and how far apart parts may be in time.

    `orders[i]` are the legs with which rows of leg i are joined, in order; each is connected to an
    earlier one.
    """

    legs: int
    edges: tuple[KeyEdge, ...]
    span: int | None
    orders: tuple[tuple[int, ...], ...]

    def connecting(self, joined: Mapping[int, object], leg: int) -> list[LinkSide]:
        """Return the sides of a leg by which joined legs find its rows."""
        return [
            side
            for side in all_sides(self.edges)
            if side.leg == leg and side.edge.legs[1 - side.end] in joined
        ]

    def bucket_side(self, leg: int) -> int | None:
        """Return the side of a leg by which its arriving rows find rows of the next one, if they
        are in the same bucket; None if they are not."""
        partner_side = self.connecting({leg: None}, self.orders[leg][0])[0]
        # The two sides of a link have neighbouring numbers, the lesser one even.
        return partner_side.number ^ 1 if partner_side.edge.is_hashed else None


# By side: how many partial combinations were looked up in it, and how many combinations resulted.
Fanouts = dict[int, tuple[int, int]]


@dataclass(slots=True)
class LegJoin:
    """The join of one leg's arriving rows with all other legs.

    `runs[k]` returns the rows of leg k to join with. If a leg has `ends`, rows that ended before
    another part began are left out: no answer ever has both. `candidates` counts the pairs that
    were examined; if there are more than `max_candidates`, methods raise TooManyCombinations.
    """

    plan: JoinPlan
    runs: Sequence[Runs]
    fetch: Fetch
    max_candidates: int
    ends: Mapping[int, Ends] = field(default_factory=dict)
    candidates: int = 0
    fanouts: Fanouts = field(default_factory=dict)

    def combinations(self, leg: int, rows: LegBatch) -> Iterator[CombinationRows]:
        """Yield the combinations of rows of a leg, in batches."""
        if not len(rows.ids):
            return
        whole = _Partial(
            Side.of_item(leg, rows.columns),
            {leg: rows.ids},
            rows.ts,
            rows.ts,
            np.full(len(rows.ids), FOR_EVER),
            rows.positions,
        )
        for complete in self._extended(whole, self.plan.orders[leg]):
            parts = tuple(complete.ids[number] for number in range(self.plan.legs))
            yield CombinationRows(parts, complete.first, complete.last, complete.positions)

    def _extended(self, partial: _Partial, legs: tuple[int, ...]) -> Iterator[_Partial]:
        """Yield the combinations extended by a row of each of `legs`; depth first, so that few are
        in memory."""
        if not legs:
            yield partial
            return
        for more in self._with_leg(partial, legs[0]):
            if more.length:
                yield from self._extended(more, legs[1:])

    def _with_leg(self, partial: _Partial, leg: int) -> Iterator[_Partial]:
        """Yield the combinations extended by a row of one leg, and count its fan-out."""
        connecting = self.plan.connecting(partial.ids, leg)
        # Rows are looked up by the links of one edge. The condition then checks all edges.
        edge = connecting[0].edge
        condition = conjunction(list({side.edge.condition: None for side in connecting}))
        combined, earlier = 0, list[Expression]()
        for side, link in zip(connecting, edge.edge.links, strict=False):
            # A key also finds rows for which the link is not true, but another link of an OR.
            tested = condition if len(edge.keys) == 1 else conjunction([condition, link.condition])
            for extended in self._by_side(partial, side, _Test(tested, tuple(earlier))):
                combined += extended.length
                yield extended
            earlier.append(link.condition)
        number = connecting[0].number
        probes, before = self.fanouts.get(number, (0, 0))
        self.fanouts[number] = probes + partial.length, before + combined

    def _by_side(self, partial: _Partial, side: LinkSide, test: _Test) -> Iterator[_Partial]:
        """Yield the combinations extended by the rows that one link finds."""
        end = 1 - side.end
        rows = partial.side.rows(side.edge.columns(end))
        probes, places = side.key.probes(end, rows, partial.first, partial.last)
        partial = partial.chosen(places)
        for runs in _batches(self.runs[side.leg](probes.buckets)):
            matches = [
                match
                for run in runs
                if side.number in run.sides
                for match in probes.find(run.sides[side.number])
            ]
            yield from self._join_matches(partial, side.leg, matches, test)

    def _join_matches(
        self, partial: _Partial, leg: int, matches: Sequence[SideMatches], test: _Test
    ) -> Iterator[_Partial]:
        # Candidates per partial combination, over all runs.
        counts = np.zeros(partial.length, np.int64)
        for side_matches in matches:
            counts[side_matches.probes] += side_matches.counts
        self._count_candidates(int(counts.sum()))
        if counts.any():
            # Not all pairs at once: their columns must fit in memory.
            for begin, end in pieces_of(counts, PAIRS_AT_ONCE):
                yield self._pairs(partial, leg, matches, test, begin, end)

    def _count_candidates(self, count: int) -> None:
        self.candidates += count
        if self.candidates > self.max_candidates:
            raise TooManyCombinations(self.candidates, self.max_candidates)

    def _pairs(
        self,
        partial: _Partial,
        leg: int,
        matches: Sequence[SideMatches],
        test: _Test,
        begin: int,
        end: int,
    ) -> _Partial:
        """Return the combinations `[begin, end)`, each with the rows of the leg that pass the test
        and are near enough in time."""
        # Candidate pairs: the place of the partial combination, and the leg's row.
        pairs = [side_matches.pairs(begin, end) for side_matches in matches]
        probe_places = _joined([probes for probes, _ in pairs])
        ids, ts, positions = (
            _joined(
                [
                    getattr(side_matches.rows, name)[at]
                    for side_matches, (_, at) in zip(matches, pairs, strict=True)
                ]
            )
            for name in ("ids", "ts", "positions")
        )
        if self.plan.span is not None:
            # Before rows are fetched: the buckets of an inequality hold more than one span.
            lows, highs = partial.last - self.plan.span, partial.first + self.plan.span
            near = (ts >= lows[probe_places]) & (ts <= highs[probe_places])
            probe_places, ids, ts, positions = (
                values[near] for values in (probe_places, ids, ts, positions)
            )
        # Distinct rows, the first pair of each, and the place of each pair's row among them.
        row_ids, firsts, places = np.unique(ids, return_index=True, return_inverse=True)
        existing_ids, columns = self.fetch(leg, row_ids)
        if len(existing_ids) < len(row_ids):
            # Retention has removed the others: drop their pairs, and renumber the places.
            exists = np.isin(row_ids, existing_ids)
            probe_places, places = probe_places[exists[places]], places[exists[places]]
            firsts, places = firsts[exists], (np.cumsum(exists) - 1)[places]
        rows = LegBatch(existing_ids, ts[firsts], positions[firsts], columns)
        item = Side.of_item(leg, columns)
        probe_places, places = test.passed(partial.side, item, (probe_places, places))
        ends = self.ends[leg](rows.ids)[places] if leg in self.ends else None
        return partial.chosen(probe_places).with_leg(leg, rows, places, ends).within(self.plan.span)


@dataclass(frozen=True, slots=True)
class _Test:
    """What decides about candidates of a link: the condition is true, and no `earlier` one, by
    which another link of an OR finds the same pair. So each pair is found once."""

    condition: Expression
    earlier: tuple[Expression, ...]

    def passed(self, first: Side, second: Side, pairs: Pairs) -> Pairs:
        pairs = true_pairs(first, second, pairs, self.condition)
        for condition in self.earlier:
            pairs = other_pairs(first, second, pairs, condition)
        return pairs


def _batches(runs: Iterable[KeyRun]) -> Iterator[list[KeyRun]]:
    """Yield the runs in lists of about _RUN_BYTES, so that not all are in memory at once."""
    batch, size = list[KeyRun](), 0
    for run in runs:
        batch.append(run)
        size += run.nbytes
        if size > _RUN_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _joined(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate([np.empty(0, np.int64), *parts])


@dataclass(frozen=True, slots=True)
class _Partial:
    """Combinations of a row of each joined leg. The arrays have one entry per combination: row ids
    by leg, the least and greatest ts, the least end and the greatest position."""

    side: Side
    ids: Mapping[int, Int64s]
    first: Int64s
    last: Int64s
    end: Int64s
    positions: Int64s

    @property
    def length(self) -> int:
        return len(self.first)

    def chosen(self, places: Int64s) -> _Partial:
        ids = {leg: leg_ids[places] for leg, leg_ids in self.ids.items()}
        arrays = (values[places] for values in (self.first, self.last, self.end, self.positions))
        return _Partial(self.side.chosen(places), ids, *arrays)

    def with_leg(self, leg: int, rows: LegBatch, places: Int64s, ends: Int64s | None) -> _Partial:
        """Return these combinations, each extended by the row of another leg at `places`; `ends`
        are the ends of those rows, if the leg is keyed."""
        items = {**self.side.items, leg: rows.columns}
        side = Side(items, {**self.side.places, leg: places}, len(places))
        ts, positions = rows.ts[places], rows.positions[places]
        return _Partial(
            side,
            {**self.ids, leg: rows.ids[places]},
            np.minimum(self.first, ts),
            np.maximum(self.last, ts),
            self.end if ends is None else np.minimum(self.end, ends),
            np.maximum(self.positions, positions),
        )

    def within(self, span: int | None) -> _Partial:
        """Return the combinations whose parts are at most `span` apart and exist at one time."""
        # All parts exist at one time if the latest began before the earliest end.
        inside = self.last < self.end
        if span is not None:
            inside &= self.last - self.first <= span
        return self if inside.all() else self.chosen(np.flatnonzero(inside))
