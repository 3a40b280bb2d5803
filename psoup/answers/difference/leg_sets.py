"""The rows of one leg at two marks: which came, which are gone, which have merely expired.

Of the rows that the copy *had* some have expired by the target's NOW, by themselves; the others it
still *holds*. Of those, some are *gone* although their time had not come, since a window counts
rows, a key has a newer row, or the retention has passed; the others are *kept*. The target has the
rows that are kept and those that have *come*.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from datastem.arrays import Int64s
from psoup.answers.caches import Memo
from psoup.answers.difference.copier import once
from psoup.answers.difference.job import LegMark, Mark, legs_apart
from psoup.answers.difference.keys import NO_IDS, ended_rows
from psoup.answers.difference.row_sets import RowChange, RowSet, keyed_change
from psoup.answers.matching.shown_rows import MatchSource
from psoup.answers.planning.plan import LegPlan, Plan, oldest_retained
from psoup.answers.rows.leg_rows import LegRows, rows_at
from psoup.answers.rows.windows import NO_ROWS, Choice, Horizon
from psoup.store.delta.durable import MIN_GRACE_SECONDS
from results.region import Region, horizon_region, leaving, visible
from results.window import CountWindow, TimeWindow

# The engine keeps rows for so long, at least, after they have passed the retention.
_GRACE = int(MIN_GRACE_SECONDS * 1_000_000)


@dataclass(frozen=True, slots=True)
class LegMoment:
    """A leg as a mark has it: the NOW its window is applied at, None without one; the NOW that its
    retention counts from, its stream's own unless the query's is later; how far rows were sent
    ahead; and the rows known, and an id that none of the leg's is below."""

    now: int | None
    current: int | None
    horizon: int | None
    high: int
    low: int = field(default=0, compare=False)


def moments_of(plan: Plan, mark: Mark) -> tuple[LegMoment, ...]:
    """The legs of a plan as a mark of its answer has them."""
    return tuple(
        _moment(mark, leg, apart) for leg, apart in zip(mark.legs, legs_apart(plan), strict=True)
    )


def _moment(mark: Mark, leg: LegMark, apart: bool) -> LegMoment:
    """The horizon is an instant of the query's NOW, so a leg that is taken `apart` has none: at its
    stream's own NOW no row waits."""
    now = leg.current if apart else mark.now
    if mark.now is None or now is None:
        return LegMoment(None, None, None, leg.high)
    current = now if leg.current is None else max(now, leg.current)
    return LegMoment(now, current, None if apart else mark.horizon, leg.high, leg.low)


@dataclass(frozen=True)
class TakenRows:
    """A set of a leg's rows, with the columns that a query reads, taken when they are needed."""

    rows: RowSet
    reads: frozenset[str]

    @once
    def batch(self) -> pa.RecordBatch:
        """The rows by ascending id."""
        source = LegRows(self.rows.leg, self.rows.matcher, NO_ROWS)
        return source.gather(list(self.rows.walk()), self.reads)

    @property
    def none(self) -> bool:
        """Whether there are no rows."""
        return all(choice.region.empty for choice in self.rows.choices) or not self.batch.num_rows


@dataclass(frozen=True)
class LegSets:
    """The sets of a leg's rows between a copy, None without one, and a target.

    `timed` says that NOW is the query's, so that it tells when rows come and go; `lasting` that
    the retention is no part of that: rows that pass it are gone, not expired.
    """

    leg: LegPlan
    matcher: MatchSource
    memo: Memo
    copy: LegMoment | None
    target: LegMoment
    reads: frozenset[str]
    timed: bool
    lasting: bool

    # ---- sets

    @once
    def had(self) -> TakenRows:
        copy = self.copy
        return self._taken(NO_ROWS if copy is None else self._choice(copy, copy.now, copy.current))

    @once
    def held(self) -> TakenRows:
        copy, target = self.copy, self.target
        if copy is None:
            return self._taken(NO_ROWS)
        retained = copy.current if self.lasting else target.current
        return self._taken(self._choice(copy, target.now, retained))

    @once
    def wanted(self) -> TakenRows:
        """The rows of the target."""
        target = self.target
        return self._taken(self._choice(target, target.now, target.current))

    @once
    def expired(self) -> TakenRows:
        return self._taken() if self._still else self._minus(self.had, self.held)

    @once
    def gone(self) -> TakenRows:
        if self._by_key is not None:
            return replace(self.wanted, rows=self._by_key.gone)
        return self._taken() if self._still else self._minus(self.held, self.wanted)

    @once
    def ended(self) -> Int64s:
        """The ids of rows that are gone because their key was updated or deleted."""
        if self.leg.keyed is None or self.gone.none:
            return NO_IDS
        gone, target = self.gone.rows.ids, self.target
        if self._by_key is not None:
            return gone
        return ended_rows(self.leg, gone, target.high, target.now, self._cut)

    @once
    def come(self) -> TakenRows:
        if self.copy is None:
            return self.wanted
        if self._by_key is not None:
            return replace(self.wanted, rows=self._by_key.come)
        return self._taken() if self._still else self._minus(self.wanted, self.held)

    @once
    def kept(self) -> TakenRows:
        if self.come.none:
            return self.wanted
        if self.gone.none:
            return self.held
        return replace(self.wanted, rows=self.wanted.rows.common(self.held.rows))

    # ---- what can be told

    @property
    def forgotten(self) -> bool:
        """Tells whether rows that the copy had may be gone from the store, so that nobody can say
        which are to be removed."""
        copy, keyed = self.copy, self.leg.keyed
        if copy is None or copy.now is None or self._still:
            return False
        if keyed is not None:
            return keyed.forgets(copy.high, copy.now, self._cut)
        return self.lasting and not self._is_there(copy)

    @property
    def countable(self) -> bool:
        """Tells whether all rows that the copy had are there to be counted, if none is
        forgotten."""
        return self.copy is None or self.leg.keyed is not None or self._is_there(self.copy)

    @property
    def lost(self) -> bool:
        """Tells whether rows of the target may have gone from the store since it was chosen."""
        target, keyed = self.target, self.leg.keyed
        if keyed is None or target.now is None:
            return not self._is_there(target)
        oldest = oldest_retained(self.leg.schema, self.leg.current)
        if oldest is None or self._cut is None:
            return False
        held = max(target.now, self._cut)
        return held < oldest - 1 - _GRACE or keyed.forgets(target.high, held, self._cut)

    @property
    def low(self) -> int:
        """An id that no row of the target is below; 0 where rows are never deleted."""
        if self.leg.schema.retain is None or self.leg.keyed is not None:
            return 0
        region = self.wanted.rows.choices[0].region
        return max(region.lo, self.leg.stem.first_id(region.begin, region.end))

    def interval(self, ts: Int64s) -> tuple[Int64s, Int64s] | None:
        """The interval of the query's NOW in which the leg has the row of each ts, unless the row
        is gone; None where NOW does not matter."""
        if not self.timed:
            return None
        lasting = self.lasting or self.leg.keyed is not None
        retain = None if lasting else self.leg.schema.retain
        if isinstance(self.leg.window, TimeWindow):
            return visible(self.leg.window, ts, retain)
        return ts, leaving(ts, retain)

    def _is_there(self, moment: LegMoment) -> bool:
        """Tells whether the store is sure to have all rows of a moment that it ever had."""
        oldest = oldest_retained(self.leg.schema, self.leg.current)
        if oldest is None or moment.now is None:
            return True
        window = self.leg.window
        choice = self._choice(moment, moment.now, moment.current)
        begin = choice.region.begin
        if isinstance(window, CountWindow) and window.partition_by:
            begin = oldest_retained(self.leg.schema, moment.current)
        if choice.region.empty or (begin is not None and begin >= oldest - _GRACE):
            return True
        return self.leg.stem.is_whole(moment.low)

    # ---- choices

    @property
    def _still(self) -> bool:
        """Tells whether copy and target have one moment."""
        return self.copy == self.target

    def _choice(self, known: LegMoment, now: int | None, current: int | None) -> Choice:
        """The rows of a moment that have not left the window by `now`, nor the retention when the
        stream's NOW is `current`."""
        if known.now is None or now is None:
            return NO_ROWS
        leg = self.leg
        if leg.keyed is not None:
            return self._current(known, now)
        oldest = oldest_retained(leg.schema, current)
        if isinstance(leg.window, TimeWindow):
            return Choice(horizon_region(leg.window, now, known.horizon, oldest, known.high))
        return rows_at(leg, self.matcher, Horizon(known.now, oldest, known.high), self.memo)

    def _current(self, known: LegMoment, now: int) -> Choice:
        leg = self.leg
        assert leg.keyed is not None and known.now is not None
        if not isinstance(leg.window, TimeWindow):
            oldest = None if self._cut is None else self._cut + 1
            return rows_at(leg, self.matcher, Horizon(known.now, oldest, known.high), self.memo)
        region = self._region(leg.window, known, now)
        rows = leg.keyed.current(known.high, known.now, self._cut)
        return Choice(region, rows.ids[region.holds(rows.ts, rows.ids)])

    @staticmethod
    def _region(window: TimeWindow, known: LegMoment, now: int) -> Region:
        """The region that the current rows of a keyed stream are chosen from."""
        return horizon_region(window, now, known.horizon, None, known.high)

    @property
    def _cut(self) -> int | None:
        """Rows of a keyed stream that had ended by this instant are not retained."""
        oldest = oldest_retained(self.leg.schema, self.target.current)
        return None if oldest is None else oldest - 1

    @once
    def _by_key(self) -> RowChange | None:
        """The change as the keys tell it that have new rows, where nothing else can have changed:
        no row waits for NOW, and the target is the newest."""
        leg, copy, target = self.leg, self.copy, self.target
        if leg.keyed is None or not isinstance(leg.window, TimeWindow) or copy is None:
            return None
        if _waits(copy) or _waits(target) or copy.now is None or target.now is None:
            return None
        old, new = (self._region(leg.window, one, target.now) for one in (copy, target))
        if target.high != leg.stem.high or replace(old, hi=new.hi) != new:
            return None
        changed = leg.keyed.changed(copy.high, copy.now, self._cut)
        return changed and keyed_change(leg, self.matcher, self.memo, (old, new), changed)

    # ---- sets of choices

    def _taken(self, *choices: Choice) -> TakenRows:
        return TakenRows(RowSet(self.leg, self.matcher, self.memo, choices), self.reads)

    def _minus(self, some: TakenRows, others: TakenRows) -> TakenRows:
        return replace(some, rows=some.rows.minus(others.rows))


def _waits(moment: LegMoment) -> bool:
    """Tells whether a stream may have rows with a ts after the NOW of its leg."""
    if moment.now is None:
        return True
    return moment.current is not None and moment.current > moment.now
