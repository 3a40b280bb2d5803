"""Combining: rows that came, with rows that were there.

Rows came to some legs. Those of leg i meet the legs before i with what came there and the legs
after i without, so that whoever comes last finds the others and each combination is found once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.instants import FOR_EVER
from psoup.engine.composites.keys import KeyEdge
from psoup.engine.composites.runs import KeyRun, LegBatch, Sought, pieces_of
from querystem.expressions import Expression
from querystem.join.factors import conjunction
from querystem.join.sides import PAIRS_AT_ONCE, Side, true_pairs

# Rows of a leg with ascending ids: those that are still there, and their columns.
Fetch = Callable[[int, Int64s], tuple[Int64s, pa.RecordBatch]]
# The ends of a keyed leg's rows with ascending ids, as far as they are known.
Ends = Callable[[Int64s], Int64s]
# The runs of a leg that may have rows with some hashes.
Runs = Callable[[Int64s], Iterable[KeyRun]]

# So much of runs is looked at together: more may not be in memory.
_RUN_BYTES = 32 << 20


class TooManyCombinations(Exception):
    """Rows have more candidates than one go may look at."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"{count:,} candidates, at most {limit:,} are looked at in one go")
        self.count = count


@dataclass(frozen=True, slots=True)
class CombinationRows:
    """Combinations of a row of each leg: their row ids, the earliest and the latest ts, and the
    greatest position."""

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
    def joined(cls, some: Sequence[CombinationRows], legs: int) -> CombinationRows:
        """All combinations of some."""
        return cls(
            tuple(_joined([one.parts[leg] for one in some]) for leg in range(legs)),
            _joined([one.ts for one in some]),
            _joined([one.until for one in some]),
            _joined([one.positions for one in some]),
        )


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """What is joined: the edges between `legs` legs, and how far apart parts may be in time.

    `orders[i]` are the legs that rows of leg i meet, in that order; each is connected to one before
    it.
    """

    legs: int
    edges: tuple[KeyEdge, ...]
    span: int | None
    orders: tuple[tuple[int, ...], ...]

    def connecting(self, joined: Mapping[int, object], leg: int) -> list[tuple[KeyEdge, int, int]]:
        """The edges between joined legs and another one: with the side of that leg, and the end
        that is joined."""
        found = []
        for number, edge in enumerate(self.edges):
            for end in (0, 1):
                if edge.legs[end] in joined and edge.legs[1 - end] == leg:
                    found.append((edge, 2 * number + 1 - end, end))
        return found


# How many partial combinations were looked up in a side, and how many came of it.
Fanouts = dict[int, tuple[int, int]]


@dataclass(slots=True)
class LegTurn:
    """The turn of one leg whose rows have come: they are combined with all other legs.

    `runs[k]` gives the rows of leg k that they meet. Where a leg has `ends`, rows that had ended
    before another part came to be are left out: no answer ever has both.

    Raises TooManyCombinations where more than `most` candidates would be looked at.
    """

    plan: JoinPlan
    runs: Sequence[Runs]
    fetch: Fetch
    most: int
    ends: Mapping[int, Ends] = field(default_factory=dict)
    looked_at: int = 0
    fanouts: Fanouts = field(default_factory=dict)

    def combinations(self, leg: int, rows: LegBatch) -> Iterator[CombinationRows]:
        """The combinations of rows of a leg, some at a time."""
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
        for found in self._extended(whole, self.plan.orders[leg]):
            parts = tuple(found.ids[number] for number in range(self.plan.legs))
            yield CombinationRows(parts, found.first, found.last, found.positions)

    def _extended(self, partial: _Partial, legs: tuple[int, ...]) -> Iterator[_Partial]:
        """Combinations with a row of each of more legs; depth first, so that few are in memory."""
        if not legs:
            yield partial
            return
        for more in self._with_leg(partial, legs[0]):
            if more.length:
                yield from self._extended(more, legs[1:])

    def _with_leg(self, partial: _Partial, leg: int) -> Iterator[_Partial]:
        connecting = self.plan.connecting(partial.ids, leg)
        edge, side, end = connecting[0]
        condition = conjunction([one.condition for one, _, _ in connecting])
        hashes, known = edge.hashes(end, partial.side.rows(edge.columns(end)))
        if not known.all():
            partial, hashes = partial.chosen(np.flatnonzero(known)), hashes[known]
        kept = 0
        for runs in _batches(self.runs[leg](hashes)):
            found = [
                run.sides[side].find(hashes, partial.first, partial.last, self.plan.span)
                for run in runs
                if side in run.sides
            ]
            for made in self._found(partial, leg, found, condition):
                kept += made.length
                yield made
        probes, before = self.fanouts.get(side, (0, 0))
        self.fanouts[side] = probes + partial.length, before + kept

    def _found(
        self, partial: _Partial, leg: int, found: Sequence[Sought], condition: Expression
    ) -> Iterator[_Partial]:
        counts = sum((one.counts for one in found), np.zeros(partial.length, np.int64))
        self._look_at(int(counts.sum()))
        if counts.any():
            for begin, end in pieces_of(counts, PAIRS_AT_ONCE):
                yield self._pairs(partial, leg, found, condition, begin, end)

    def _look_at(self, count: int) -> None:
        self.looked_at += count
        if self.looked_at > self.most:
            raise TooManyCombinations(self.looked_at, self.most)

    def _pairs(
        self,
        partial: _Partial,
        leg: int,
        found: Sequence[Sought],
        condition: Expression,
        begin: int,
        end: int,
    ) -> _Partial:
        """The combinations `[begin, end)` with the rows found for them whose keys are equal."""
        pairs = [one.pairs(begin, end) for one in found]
        mine = _joined([probes for probes, _ in pairs])
        ids, ts, positions = (
            _joined(
                [getattr(one.rows, name)[at] for one, (_, at) in zip(found, pairs, strict=True)]
            )
            for name in ("ids", "ts", "positions")
        )
        wanted, firsts, places = np.unique(ids, return_index=True, return_inverse=True)
        there, columns = self.fetch(leg, wanted)
        if len(there) < len(wanted):
            # The others were taken by retention.
            left = np.isin(wanted, there)
            mine, places = mine[left[places]], places[left[places]]
            firsts, places = firsts[left], (np.cumsum(left) - 1)[places]
        rows = LegBatch(there, ts[firsts], positions[firsts], columns)
        item = Side.of_item(leg, columns)
        mine, places = true_pairs(partial.side, item, (mine, places), condition)
        ends = self.ends[leg](rows.ids)[places] if leg in self.ends else None
        return partial.chosen(mine).with_leg(leg, rows, places, ends).within(self.plan.span)


def _batches(runs: Iterable[KeyRun]) -> Iterator[list[KeyRun]]:
    """Runs in lists of about _RUN_BYTES, so that the others need not be in memory."""
    some, size = list[KeyRun](), 0
    for run in runs:
        some.append(run)
        size += run.nbytes
        if size > _RUN_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _joined(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate([np.empty(0, np.int64), *parts])


@dataclass(frozen=True, slots=True)
class _Partial:
    """Combinations of a row of each of some legs."""

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
        ids = {leg: own[places] for leg, own in self.ids.items()}
        arrays = (each[places] for each in (self.first, self.last, self.end, self.positions))
        return _Partial(self.side.chosen(places), ids, *arrays)

    def with_leg(self, leg: int, rows: LegBatch, places: Int64s, ends: Int64s | None) -> _Partial:
        """These combinations, each with the row of one more leg at the place beside it, which may
        have an end."""
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
        """The combinations whose parts are no further apart than `span`, and are there together."""
        left = self.last < self.end
        if span is not None:
            left &= self.last - self.first <= span
        return self if left.all() else self.chosen(np.flatnonzero(left))
