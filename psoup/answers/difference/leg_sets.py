"""The rows of one leg at two marks: which were added, removed, or have merely expired.

Some rows of the copy (`copied`) have `expired` by the target's NOW; clients drop those by
themselves. Of the `unexpired` rest some are `removed` early: a window that counts rows left them
behind, a key has a newer row, or the retention has passed. The others are `unchanged`. The target
(`target_rows`) has the rows that are unchanged and those that were `added`.
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
from psoup.answers.matching.permitted_rows import MatchSource
from psoup.answers.planning.plan import LegPlan, Plan, oldest_retained
from psoup.answers.rows.leg_rows import LegRows, rows_at
from psoup.answers.rows.windows import NO_ROWS, Choice, Horizon
from psoup.store.delta.durable import MIN_GRACE_SECONDS
from results.region import Region, horizon_region, leaving, visible
from results.window import CountWindow, TimeWindow

# The engine keeps rows at least this long after they have passed the retention.
_GRACE_MICROSECONDS = int(MIN_GRACE_SECONDS * 1_000_000)


@dataclass(frozen=True, slots=True)
class LegMoment:
    """A leg at a mark.

    `now` is the NOW that its window is applied at, None before there is one. Its retention counts
    from `current`: the NOW of its stream, or of the query if that is later. Rows were sent ahead
    up to `horizon`. Rows with ids below `high` are known, and no row of the leg is below `low`.
    """

    now: int | None
    current: int | None
    horizon: int | None
    high: int
    low: int = field(default=0, compare=False)


def moments_of(plan: Plan, mark: Mark) -> tuple[LegMoment, ...]:
    """Return the legs of a plan at a mark of its answer."""
    return tuple(
        _moment(mark, leg, apart) for leg, apart in zip(mark.legs, legs_apart(plan), strict=True)
    )


def _moment(mark: Mark, leg: LegMark, apart: bool) -> LegMoment:
    """Return a leg at a mark.

    The horizon is an instant of the query's NOW. To a leg that is taken `apart`, at the NOW of its
    own stream, it says nothing: rows that wait there are not sent ahead.
    """
    now = leg.current if apart else mark.now
    if mark.now is None or now is None:
        return LegMoment(None, None, None, leg.high)
    current = now if leg.current is None else max(now, leg.current)
    return LegMoment(now, current, now if apart else mark.horizon, leg.high, leg.low)


@dataclass(frozen=True)
class LazyRows:
    """A set of a leg's rows with the columns that a query reads, gathered when first needed."""

    rows: RowSet
    reads: frozenset[str]

    @once
    def batch(self) -> pa.RecordBatch:
        """The rows by ascending id."""
        source = LegRows(self.rows.leg, self.rows.matcher, NO_ROWS)
        return source.gather(list(self.rows.walk()), self.reads)

    @property
    def is_empty(self) -> bool:
        return all(choice.region.empty for choice in self.rows.choices) or not self.batch.num_rows


@dataclass(frozen=True)
class LegSets:
    """The sets of a leg's rows between a copy, None without one, and a target.

    `follows_now` says that the leg is taken at the query's NOW, so that NOW alone lets rows come
    and go. `unretained_removed` says that rows which pass the retention are removed by the server;
    otherwise they expire by themselves.
    """

    leg: LegPlan
    matcher: MatchSource
    memo: Memo
    copy: LegMoment | None
    target: LegMoment
    reads: frozenset[str]
    follows_now: bool = True
    unretained_removed: bool = False

    # ---- sets

    @once
    def copied(self) -> LazyRows:
        """The rows of the copy when it was made."""
        copy = self.copy
        return self._lazy(NO_ROWS if copy is None else self._choice(copy, copy.now, copy.current))

    @once
    def unexpired(self) -> LazyRows:
        """The rows of the copy that have not expired at the target's NOW."""
        copy, target = self.copy, self.target
        if copy is None:
            return self._lazy(NO_ROWS)
        # Rows that have passed the retention count as expired, unless the server removes them.
        current = copy.current if self.unretained_removed else target.current
        return self._lazy(self._choice(copy, target.now, current))

    @once
    def target_rows(self) -> LazyRows:
        """The rows of the target."""
        target = self.target
        return self._lazy(self._choice(target, target.now, target.current))

    @once
    def expired(self) -> LazyRows:
        """The rows of the copy that have expired since."""
        return self._lazy() if self._is_same else _minus(self.copied, self.unexpired)

    @once
    def removed(self) -> LazyRows:
        """The unexpired rows of the copy that the target lacks."""
        if self.key_change is not None:
            return replace(self.target_rows, rows=self.key_change.removed)
        return self._lazy() if self._is_same else _minus(self.unexpired, self.target_rows)

    @once
    def ended(self) -> Int64s:
        """The ids of rows that were removed because their key was updated or deleted."""
        if self.leg.keyed is None:
            return NO_IDS
        removed, target = self.removed.rows.ids, self.target
        # With a key change the window has not moved, so only a newer row of its key removes a row.
        if self.key_change is not None:
            return removed
        return ended_rows(self.leg, removed, target.high, target.now, self._cut)

    @once
    def added(self) -> LazyRows:
        """The rows of the target that the copy lacks."""
        if self.copy is None:
            return self.target_rows
        if self.key_change is not None:
            return replace(self.target_rows, rows=self.key_change.added)
        return self._lazy() if self._is_same else _minus(self.target_rows, self.unexpired)

    @once
    def unchanged(self) -> LazyRows:
        """The rows that copy and target have in common."""
        # With nothing added the target is a subset of the copy, and no intersection is computed.
        if self.added.is_empty:
            return self.target_rows
        if self.removed.is_empty:
            return self.unexpired
        return replace(self.target_rows, rows=self.target_rows.rows.common(self.unexpired.rows))

    @once
    def key_change(self) -> RowChange | None:
        """The change as the new rows of a keyed stream tell it.

        None unless nothing else can have changed: no row waits for NOW, and the target is the
        newest.
        """
        leg, copy, target = self.leg, self.copy, self.target
        if leg.keyed is None or not isinstance(leg.window, TimeWindow) or copy is None:
            return None
        if _waits(copy) or _waits(target) or copy.now is None or target.now is None:
            return None
        old, new = (self._region(leg.window, moment, target.now) for moment in (copy, target))
        # `changed` compares with the newest rows, and does not see rows that a moved window drops.
        if target.high != leg.stem.high or replace(old, hi=new.hi) != new:
            return None
        changed = leg.keyed.changed(copy.high, copy.now, self._cut)
        return changed and keyed_change(leg, self.matcher, self.memo, (old, new), changed)

    # ---- what the store still has

    @property
    def is_copy_forgotten(self) -> bool:
        """Whether rows of the copy may be gone from the store, so that it can't be said which to
        remove."""
        if self.copy is None or self.copy.now is None or self._is_same:
            return False
        if self.leg.keyed is not None:
            return self.are_keys_forgotten
        return self.unretained_removed and not self._is_stored(self.copy)

    @property
    def are_keys_forgotten(self) -> bool:
        """Whether rows of the copy, in a keyed stream, may have ended and been pruned since."""
        copy, keyed = self.copy, self.leg.keyed
        if keyed is None or copy is None or copy.now is None:
            return False
        return keyed.forgets(copy.high, copy.now, self._cut)

    @property
    def is_countable(self) -> bool:
        """Whether all rows that the copy had can be counted, unless some are forgotten."""
        return self.copy is None or self.leg.keyed is not None or self._is_stored(self.copy)

    @property
    def is_target_lost(self) -> bool:
        """Whether rows of the target may have left the store since it was chosen."""
        target, keyed = self.target, self.leg.keyed
        if keyed is None or target.now is None:
            return not self._is_stored(target)
        oldest = oldest_retained(self.leg.schema, self.leg.current)
        if oldest is None or self._cut is None:
            return False
        instant = max(target.now, self._cut)
        pruned = instant < oldest - 1 - _GRACE_MICROSECONDS
        return pruned or keyed.forgets(target.high, instant, self._cut)

    @property
    def low(self) -> int:
        """An id that no row of the target is below; 0 if rows are never deleted."""
        if self.leg.schema.retain is None or self.leg.keyed is not None:
            return 0
        region = self.target_rows.rows.choices[0].region
        if region.empty:
            return self.target.high
        return max(region.lo, self.leg.stem.first_id(region.begin, region.end))

    def _is_stored(self, moment: LegMoment) -> bool:
        """Return True if the store is sure to have all rows of a moment that it ever had."""
        oldest = oldest_retained(self.leg.schema, self.leg.current)
        if oldest is None or moment.now is None:
            return True
        window = self.leg.window
        choice = self._choice(moment, moment.now, moment.current)
        begin, is_empty = choice.region.begin, choice.region.empty
        # With partitions the region is drawn around the rows that are left, so it does not show
        # which are gone. A window that counts rows is also empty if all of its rows are gone.
        if isinstance(window, CountWindow) and (window.partition_by or is_empty):
            begin, is_empty = oldest_retained(self.leg.schema, moment.current), False
        if is_empty or (begin is not None and begin >= oldest - _GRACE_MICROSECONDS):
            return True
        # The engine may delete later than it must: then the files still have all ids.
        return self.leg.stem.is_whole(moment.low)

    # ---- visibility

    def interval(self, ts: Int64s) -> tuple[Int64s, Int64s]:
        """Return the interval `[from, until)` of the leg's NOW in which its window has the row of
        each ts, unless the row is removed."""
        # Rows that the server removes, or that end with their key, don't leave by their ts.
        unlimited = self.unretained_removed or self.leg.keyed is not None
        retain = None if unlimited else self.leg.schema.retain
        if isinstance(self.leg.window, TimeWindow):
            return visible(self.leg.window, ts, retain)
        return ts, leaving(ts, retain)

    # ---- choices

    @property
    def current_region(self) -> Region:
        """The region that the target's current rows, in a keyed stream, are chosen from."""
        window, now = self.leg.window, self.target.now
        if now is None or not isinstance(window, TimeWindow):
            return NO_ROWS.region
        return self._region(window, self.target, now)

    @property
    def _is_same(self) -> bool:
        """Whether copy and target are of one moment."""
        return self.copy == self.target

    def _choice(self, moment: LegMoment, now: int | None, current: int | None) -> Choice:
        """Return the rows of a moment that have not left the window by `now`, nor the retention
        when the stream's NOW is `current`."""
        if moment.now is None or now is None:
            return NO_ROWS
        leg = self.leg
        if leg.keyed is not None:
            return self._current(moment, now)
        oldest = oldest_retained(leg.schema, current)
        if isinstance(leg.window, TimeWindow):
            return Choice(horizon_region(leg.window, now, moment.horizon, oldest, moment.high))
        return rows_at(leg, self.matcher, Horizon(moment.now, oldest, moment.high), self.memo)

    def _current(self, moment: LegMoment, now: int) -> Choice:
        """Return the current rows of a keyed stream at a moment, as far as the window has them at
        `now`."""
        leg = self.leg
        assert leg.keyed is not None and moment.now is not None
        if not isinstance(leg.window, TimeWindow):
            oldest = None if self._cut is None else self._cut + 1
            return rows_at(leg, self.matcher, Horizon(moment.now, oldest, moment.high), self.memo)
        region = self._region(leg.window, moment, now)
        rows = leg.keyed.current(moment.high, moment.now, self._cut)
        return Choice(region, rows.ids[region.holds(rows.ts, rows.ids)])

    @staticmethod
    def _region(window: TimeWindow, moment: LegMoment, now: int) -> Region:
        """Return the region that the current rows of a keyed stream are chosen from."""
        return horizon_region(window, now, moment.horizon, None, moment.high)

    @property
    def _cut(self) -> int | None:
        """Rows of a keyed stream that had ended by this instant are not retained."""
        oldest = oldest_retained(self.leg.schema, self.target.current)
        return None if oldest is None else oldest - 1

    def _lazy(self, *choices: Choice) -> LazyRows:
        return LazyRows(RowSet(self.leg, self.matcher, self.memo, choices), self.reads)


def _minus(minuend: LazyRows, subtrahend: LazyRows) -> LazyRows:
    return replace(minuend, rows=minuend.rows.minus(subtrahend.rows))


def _waits(moment: LegMoment) -> bool:
    """Return True if a stream may have rows with a ts after the NOW of its leg."""
    if moment.now is None:
        return True
    return moment.current is not None and moment.current > moment.now
