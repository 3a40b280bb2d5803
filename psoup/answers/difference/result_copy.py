"""Copies of groups, DISTINCT rows and LIMIT: answers that must be computed to know their rows.

The answer that the client has is computed again, and compared row by row with the target. A digest
in the token proves that the result is the same as before. If it is not, because rows have left the
store, the whole answer is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from datastem.arrays import Int64s, Mask
from datastem.instants import FOR_EVER, SINCE_EVER
from psoup.answers.difference.copier import CopyChunk, Difference, once
from psoup.answers.difference.good_until import (
    calm_until,
    changes_always,
    next_change,
    next_visibility,
    permission_change,
)
from psoup.answers.difference.job import (
    Claim,
    CopyJob,
    Cursor,
    LegMark,
    Mark,
    Skipped,
    WholeReason,
    by_clock,
    fresh_target,
    legs_apart,
    point_mark,
)
from psoup.answers.difference.keys import NO_IDS, ended_rows, has_keys, key_digests, with_ended
from psoup.answers.difference.missed import next_point, trigger_highs
from psoup.answers.evaluate import Selection, combined
from psoup.answers.maker import AnswerMaker, PlanMatchers
from psoup.answers.matching.matcher import Work
from psoup.answers.planning.plan import LegPlan, Plan, oldest_retained
from psoup.answers.planning.policies import FilledCondition
from psoup.answers.rows.leg_rows import LegRows, rows_at
from psoup.answers.rows.windows import NO_ROWS, Choice, Horizon
from querystem.evaluate import rows_or_groups
from querystem.expressions import TRUE
from querystem.identity import identified
from querystem.legs import Leg
from results.checksum import Digest
from results.id_sets import member
from results.region import Region
from results.window import TimeWindow

# Bytes in a message, about: the names and types of columns, and a removed id.
_COLUMNS_BYTES = 200
_ID_BYTES = 10
# Larger answers are not cached.
_CACHED_BYTES = 2 << 20


@dataclass(frozen=True)
class _Answer:
    """A computed answer.

    It is `numbered` if two rows had one id, so that its ids are places and don't identify rows. If
    the rows of the answer have stream keys, `parts` are the ids of the rows that each is made of;
    none otherwise, or if the client does not want stream keys.
    """

    chunk: CopyChunk
    numbered: bool
    parts: tuple[Int64s, ...] = ()

    @once
    def digest(self) -> bytes:
        return Digest().add(self.chunk.checksums).content

    @property
    def nbytes(self) -> int:
        return self.chunk.nbytes + 8 * len(self.chunk.ids) * (1 + len(self.parts))


@dataclass(frozen=True)
class ResultCopier:
    """Computes the difference of a job by computing both answers from a plan.

    It buffers the rows to send until they are sent.
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
            is_lost = self._copy is None
            reason = WholeReason.RETENTION if is_lost else WholeReason.SMALLER
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
            NO_IDS if whole else self._ended(job.target, removed),
            self._wake_at,
        )

    def _ended(self, mark: Mark, removed: Int64s) -> Int64s:
        """Return the removed ids whose stream key was updated or deleted, if the client wants to
        know."""
        copy = self._copy
        if copy is None or not copy.parts:
            return NO_IDS
        places = np.flatnonzero(member(copy.chunk.ids, removed))
        parts = [part[places] for part in copy.parts]
        ended = with_ended(self.plan, parts, partial(self._ended_rows, mark))
        return copy.chunk.ids[places[ended]]

    def _ended_rows(self, mark: Mark, number: int, row_ids: Int64s) -> Int64s:
        """Return the ids, of some rows of a leg, that are not current at a mark."""
        leg, leg_mark, now = self.plan.legs[number], mark.legs[number], self._now_of(number, mark)
        current = self._current(number, mark)
        oldest = None if now is None else oldest_retained(leg.schema, max(now, current or now))
        cut = None if oldest is None else oldest - 1
        return ended_rows(leg, row_ids, leg_mark.high, now, cut)

    @property
    def _sends_keys(self) -> bool:
        return self.job.question.changes and has_keys(self.plan)

    def buffered(self) -> CopyChunk:
        return self._lacking

    def piece(self, cursor: Cursor, limit: int) -> CopyChunk:
        return self._lacking.after(cursor).cut(limit)

    # ---- the two answers

    @once
    def _aim(self) -> tuple[CopyJob, _Answer]:
        """The job and the answer of its target. If that can't be computed any more, the job gets
        a new target."""
        job = self._aimed
        answer = self._answer(job.target)
        # If the digests differ, the client has a part of another answer, which the rest of this one
        # would not complete.
        if job.continued and answer.digest != job.target.digest:
            job = self._settled(self.plan)
            job = job.restarted(job.target)
            answer = self._answer(job.target)
        # Without the copy it can't be said which rows are still to be sent or removed.
        if job.continued and job.claim.copy is not None and not self._recomputed(job, answer):
            job = replace(job, claim=Claim(), reason=WholeReason.RETENTION)
        return replace(job, target=replace(job.target, digest=answer.digest)), answer

    @once
    def _copy(self) -> _Answer | None:
        return self._recomputed(*self._aim)

    def _recomputed(self, job: CopyJob, answer: _Answer) -> _Answer | None:
        """Return the answer that the client has; None if it can't be computed again."""
        copy = job.claim.copy
        # Ids that are places identify no rows, so there is nothing to compare by.
        if copy is None or answer.numbered:
            return None
        # Equal digests mean equal rows, so the copy need not be computed.
        if copy.digest == answer.digest:
            return answer
        before = self._answer(copy)
        return before if before.digest == copy.digest and not before.numbered else None

    @once
    def _base(self) -> CopyChunk | None:
        """The answer that the difference is relative to; None if the whole answer is sent."""
        if self._copy is None:
            return None
        job, answer = self._aim
        base, rows = self._copy.chunk, answer.chunk
        if base is rows:
            return base
        changed = int((~_same(rows, base)).sum())
        # An estimate: changed rows are taken to be as large as the others. A difference that was
        # begun is never turned into a whole answer.
        share = changed / max(len(rows.ids), 1)
        removed = _ID_BYTES * int((~member(base.ids, rows.ids)).sum())
        if not job.continued and share * rows.nbytes + removed > rows.nbytes + _COLUMNS_BYTES:
            return None
        return base

    @once
    def _lacking(self) -> CopyChunk:
        job, answer = self._aim
        rows, repair = answer.chunk, job.repair
        if self._base is rows and not repair.requested and not job.continued:
            return rows.slice(0, 0)
        # A mask of the target's rows: true for those that the client has, undamaged.
        present = np.zeros(len(rows.ids), np.bool_)
        if self._base is not None:
            present = _same(rows, self._base)
            if repair.have is not None:
                present &= member(rows.ids, repair.have)
            present &= ~member(rows.ids, repair.resend)
        if job.continued:
            present |= rows.ids < job.claim.cursor.next_id
        return rows.take(np.flatnonzero(~present))

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
        """The mark of the answer, as of its refresh point if the query has REFRESH."""
        return self._aimed.target

    @property
    def _aimed(self) -> CopyJob:
        if self.job.fixed or not self.plan.query.stays:
            return replace(self.job, moment=None)
        return self._settled(self.job.moment or self.plan)

    def _settled(self, plan: Plan) -> CopyJob:
        """Return the job with the refresh point of a plan as its target: the last one, or the one
        after the client's if it wants every point."""
        job, copy = self.job, self.job.claim.copy
        following, skipped = None, Skipped.NONE
        if job.question.every_point and copy is None:
            skipped = Skipped.NO_COPY
        elif job.question.every_point and copy is not None and plan.unsettled:
            points, calm = self.maker.points(plan, self._work), partial(self._calm_until, copy)
            following = next_point(plan, copy, points, calm, resumed=job.following)
            skipped = Skipped.NONE if following is None else following.skipped
        if following is not None and following.more:
            target = replace(point_mark(following.plan, following.highs), skipped=skipped)
            return replace(job, target=target, moment=None, more=True)
        target = fresh_target(self.maker.settle(plan, self._work), copy, None)
        if job.question.every_point:
            target = replace(target, trigger_highs=trigger_highs(plan), skipped=skipped)
        return replace(job, target=target, moment=None)

    def _calm_until(self, mark: Mark) -> int:
        regions = [choice.region for choice in self._choices(mark)]
        return calm_until(self.plan, regions, mark, self.maker.memo)

    def _answer(self, mark: Mark) -> _Answer:
        """Return the answer of a mark.

        Small answers are cached: the next sync needs them again, and so do other registrations of
        the same query.
        """
        plan, memo = self.plan, self.maker.memo
        legs = tuple((leg.stream_id, leg.subject) for leg in self._legs(mark))
        moment = mark.legs, mark.now, mark.horizon, mark.nows
        key = ("answer", legs, plan.query, *moment, self._sends_keys, plan.mask)
        cached = memo.get(key)
        if isinstance(cached, _Answer):
            return cached
        answer = self._computed(mark)
        if answer.nbytes <= _CACHED_BYTES:
            memo.put(key, answer, answer.nbytes)
        return answer

    def _computed(self, mark: Mark) -> _Answer:
        plan = replace(self.plan, now=mark.now, nows=mark.nows)
        query = plan.present_query
        planned = [
            replace(_known_at(leg, mark.legs[number]), now=self._now_of(number, mark))
            for number, leg in enumerate(self._legs(mark))
        ]
        legs = [
            LegRows(leg, self._matchers.of(leg), choice)
            for leg, choice in zip(planned, self._choices(mark), strict=True)
        ]
        if isinstance(query.source, Leg):
            rows = Selection(plan.query, legs[0], self.maker.memo, mark.now).matched()
        else:
            limits, memo = self.maker.join_limits, self.maker.memo
            source = combined(plan, legs, self._matchers, limits, memo, parts=True)
            rows = rows_or_groups(query, [source.rows])
        result = identified(query, rows)
        count = len(result.ids)
        ids = result.ids if result.unique else np.arange(count)
        # Clients show these rows until the server removes them, whatever NOW is.
        begin, until = np.full(count, SINCE_EVER), np.full(count, FOR_EVER)
        parts = result.parts if self._sends_keys else ()
        keys = key_digests(self.plan, parts) if parts else None
        return _Answer(
            CopyChunk(ids, begin, until, result.sort_keys, result.outputs, keys=keys),
            not result.unique,
            parts,
        )

    def _legs(self, mark: Mark) -> list[LegPlan]:
        """Return the legs with the rows that their policies permit at a mark."""
        legs = enumerate(self.plan.legs)
        return [leg.permitted_at(self._current(number, mark)) for number, leg in legs]

    def _current(self, number: int, mark: Mark) -> int | None:
        """Return the NOW of a leg's stream at a mark."""
        is_one = isinstance(self.plan.query.source, Leg)
        return mark.horizon if is_one else mark.legs[number].current

    def _choices(self, mark: Mark) -> list[Choice]:
        """Return the rows of each leg's window at a mark."""
        if mark.now is None:
            return [NO_ROWS] * len(self.plan.legs)
        if isinstance(self.plan.query.source, Leg):
            (leg,), now = self._legs(mark), self._now_of(0, mark)
            if now is None:
                return [NO_ROWS]
            oldest = oldest_retained(leg.schema, max(now, mark.horizon or now))
            matcher = self._matchers.of(leg)
            return [rows_at(leg, matcher, Horizon(now, oldest, mark.high), self.maker.memo)]
        return [self._choice(number, mark) for number in range(len(self.plan.legs))]

    def _now_of(self, number: int, mark: Mark) -> int | None:
        """Return the NOW that the window of a leg is applied at, at a mark."""
        leg_mark, query = mark.legs[number], self.plan.query
        if isinstance(query.source, Leg):
            return mark.now if query.leg.refresh is None else leg_mark.now
        if query.stays_inside(number):
            return leg_mark.now
        return leg_mark.current if legs_apart(self.plan)[number] else mark.now

    def _choice(self, number: int, mark: Mark) -> Choice:
        leg, leg_mark, now = self._legs(mark)[number], mark.legs[number], self._now_of(number, mark)
        if now is None or leg.leg.as_of is not None:
            return NO_ROWS
        oldest = oldest_retained(leg.schema, max(now, leg_mark.current or now))
        matcher = self._matchers.of(leg)
        return rows_at(leg, matcher, Horizon(now, oldest, leg_mark.high), self.maker.memo)

    @once
    def _matchers(self) -> PlanMatchers:
        return self.maker.matchers(self.plan, self._work)

    @once
    def _work(self) -> Work:
        return self.maker.work(bound=self.plan.bound)

    @property
    def _good_until(self) -> int | None:
        job = self._aim[0]
        target = job.target
        if not any(leg.schema.now_is_clock for leg in self.plan.legs):
            return None
        if job.more and target.now is not None:
            # A later refresh point has come.
            return target.now + 1
        if target.now is not None and changes_always(self.plan):
            return target.now + 1
        choices = self._choices(target)
        permitted = [self._matchers.of(leg).permitted for leg in self.plan.legs]
        regions = [choice.region for choice in choices]
        change = next_change(self.plan, regions, target, self.maker.memo, permitted)
        visibility = self._next_visibility(target.now, choices)
        # To the reader, rows that a policy hides until an instant are new then.
        hides = min((hides for _, hides in self._permission_changes), default=None)
        return min(filter(None, (change, visibility, hides)), default=None)

    @property
    def _wake_at(self) -> int | None:
        """The first instant at which a row that a policy hides by NOW may enter the answer; None
        without one."""
        if self._aim[0].more or not self._permission_changes:
            return None
        target, plan = self._aim[0].target, self.plan
        # A hidden row may also be one that waits for its window.
        regions = [choice.region for choice in self._choices(target)]
        change = next_change(plan, regions, target, self.maker.memo, [None] * len(plan.legs))
        return min([change or FOR_EVER, *(shows for shows, _ in self._permission_changes)])

    @once
    def _permission_changes(self) -> list[tuple[int, int]]:
        """The next instants at which the policies of each leg that change by time show a row, and
        hide one."""
        target = self._aim[0].target
        if target.now is None:
            return []
        return [
            permission_change(self._candidates(number, condition, target), condition, now)
            for number, leg in enumerate(self.plan.legs)
            if leg.schema.now_is_clock and (now := self._current(number, target)) is not None
            for condition in leg.policy or ()
            if condition.moves
        ]

    def _candidates(self, number: int, condition: FilledCondition, mark: Mark) -> LegRows:
        """Return the rows of a leg that a condition of its policy permits at some NOW."""
        leg = self.plan.legs[number]
        choice = Choice(Region(None, (FOR_EVER, 0), 0, mark.legs[number].high))
        # Other windows hold other rows once more are permitted.
        if isinstance(leg.window, TimeWindow) and leg.leg.as_of is None:
            choice = self._choices(mark)[number]
        return LegRows(leg, self._matchers.at_any_now(leg, condition), choice)

    def _next_visibility(self, now: int | None, choices: Sequence[Choice]) -> int | None:
        """Return the next instant at which the visibility of a row changes; None if REFRESH holds
        the answer."""
        plan = self.plan
        if now is None or plan.query.stays or not by_clock(plan):
            return None
        rows = [
            LegRows(leg, self._matchers.remaining(leg, now), choice)
            for leg, choice in zip(plan.legs, choices, strict=True)
            if leg.leg.when != TRUE
        ]
        return next_visibility(rows, now)


def _known_at(leg: LegPlan, mark: LegMark) -> LegPlan:
    """Return a leg with AS OF limited to the rows that were known at a mark; any other as it is."""
    if leg.leg.as_of is None:
        return leg
    return replace(leg, limits=(("_row_id", mark.high - 1),))


def _same(rows: CopyChunk, base: CopyChunk) -> Mask:
    """Return a mask of `rows`: true for those that `base` has, with an equal checksum."""
    if not len(base.ids):
        return np.zeros(len(rows.ids), np.bool_)
    # The ids of `base` ascend. An id greater than all of them gets place 0, whose id differs.
    places = np.searchsorted(base.ids, rows.ids)
    places[places == len(base.ids)] = 0
    return np.asarray((base.ids[places] == rows.ids) & (base.checksums[places] == rows.checksums))
