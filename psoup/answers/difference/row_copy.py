"""Copies of answers that consist of rows: the rows of the target that the client does not have.

The mark of a copy says which rows it has, so the difference of two marks needs no log. It consists
of rows with newer ids and of rows that enter later than was sent ahead. If a window counts rows,
it also has those that the window has since left behind. Expired rows are never mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from datastem.arrays import Int64s, Mask
from datastem.blocks import Part
from psoup.answers.caches import Memo
from psoup.answers.difference.copier import CopyChunk, once
from psoup.answers.difference.job import CopyJob, Cursor, Mark, WholeReason, by_clock
from psoup.answers.difference.keys import has_keys, key_digests
from psoup.answers.difference.leg_sets import LegSets, moments_of
from psoup.answers.difference.row_sets import CachedTotals, Total
from psoup.answers.difference.rowwise import RowwiseCopier, Sendable
from psoup.answers.matching.matcher import Work
from psoup.answers.planning.plan import LegPlan, Plan
from psoup.answers.rows.leg_rows import LegRows
from psoup.answers.rows.windows import NO_ROWS
from querystem.evaluate import project
from querystem.ordering import sort_keys
from querystem.visibility import Visibility
from results.id_sets import all_ids, member, to_runs
from results.region import entered
from results.window import TimeWindow

# Bytes that a run of consecutive removed ids takes in a message, about.
_RUN_BYTES = 3


@dataclass(frozen=True)
class RowCopier(RowwiseCopier):
    """Computes the difference of a job from the rows of a plan with one leg, within the budget
    `work`, if one is given."""

    work: Work | None = None

    @property
    def lacks_any(self) -> bool:
        """Whether the client lacks a row of the target."""
        return any(True for _ in self._lacking())

    @property
    def _leg(self) -> LegPlan:
        return self.plan.leg

    @once
    def _sets(self) -> LegSets:
        """The rows of the leg between copy and target. What passes the retention expires."""
        plan, copy = self.plan, self.job.claim.copy
        matchers = self.maker.matchers(plan, self.work or self.maker.work(bound=plan.bound))
        target = moments_of(plan, self.job.target)[0]
        return LegSets(
            self._leg,
            # Rows whose visibility has ended are neither in the copy nor in the target; all others
            # are sent ahead, with their intervals.
            matchers.remaining(self._leg, target.now),
            self.maker.memo if self._is_cached else Memo(0),
            None if copy is None else moments_of(plan, copy)[0],
            target,
            plan.query.reads,
        )

    @property
    def _visibility(self) -> Visibility | None:
        return self._leg.visibility

    @property
    def _is_cached(self) -> bool:
        """Whether the totals of rows may be cached: not if they are other ones at each NOW."""
        return self._visibility is None or not self._visibility.ends

    # ---- the difference

    def _replacement(self) -> CopyJob | None:
        forgotten = self._sets.are_keys_forgotten
        return self._without_copy(WholeReason.RETENTION) if forgotten else None

    def _count_lacking(self) -> int:
        return sum(len(places) for _, places in self._lacking())

    def _removal_bytes(self, removed: Int64s) -> int:
        return _RUN_BYTES * len(to_runs(removed))

    def _removed(self) -> Int64s:
        removed, have = self._sets.removed.rows.ids, self.job.repair.have
        removed = all_ids(removed, self.job.erased)
        if have is None:
            return removed
        return all_ids(removed, have[~member(have, self._sets.target_rows.rows.ids)])

    def _ended(self) -> Int64s:
        # To the client, an erased row is one whose stream key was deleted.
        return all_ids(self._sets.ended, self.job.erased)

    @property
    def _good_until(self) -> int | None:
        horizon = self.job.target.horizon
        # Rows visible at the horizon itself were sent ahead.
        return None if horizon is None else horizon + 1

    def _total(self) -> Total:
        leg, sets = self._leg, self._sets
        if not isinstance(leg.window, TimeWindow) or not self._is_cached:
            return sets.target_rows.rows.total()
        totals = CachedTotals(self.maker.memo, leg.subject)
        if leg.keyed is None:
            return self._total_of_region(totals)
        is_newest = self.job.target.high == leg.stem.high
        total = totals.find(sets.current_region) if is_newest else None
        if total is None and sets.key_change is not None:
            total = sets.key_change.total(totals)
        total = total or sets.target_rows.rows.total()
        if is_newest:
            totals.insert(sets.current_region, total)
        return total

    def _total_of_region(self, totals: CachedTotals) -> Total:
        """Return the total of a target that is all matching rows of one region."""
        rows = self._sets.target_rows.rows
        # If NOW follows the clock, no two syncs have the same region. If rows of it are lost, it
        # has fewer than when they were not.
        if by_clock(self.plan) or self.plan.losses:
            return rows.total()
        (choice,) = rows.choices
        total = totals.find(choice.region)
        if total is None:
            total = rows.total()
            totals.insert(choice.region, total)
        return total

    # ---- the rows

    def renewed(self, plan: Plan, job: CopyJob) -> RowCopier:
        return RowCopier(self.maker, plan, job, self.work)

    def _sendable(self, cursor: Cursor) -> Iterator[Sendable]:
        for part, places in self._lacking(cursor.next_id):
            yield len(places), partial(self._chunk, part, places)

    def _chunk(self, part: Part, lacking: Int64s, count: int) -> CopyChunk:
        """Return the first rows of those at the `lacking` places of a part."""
        query, places = self.plan.query, lacking[:count]
        ids, ts = part.ids[places], part.ts[places]
        source = LegRows(self._leg, self._sets.matcher, NO_ROWS)
        visibility = self._visibility
        read = query.reads if visibility is None else query.reads | visibility.reads
        rows = source.gather([(part, places)], read)
        begin, until = self._sets.interval(ts)
        if visibility is not None:
            first, end = visibility.interval(rows)
            begin, until = np.maximum(begin, first), np.minimum(until, end)
        window = self._leg.window
        in_steps = isinstance(window, TimeWindow) and window.enters_in_steps
        # Clients put equal rows in the order in which they become visible, which is that of ts only
        # if the window alone decides it.
        order = sort_keys(query, rows, moments=in_steps or visibility is not None)
        keyed = self.job.question.changes and has_keys(self.plan)
        keys = key_digests(self.plan, (ids,)) if keyed else None
        return CopyChunk(ids, begin, until, order, project(query, rows), keys=keys)

    def _lacking(self, low: int = 0) -> Iterator[tuple[Part, Int64s]]:
        """Yield the places of the target's rows, from the id `low` on, that the client lacks."""
        sets = self._sets
        source = sets.target_rows if self.job.repair.requested else sets.added
        for part, places in source.rows.walk(low):
            lacking = places[~self._has(part.ids[places], part.ts[places])]
            if len(lacking):
                yield part, lacking

    def _has(self, ids: Int64s, ts: Int64s) -> Mask:
        """Return a mask of rows: true for those that the client has, undamaged, or was sent."""
        claim, repair = self.job.claim, self.job.repair
        mask = np.zeros(len(ids), np.bool_)
        if repair.requested:
            mask = self._in_copy(ids, ts) & ~member(ids, repair.resend)
        if repair.have is not None:
            mask &= member(ids, repair.have)
        if claim.target is not None:
            # NOW may have moved on since: a row that enters later than the horizon of then was not
            # sent, although the cursor has passed it.
            mask |= (ids < claim.cursor.next_id) & self._sent(claim.target, ts)
        return mask

    def _in_copy(self, ids: Int64s, ts: Int64s) -> Mask:
        (choice,) = self._sets.unexpired.rows.choices
        if choice.ids is not None:
            return member(ids, choice.ids)
        return choice.region.holds(ts, ids)

    def _sent(self, mark: Mark, ts: Int64s) -> Mask:
        """Return a mask of rows: true for those that the mark's horizon reached."""
        if not isinstance(self._leg.window, TimeWindow) or mark.horizon is None:
            return np.ones(len(ts), np.bool_)
        return np.asarray(ts < entered(self._leg.window, mark.horizon))
