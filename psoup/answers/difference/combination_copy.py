"""Copies of combinations: of joins and UNION ALL whose rows come and go by themselves.

A combination is visible while all its parts are, so joins of time windows slide by themselves. If a
part leaves early, the combination is removed. What was added and removed follows from the rows that
each leg gained and lost (`combinations`). Count and digest of the copy are in its mark, and follow
from what was added, removed and expired: unchanged rows are not joined again.

A transfer is ordered by the parts, the row ids of the legs in the order of FROM. A piece joins some
rows of the first leg, so that any server can continue after the last combination that was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from datastem.arrays import Int64s
from psoup.answers.difference.combinations import CombinedRows, Combiner, LegChange
from psoup.answers.difference.copier import CopyChunk, once
from psoup.answers.difference.good_until import next_change, next_entry
from psoup.answers.difference.job import (
    NO_DIGEST,
    CopyJob,
    Cursor,
    Mark,
    WholeReason,
    by_clock,
    fresh_target,
    legs_apart,
    withholds,
)
from psoup.answers.difference.keys import NO_IDS, has_keys, key_digests
from psoup.answers.difference.leg_sets import LegSets, moments_of
from psoup.answers.difference.row_sets import Total
from psoup.answers.difference.rowwise import RowwiseCopier, Sendable
from psoup.answers.maker import AnswerMaker
from psoup.answers.planning.plan import Plan
from querystem.base_rows import combines
from querystem.combine import leg_reads
from querystem.evaluate import project
from querystem.ordering import sort_keys
from results.checksum import Digest
from results.id_sets import all_ids, has_repeats, member

# Bytes that a removed id takes in a message, about.
_ID_BYTES = 11
# Up to this many added combinations are buffered until they are sent; more are joined again, piece
# by piece.
_BUFFERED_COMBINATIONS = 1 << 14


@dataclass(frozen=True)
class CombinationChange:
    """The change of combinations between two marks, over a plan that is not earlier than them."""

    maker: AnswerMaker
    plan: Plan
    copy: Mark | None
    target: Mark

    @once
    def legs(self) -> tuple[LegSets, ...]:
        matchers = self.maker.matchers(self.plan, self.maker.work(bound=self.plan.bound))
        apart, clock = legs_apart(self.plan), by_clock(self.plan)
        before = None if self.copy is None else moments_of(self.plan, self.copy)
        targets, reads = moments_of(self.plan, self.target), leg_reads(self.plan.query)
        return tuple(
            LegSets(
                leg,
                matchers.of(leg),
                self.maker.memo,
                None if before is None else before[number],
                targets[number],
                reads[number],
                follows_now=not apart[number],
                unretained_removed=apart[number] or not clock,
            )
            for number, leg in enumerate(self.plan.legs)
        )

    @once
    def combiner(self) -> Combiner:
        limits, target = self.maker.join_limits, self.target
        return Combiner(self.plan.query, self.legs, limits, target.salt, target.now)

    def added(self, after: tuple[int, ...] = ()) -> Iterator[CombinedRows]:
        """Yield the combinations that the copy lacks, by ascending parts; only those after the
        parts `after`."""
        # A transfer that continues must not fill the buffer: it would join again what was sent.
        buffer = None if after and "_buffer" not in self.__dict__ else self._buffer
        if buffer is None:
            return self.combiner.walk(self._additions, after)
        return (remaining for batch in buffer if len(remaining := batch.after(after)))

    def every(self, after: tuple[int, ...] = ()) -> Iterator[CombinedRows]:
        """Yield all combinations of the target, by ascending parts; only those after the parts
        `after`."""
        # Without a copy no row is unexpired, so that all rows of the target count as changed.
        legs = [replace(leg, copy=None) for leg in self.legs]
        changes = [LegChange(leg.target_rows, leg.unexpired, leg.target_rows) for leg in legs]
        return self.combiner.walk(changes, after)

    @once
    def removed(self) -> Int64s:
        """The ascending ids of the combinations that the copy has and the target lacks, without
        those that have expired."""
        return np.sort(ids_of(self._removals()))

    @property
    def ended(self) -> Int64s:
        """The removed ids whose stream key was updated or deleted."""
        rows = [leg.ended for leg in self.legs]
        if not any(map(len, rows)):
            return NO_IDS
        with_any = self.combiner.with_any
        ended = (batch.keep(with_any(batch.parts, rows)) for batch in self._removals())
        return np.sort(ids_of(ended))

    def _removals(self) -> Iterator[CombinedRows]:
        changes = [LegChange(leg.removed, leg.unchanged, leg.unexpired) for leg in self.legs]
        return self.combiner.walk(changes)

    @property
    def expired(self) -> Total:
        """The total of the copy's combinations that have expired since."""
        changes = [LegChange(leg.expired, leg.unexpired, leg.copied) for leg in self.legs]
        return Total.of(ids_of(self.combiner.walk(changes)))

    @property
    def _additions(self) -> list[LegChange]:
        return [LegChange(leg.added, leg.unchanged, leg.target_rows) for leg in self.legs]

    @once
    def _buffer(self) -> list[CombinedRows] | None:
        """The added combinations; None if they are too many to buffer."""
        batches, count = [], 0
        for batch in self.combiner.walk(self._additions):
            batches.append(batch)
            count += len(batch)
            if count > _BUFFERED_COMBINATIONS:
                return None
        return batches


def ids_of(batches: Iterator[CombinedRows]) -> Int64s:
    """Return the ids of combinations, in their order."""
    return np.concatenate([NO_IDS, *(batch.ids for batch in batches)])


@dataclass(frozen=True)
class CombinationCopier(RowwiseCopier):
    """Computes the difference of a job from the combinations of a plan's rows.

    `cached` is the change that an earlier copier of the same plan has computed.
    """

    cached: CombinationChange | None = field(default=None, repr=False)

    @once
    def _change(self) -> CombinationChange:
        copy, target, cached = self.job.claim.copy, self.job.target, self.cached
        # Count, digest and `low` are results of the change, so they are not compared.
        moment = copy, _unmarked(target)
        if cached is not None and (cached.copy, _unmarked(cached.target)) == moment:
            return cached
        return CombinationChange(self.maker, self.plan, copy, target)

    # ---- the difference

    def _replacement(self) -> CopyJob | None:
        if self.job.fixed and self._is_target_lost:
            return self.job.restarted(fresh_target(self.plan, self.job.claim.copy, None))
        if any(leg.is_copy_forgotten for leg in self._change.legs):
            return self._without_copy(WholeReason.RETENTION)
        # A salt changes all ids, so it must not change within a transfer.
        return self._salted() if not self.job.continued and self._has_collision else None

    @property
    def _has_collision(self) -> bool:
        """Whether two combinations, of those that are computed anyway, have one id."""
        ids = self._added_ids if self.job.repair.have is None else self._every_id
        return has_repeats(ids)

    def _salted(self) -> CopyJob:
        """Return the job of a client that has nothing, with another salt for the ids."""
        target = replace(self.job.target, salt=(self.job.target.salt + 1) % 256)
        reason = self.job.reason if self.job.claim.copy is None else WholeReason.SMALLER
        return replace(self._without_copy(reason), target=target)

    def _marked(self, total: Total) -> CopyJob:
        target, sets = self.job.target, self._change.legs
        legs = tuple(
            replace(mark, low=leg.low) for mark, leg in zip(target.legs, sets, strict=True)
        )
        marked = replace(target, legs=legs, rows=total.rows, digest=total.digest.content)
        return replace(self.job, target=marked)

    def _ended(self) -> Int64s:
        return self._change.ended

    def _removal_bytes(self, removed: Int64s) -> int:
        return _ID_BYTES * len(removed)

    @property
    def _is_target_lost(self) -> bool:
        return any(leg.is_target_lost for leg in self._change.legs)

    def _total(self) -> Total:
        """Return the total of the copy, with what was added and without what was removed."""
        target, copy, change = self.job.target, self.job.claim.copy, self._change
        # The mark got the total when the transfer began.
        if self.job.continued:
            return _marked_total(target)
        if copy is None:
            return Total.of(self._added_ids)
        # Expired rows may have left the store, so that they can't be subtracted. Of combinations
        # that end alone it is not known which have.
        if change.combiner.ends_alone or not all(leg.is_countable for leg in change.legs):
            return Total.of(self._every_id)
        unchanged = _marked_total(copy).minus(change.expired).minus(Total.of(change.removed))
        return unchanged.plus(Total.of(self._added_ids))

    @once
    def _added_ids(self) -> Int64s:
        return ids_of(self._change.added())

    @once
    def _every_id(self) -> Int64s:
        return ids_of(self._change.every())

    def _removed(self) -> Int64s:
        removed, have = self._change.removed, self.job.repair.have
        if have is None:
            return removed
        # By its report the client may have combinations that its mark lacks: they are removed too.
        return all_ids(removed, have[~member(have, np.sort(self._every_id))])

    @property
    def _good_until(self) -> int | None:
        """The next instant at which the clock alone changes the answer: a row leaves although NOW
        does not follow the clock, or a row enters that was not sent ahead."""
        target, memo = self.job.target, self.maker.memo
        permitted = [leg.matcher.permitted for leg in self._change.legs]
        if not by_clock(self.plan):
            regions = [leg.target_rows.rows.choices[0].region for leg in self._change.legs]
            return next_change(self.plan, regions, target, memo, permitted)
        if withholds(self.plan):
            return next_entry(self.plan, target, memo, permitted)
        return None if target.horizon is None else target.horizon + 1

    # ---- the rows

    def renewed(self, plan: Plan, job: CopyJob) -> CombinationCopier:
        cached = self._change if plan is self.plan else None
        return CombinationCopier(self.maker, plan, job, cached)

    def piece(self, cursor: Cursor, limit: int) -> CopyChunk | None:
        return None if self._is_target_lost else super().piece(cursor, limit)

    def _sendable(self, cursor: Cursor) -> Iterator[Sendable]:
        for batch in self._lacking(max(cursor.parts, self.job.claim.cursor.parts)):
            yield len(batch), partial(self._chunk, batch)

    def _chunk(self, batch: CombinedRows, count: int) -> CopyChunk:
        """Return the first `count` combinations of a batch."""
        query = self.plan.query
        first = batch if count == len(batch) else batch.take(np.arange(count))
        question = self.job.question
        # The order of base rows that are to be joined does not matter.
        in_order = not (question.base_rows and combines(question.query))
        order = sort_keys(query, first.rows, moments=in_order)
        instants, outputs = (first.visible_from, first.visible_until), project(query, first.rows)
        keyed = question.changes and has_keys(self.plan)
        keys = key_digests(self.plan, first.parts) if keyed else None
        return CopyChunk(first.ids, *instants, order, outputs, first.parts, keys)

    def _count_lacking(self) -> int:
        if not self.job.repair.requested and not self.job.claim.cursor.parts:
            return len(self._added_ids)
        return sum(len(batch) for batch in self._lacking(self.job.claim.cursor.parts))

    def _lacking(self, after: tuple[int, ...]) -> Iterator[CombinedRows]:
        """Yield the combinations, after the one with these parts, that the client lacks."""
        repair, change = self.job.repair, self._change
        # A copy that is replaced has nothing to repair, whatever the client has of it.
        if not repair.requested or self.job.claim.copy is None:
            yield from change.added(after)
            return
        added = np.sort(self._added_ids)
        for batch in change.every(after):
            ids = batch.ids
            intact = ~member(ids, repair.resend)
            intact &= ~member(ids, added) if repair.have is None else member(ids, repair.have)
            if not intact.all():
                yield batch.keep(~intact)


def _unmarked(target: Mark) -> Mark:
    """Return the mark without what only the difference computes."""
    legs = tuple(replace(leg, low=0) for leg in target.legs)
    return replace(target, legs=legs, digest=NO_DIGEST, rows=0)


def _marked_total(mark: Mark) -> Total:
    return Total(mark.rows, Digest.read(mark.digest))
