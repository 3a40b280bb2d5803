"""Copies of answers that consist of rows: the rows of the target that the client does not have.

The mark of a copy tells its rows, whoever holds the copy. So the difference of two marks needs no
log: it is rows with newer ids, rows that enter later than was sent ahead, and where a window counts
rows, those that it has since left behind. Rows that have merely expired are never mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from datastem.arrays import Int64s, Mask
from datastem.blocks import Part
from psoup.answers.difference.copier import CopyChunk, once
from psoup.answers.difference.job import CopyJob, Cursor, Mark, WholeReason
from psoup.answers.difference.keys import NO_IDS, ended_rows, has_keys, key_digests
from psoup.answers.difference.row_sets import KeptTotals, RowChange, RowSet, Total, keyed_change
from psoup.answers.difference.rowwise import RowwiseCopier, Sendable
from psoup.answers.matching.shown_rows import MatchSource
from psoup.answers.planning.plan import LegPlan, Plan, oldest_retained
from psoup.answers.rows.leg_rows import LegRows, rows_at
from psoup.answers.rows.windows import NO_ROWS, Choice, Horizon
from querystem.evaluate import project
from querystem.ordering import sort_keys
from results.id_sets import all_ids, member, to_runs
from results.region import Region, entered, horizon_region, leaving, visible
from results.window import TimeWindow

# Bytes of the ids of one run.
_RUN_BYTES = 3


@dataclass(frozen=True)
class RowCopier(RowwiseCopier):
    """Tells the difference of a job from the rows of a plan."""

    @property
    def _leg(self) -> LegPlan:
        return self.plan.leg

    # ---- the difference

    def _instead(self) -> CopyJob | None:
        return self._without_copy(WholeReason.RETENTION) if self._forgotten else None

    def _count_lacking(self) -> int:
        return sum(len(places) for _, places in self._lacking())

    def _telling_bytes(self, removed: Int64s) -> int:
        return _RUN_BYTES * len(to_runs(removed))

    def _removed(self) -> Int64s:
        gone, have = self._change.gone.ids, self.job.repair.have
        if have is None:
            return gone
        return all_ids(gone, have[~member(have, self._target.ids)])

    def _ended(self) -> Int64s:
        if self._leg.keyed is None:
            return NO_IDS
        gone, target = self._change.gone.ids, self.job.target
        if self._by_key is not None:
            return gone
        return ended_rows(self._leg, gone, target.high, target.now, self._cut)

    @property
    def _good_until(self) -> int | None:
        horizon = self.job.target.horizon
        return None if horizon is None else horizon + 1

    # ---- the rows

    def renewed(self, plan: Plan, job: CopyJob) -> RowCopier:
        return RowCopier(self.maker, plan, job)

    def _sendable(self, cursor: Cursor) -> Iterator[Sendable]:
        for part, places in self._lacking(cursor.next_id):
            yield len(places), partial(self._chunk, part, places)

    def _chunk(self, part: Part, some: Int64s, count: int) -> CopyChunk:
        """The first rows at some places of a part."""
        leg, query, places = self._leg, self.plan.query, some[:count]
        ids, ts = part.ids[places], part.ts[places]
        rows = LegRows(leg, self._matcher, NO_ROWS).gather([(part, places)], query.reads)
        window = leg.window
        retain = None if leg.keyed is not None else leg.schema.retain
        if isinstance(window, TimeWindow):
            begin, until = visible(window, ts, retain)
            slid = window.slide is not None
        else:
            begin, until, slid = ts, leaving(ts, retain), False
        places_in_order = sort_keys(query, rows, moments=slid)
        keyed = self.job.question.changes and has_keys(self.plan)
        keys = key_digests(self.plan, ids) if keyed else None
        return CopyChunk(ids, begin, until, places_in_order, project(query, rows), keys=keys)

    def _lacking(self, low: int = 0) -> Iterator[tuple[Part, Int64s]]:
        """The places of the target's rows, from the id `low` on, that the client does not have."""
        repair = self.job.repair
        some = self._target if repair.asked else self._change.come
        for part, places in some.walk(low):
            wanted = places[~self._had(part.ids[places], part.ts[places])]
            if len(wanted):
                yield part, wanted

    def _had(self, ids: Int64s, ts: Int64s) -> Mask:
        """A mask of the given rows: true for those the client has, undamaged, or has been sent."""
        claim, repair = self.job.claim, self.job.repair
        had = np.zeros(len(ids), np.bool_)
        if repair.asked:
            had = self._in_copy(ids, ts) & ~member(ids, repair.resend)
        if repair.have is not None:
            had &= member(ids, repair.have)
        if claim.target is not None:
            had |= (ids < claim.cursor.next_id) & self._sent(claim.target, ts)
        return had

    def _in_copy(self, ids: Int64s, ts: Int64s) -> Mask:
        (choice,) = self._copy.choices
        if choice.ids is not None:
            return member(ids, choice.ids)
        return choice.region.holds(ts, ids)

    def _sent(self, mark: Mark, ts: Int64s) -> Mask:
        """A mask of the given rows: true for those that the mark's horizon reached."""
        if not isinstance(self._leg.window, TimeWindow) or mark.horizon is None:
            return np.ones(len(ts), np.bool_)
        return np.asarray(ts < entered(self._leg.window, mark.horizon))

    @once
    def _change(self) -> RowChange:
        """The rows of the target that the copy lacks, and the other way round."""
        return self._by_key or RowChange(
            self._target.minus(self._copy), self._copy.minus(self._target), None
        )

    def _total(self) -> Total:
        leg = self._leg
        if leg.keyed is None or not isinstance(leg.window, TimeWindow):
            return self._target.total()
        kept = KeptTotals(self.maker.memo, leg.subject)
        region = self._region(self.job.target)
        newest = self.job.target.high == leg.stem.high
        total = (kept.find(region) if newest else None) or self._change.total(kept)
        total = total or self._target.total()
        if newest:
            kept.keep(region, total)
        return total

    @once
    def _by_key(self) -> RowChange | None:
        """The change as the keys tell it that have new rows, where nothing else can have
        changed."""
        copy, target, leg = self.job.claim.copy, self.job.target, self._leg
        if copy is None or copy.now is None or target.now is None or leg.keyed is None:
            return None
        if not isinstance(leg.window, TimeWindow) or target.high != leg.stem.high:
            return None
        old, new = self._region(copy), self._region(target)
        if replace(old, hi=new.hi) != new:
            return None
        changed = leg.keyed.changed(copy.high, copy.now, self._cut)
        return changed and keyed_change(leg, self._matcher, self.maker.memo, (old, new), changed)

    @once
    def _target(self) -> RowSet:
        return self._rows(self.job.target)

    @once
    def _copy(self) -> RowSet:
        """The rows of the client's copy that have not expired."""
        return self._rows(self.job.claim.copy)

    def _rows(self, mark: Mark | None) -> RowSet:
        choice = NO_ROWS if mark is None else self._choice(mark)
        return RowSet(self._leg, self._matcher, self.maker.memo, (choice,))

    @once
    def _matcher(self) -> MatchSource:
        return self.maker.matchers(self.plan, self.maker.work(bound=self.plan.bound)).of(self._leg)

    # ---- windows

    def _choice(self, mark: Mark) -> Choice:
        """The rows of a mark, of the copy or the target, that have not expired at the target."""
        leg, now = self._leg, self.job.target.now
        if mark.now is None or now is None:
            return NO_ROWS
        if not isinstance(leg.window, TimeWindow):
            return rows_at(
                leg, self._matcher, Horizon(mark.now, self._oldest, mark.high), self.maker.memo
            )
        if leg.keyed is None:
            return Choice(horizon_region(leg.window, now, mark.horizon, self._oldest, mark.high))
        region = self._region(mark)
        rows = leg.keyed.current(mark.high, mark.now, self._cut)
        return Choice(region, rows.ids[region.holds(rows.ts, rows.ids)])

    def _region(self, mark: Mark) -> Region:
        """The region that the current rows of a mark, in a keyed stream, are chosen from."""
        now = self.job.target.now
        if now is None or not isinstance(self._leg.window, TimeWindow):
            return NO_ROWS.region
        return horizon_region(self._leg.window, now, mark.horizon, None, mark.high)

    @property
    def _oldest(self) -> int | None:
        """The least ts that is retained at the target's NOW; in a keyed stream, the least end."""
        return oldest_retained(self._leg.schema, self.job.target.now)

    @property
    def _cut(self) -> int | None:
        """Rows that had ended by this instant are not retained."""
        return None if self._oldest is None else self._oldest - 1

    @property
    def _forgotten(self) -> bool:
        """Tells whether rows of the copy may have ended and been forgotten since."""
        copy, keyed = self.job.claim.copy, self._leg.keyed
        if keyed is None or copy is None or copy.now is None:
            return False
        return keyed.forgets(copy.high, copy.now, self._cut)
