"""Copies of groups, DISTINCT rows and the first so many: answers that only computing them tells.

The answer the client has is computed again, and compared row by row with the one it is to have. A
digest in the token proves that it came out as it was; where it does not, because rows are gone, the
whole answer is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from datastem.arrays import Int64s, Mask
from datastem.blocks import Part
from datastem.instants import FOR_EVER, SINCE_EVER
from psoup.answers.caches import Memo
from psoup.answers.difference.copier import CopyChunk, Difference, once
from psoup.answers.difference.job import (
    Claim,
    CopyJob,
    Mark,
    WholeReason,
    by_clock,
    enters_by_time,
    fresh_target,
)
from psoup.answers.evaluate import Selection
from psoup.answers.folds import Fold
from psoup.answers.leg_rows import LegRows, rows_at
from psoup.answers.maker import AnswerMaker
from psoup.answers.matching import Matcher, Work
from psoup.answers.plan import LegPlan, Plan, oldest_retained
from psoup.answers.windows import NO_ROWS, Choice, Horizon
from querystem.identity import identified
from querystem.refresh import RefreshEvery
from results.checksum import Digest
from results.id_sets import member
from results.region import Region, entered, leaving, visible
from results.window import TimeWindow

_COLUMNS_BYTES = 200
_ID_BYTES = 10
_KEPT_BYTES = 2 << 20


@dataclass(frozen=True)
class _Answer:
    """A computed answer. It is `numbered` where two keys had one number, so that the ids of its
    rows are places and say nothing."""

    chunk: CopyChunk
    numbered: bool

    @once
    def digest(self) -> bytes:
        return Digest().add(self.chunk.checksums).content

    @property
    def nbytes(self) -> int:
        return self.chunk.nbytes + 8 * len(self.chunk.ids)


@dataclass(frozen=True)
class ResultCopier:
    """Tells the difference of a job by computing both answers from a plan.

    It keeps the rows to send until they are sent.
    """

    maker: AnswerMaker
    plan: Plan
    job: CopyJob

    def renewed(self, plan: Plan, job: CopyJob) -> ResultCopier:
        return self

    def difference(self) -> Difference:
        job, answer = self._aim
        removed, whole, reason = np.empty(0, np.int64), self._base is None, job.reason
        if whole and job.claim.copy is not None:
            gone = self._copy is None
            reason = WholeReason.RETENTION if gone else WholeReason.SMALLER
        elif not whole:
            removed = job.unsent(self._removed)
        return Difference(
            job.without_copy(reason) if whole else job,
            whole,
            reason,
            removed,
            len(self._lacking.ids),
            len(answer.chunk.ids),
            answer.digest,
            self._good_until,
        )

    def piece(self, cursor: int, limit: int) -> CopyChunk:
        start = int(np.searchsorted(self._lacking.ids, cursor))
        return self._lacking.slice(start, len(self._lacking.ids) - start).cut(limit)

    # ---- the two answers

    @once
    def _aim(self) -> tuple[CopyJob, _Answer]:
        """The job and the answer of its target; of now where the target's can't be computed any
        more."""
        job = replace(self.job, target=self.target, moment=None)
        answer = self._answer(job.target)
        if job.continued and answer.digest != job.target.digest:
            job = job.restarted(self._settled(self.plan))
            answer = self._answer(job.target)
        if job.continued and job.claim.copy is not None and not self._told(job, answer):
            job = replace(job, claim=Claim(), reason=WholeReason.RETENTION)
        return replace(job, target=replace(job.target, digest=answer.digest)), answer

    @once
    def _copy(self) -> _Answer | None:
        return self._told(*self._aim)

    def _told(self, job: CopyJob, answer: _Answer) -> _Answer | None:
        """The answer the client has, if it can be computed."""
        copy = job.claim.copy
        if copy is None or answer.numbered:
            return None
        if copy.digest == answer.digest:
            return answer
        before = self._answer(copy)
        return before if before.digest == copy.digest and not before.numbered else None

    @once
    def _base(self) -> CopyChunk | None:
        """The answer that the change is told against; None where the whole answer is sent."""
        if self._copy is None:
            return None
        job, answer = self._aim
        base, rows = self._copy.chunk, answer.chunk
        if base is rows:
            return base
        changed = int((~_same(rows, base)).sum())
        share = changed / max(len(rows.ids), 1)
        removed = _ID_BYTES * int((~member(base.ids, rows.ids)).sum())
        if not job.continued and share * rows.nbytes + removed > rows.nbytes + _COLUMNS_BYTES:
            return None
        return base

    @once
    def _lacking(self) -> CopyChunk:
        job, answer = self._aim
        rows, repair = answer.chunk, job.repair
        if self._base is rows and not repair.asked and not job.continued:
            return rows.slice(0, 0)
        had = np.zeros(len(rows.ids), np.bool_)
        if self._base is not None:
            had = _same(rows, self._base)
            if repair.have is not None:
                had &= member(rows.ids, repair.have)
            had &= ~member(rows.ids, repair.resend)
        if job.continued:
            had |= rows.ids < job.claim.next_id
        return rows.take(np.flatnonzero(~had))

    @property
    def _removed(self) -> Int64s:
        job, answer = self._aim
        assert self._base is not None
        if self._base is answer.chunk and job.repair.have is None:
            return np.empty(0, np.int64)
        before = [self._base.ids] if job.repair.have is None else [self._base.ids, job.repair.have]
        ids = np.unique(np.concatenate(before))
        return ids[~member(ids, answer.chunk.ids)]

    # ---- computing

    @property
    def target(self) -> Mark:
        """The mark of the answer; where REFRESH decides which that is, it is found out here."""
        if self.job.fixed or self.plan.query.refresh is None:
            return self.job.target
        return self._settled(self.job.moment or self.plan)

    def _settled(self, plan: Plan) -> Mark:
        return fresh_target(self.maker.settle(plan, self._work), self.job.claim.copy, None)

    def _answer(self, mark: Mark) -> _Answer:
        """The answer of a mark. Small answers are remembered: the next sync asks for them again,
        and so do other registrations of the same query."""
        plan, memo = self.plan, self.maker.memo
        legs = tuple((leg.stream_id, leg.predicate_id) for leg in plan.legs)
        key = ("answer", legs, plan.query, mark.high, mark.now, mark.horizon)
        kept = memo.get(key)
        if isinstance(kept, _Answer):
            return kept
        found = self._computed(mark)
        if found.nbytes <= _KEPT_BYTES:
            memo.put(key, found, found.nbytes)
        return found

    def _computed(self, mark: Mark) -> _Answer:
        leg = LegRows(self.plan.leg, self._matcher, self._choice(mark))
        rows = Selection(self.plan.query, leg, self.maker.memo).matched()
        found = identified(self.plan.query, rows)
        count = len(found.ids)
        ids = found.ids if found.unique else np.arange(count)
        begin, until = np.full(count, SINCE_EVER), np.full(count, FOR_EVER)
        return _Answer(
            CopyChunk(ids, begin, until, found.sort_keys, found.outputs), not found.unique
        )

    def _choice(self, mark: Mark) -> Choice:
        if mark.now is None:
            return NO_ROWS
        leg = self.plan.leg
        oldest = oldest_retained(leg.schema, max(mark.now, mark.horizon or mark.now))
        return rows_at(leg, Horizon(mark.now, oldest, mark.high), self.maker.memo)

    @once
    def _matcher(self) -> Matcher:
        return self.maker.matchers(self.plan, self._work).of(self.plan.leg)

    @once
    def _work(self) -> Work:
        return self.maker.work()

    @property
    def _good_until(self) -> int | None:
        if not by_clock(self.plan):
            return None
        target = self._aim[0].target
        return next_change(self.plan, self._choice(target).region, target, self.maker.memo)


def _same(rows: CopyChunk, base: CopyChunk) -> Mask:
    """A mask of `rows`: true for those that `base` has, with an equal checksum."""
    if not len(base.ids):
        return np.zeros(len(rows.ids), np.bool_)
    places = np.searchsorted(base.ids, rows.ids)
    places[places == len(base.ids)] = 0
    return np.asarray((base.ids[places] == rows.ids) & (base.checksums[places] == rows.checksums))


# ---- how long an answer stays good


@dataclass(frozen=True, slots=True)
class _Least:
    """The least ts of some rows."""

    ts: int
    nbytes: int = 64


def next_change(plan: Plan, region: Region, mark: Mark, memo: Memo) -> int | None:
    """The instant when the first of the region's rows leaves, or the first that waits enters; where
    NOW stays at refresh points, the next point, if time tells it. None: never.

    Rows that do not match count too, so the instant may be early.
    """
    leg = plan.leg
    instants = [_leaves(plan, _least(leg, region, memo))]
    window, now = leg.window, mark.now
    if isinstance(plan.query.refresh, RefreshEvery):
        instants.append(plan.query.refresh.point(mark.horizon or 0) + plan.query.refresh.period)
    elif isinstance(window, TimeWindow) and enters_by_time(window) and now is not None:
        waiting = Region((entered(window, now), 0), (FOR_EVER, 0), 0, mark.high)
        instants.append(_enters(leg, window, _least(leg, waiting, memo)))
    soonest = min(instants)
    return None if soonest == FOR_EVER else soonest


def _leaves(plan: Plan, ts: int) -> int:
    """The instant at which a row leaves: by the window, where NOW moves; by the retention, unless a
    key keeps it."""
    if ts == FOR_EVER:
        return ts
    least = np.array([ts])
    leg = plan.leg
    retain = None if leg.keyed is not None else leg.schema.retain
    if isinstance(leg.window, TimeWindow) and plan.query.refresh is None:
        return int(visible(leg.window, least, retain)[1][0])
    return int(leaving(least, retain)[0])


def _enters(leg: LegPlan, window: TimeWindow, ts: int) -> int:
    return ts if ts == FOR_EVER else int(visible(window, np.array([ts]), leg.schema.retain)[0][0])


def _least(leg: LegPlan, region: Region, memo: Memo) -> int:
    def of(part: Part, places: Int64s) -> _Least:
        ts = part.ts[places]
        return _Least(int(np.min(ts[region.holds(ts, part.ids[places])], initial=FOR_EVER)))

    def merge(parts: Sequence[_Least]) -> _Least:
        return min(parts, key=lambda part: part.ts)

    subject = ("least ts", leg.stream_id)
    found = Fold(memo, subject, leg.stem, region, of, merge).values()
    return merge(found).ts if found else FOR_EVER
