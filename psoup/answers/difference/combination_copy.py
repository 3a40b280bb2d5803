"""Copies of combinations: of joins and UNION ALL whose rows come and go by themselves.

A combination is visible while all its parts are, so joins of time windows slide by themselves; one
that a part leaves early is removed. What came and went is found from what each leg gained and lost
(`combinations`). Number and digest of the copy are in its mark, and follow from what came, went and
expired: nothing that stayed is joined again.

A transfer goes by the parts, the row ids of the legs in the order of FROM. A piece joins some rows
of the first leg, so that any server can go on from the parts of the last combination that was sent.
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
from psoup.answers.difference.keys import NO_IDS
from psoup.answers.difference.leg_sets import LegSets, moments_of
from psoup.answers.difference.row_sets import Total
from psoup.answers.difference.rowwise import RowwiseCopier, Sendable
from psoup.answers.maker import AnswerMaker
from psoup.answers.planning.plan import Plan
from querystem.combine import leg_reads
from querystem.evaluate import project
from querystem.ordering import sort_keys
from results.checksum import Digest
from results.id_sets import all_ids, has_repeats, member

# An id that is told needs about so many bytes.
_ID_BYTES = 11
# So many combinations that came are held until they are sent; of more, pieces are joined anew.
_FEW = 1 << 14


@dataclass(frozen=True)
class CombinationChange:
    """The change of combinations between two marks, over a plan that is no earlier than both."""

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
                timed=not apart[number],
                lasting=apart[number] or not clock,
            )
            for number, leg in enumerate(self.plan.legs)
        )

    @once
    def combiner(self) -> Combiner:
        limits, salt = self.maker.join_limits, self.target.salt
        return Combiner(self.plan.query, self.legs, limits, salt)

    def come(self, after: tuple[int, ...] = ()) -> Iterator[CombinedRows]:
        """The combinations that the copy lacks, by ascending parts, from given ones on."""
        few = None if after and "_few" not in self.__dict__ else self._few
        if few is None:
            return self.combiner.walk(self._coming, after)
        return (later for one in few if len(later := one.after(after)))

    def every(self, after: tuple[int, ...] = ()) -> Iterator[CombinedRows]:
        """All combinations of the target, by ascending parts, from given ones on."""
        nothing = [replace(leg, copy=None) for leg in self.legs]
        changes = [LegChange(leg.wanted, leg.held, leg.wanted) for leg in nothing]
        return self.combiner.walk(changes, after)

    @once
    def gone(self) -> Int64s:
        """The ids of the combinations that the copy has and the target lacks, ascending, but for
        those that have expired."""
        return np.sort(ids_of(self._going()))

    @property
    def ended(self) -> Int64s:
        """The ids of those that are gone because a key was updated or deleted."""
        rows = [leg.ended for leg in self.legs]
        if not any(map(len, rows)):
            return NO_IDS
        some = (one.keep(self.combiner.with_any(one.parts, rows)) for one in self._going())
        return np.sort(ids_of(some))

    def _going(self) -> Iterator[CombinedRows]:
        changes = [LegChange(leg.gone, leg.kept, leg.held) for leg in self.legs]
        return self.combiner.walk(changes)

    @property
    def expired(self) -> Total:
        """The combinations of the copy that have expired since."""
        changes = [LegChange(leg.expired, leg.held, leg.had) for leg in self.legs]
        return Total.of(ids_of(self.combiner.walk(changes)))

    @property
    def _coming(self) -> list[LegChange]:
        return [LegChange(leg.come, leg.kept, leg.wanted) for leg in self.legs]

    @once
    def _few(self) -> list[CombinedRows] | None:
        """The combinations that came, where they are few. A transfer that goes on does not ask: it
        would join again what was sent."""
        found, count = [], 0
        for one in self.combiner.walk(self._coming):
            found.append(one)
            count += len(one)
            if count > _FEW:
                return None
        return found


def ids_of(some: Iterator[CombinedRows]) -> Int64s:
    """The ids of combinations, in their order."""
    return np.concatenate([NO_IDS, *(one.ids for one in some)])


@dataclass(frozen=True)
class CombinationCopier(RowwiseCopier):
    """Tells the difference of a job from the combinations of a plan's rows."""

    known: CombinationChange | None = field(default=None, repr=False)

    @once
    def _change(self) -> CombinationChange:
        copy, target = self.job.claim.copy, self.job.target
        known = self.known
        if known is not None and (known.copy, _unmarked(known.target)) == (
            copy,
            _unmarked(target),
        ):
            return known
        return CombinationChange(self.maker, self.plan, copy, target)

    # ---- the difference

    def _instead(self) -> CopyJob | None:
        if self.job.fixed and self._is_lost:
            return self.job.restarted(fresh_target(self.plan, self.job.claim.copy, None))
        if any(leg.forgotten for leg in self._change.legs):
            return self._without_copy(WholeReason.RETENTION)
        return self._salted() if not self.job.continued and self._collide else None

    @property
    def _collide(self) -> bool:
        """Tells whether two combinations that are looked at anyway have one id."""
        ids = self._come_ids if self.job.repair.have is None else self._every_id
        return has_repeats(ids)

    def _salted(self) -> CopyJob:
        """The job of a client that has nothing, with other ids."""
        target = replace(self.job.target, salt=(self.job.target.salt + 1) % 256)
        reason = self.job.reason if self.job.claim.copy is None else WholeReason.SMALLER
        return replace(self._without_copy(reason), target=target)

    def _told(self, total: Total) -> CopyJob:
        """The job whose target has all that the next difference needs to know of it."""
        target, legs = self.job.target, self._change.legs
        found = tuple(
            replace(known, low=leg.low) for known, leg in zip(target.legs, legs, strict=True)
        )
        marked = replace(target, legs=found, rows=total.rows, digest=total.digest.content)
        return replace(self.job, target=marked)

    def _ended(self) -> Int64s:
        return self._change.ended

    def _telling_bytes(self, removed: Int64s) -> int:
        return _ID_BYTES * len(removed)

    @property
    def _is_lost(self) -> bool:
        return any(leg.lost for leg in self._change.legs)

    def _total(self) -> Total:
        """The total of the copy, with what came and without what went."""
        target, copy, change = self.job.target, self.job.claim.copy, self._change
        if self.job.continued:
            return _marked_total(target)
        if copy is None:
            return Total.of(self._come_ids)
        if not all(leg.countable for leg in change.legs):
            return Total.of(self._every_id)
        left = _marked_total(copy).minus(change.expired).minus(Total.of(change.gone))
        return left.plus(Total.of(self._come_ids))

    @once
    def _come_ids(self) -> Int64s:
        return ids_of(self._change.come())

    @once
    def _every_id(self) -> Int64s:
        return ids_of(self._change.every())

    def _removed(self) -> Int64s:
        gone, have = self._change.gone, self.job.repair.have
        if have is None:
            return gone
        return all_ids(gone, have[~member(have, np.sort(self._every_id))])

    @property
    def _good_until(self) -> int | None:
        """Rows that are gone with the clock alone, though NOW does not go by it, and rows that were
        not sent ahead, change the answer."""
        target, memo = self.job.target, self.maker.memo
        shown = [leg.matcher.shown for leg in self._change.legs]
        if not by_clock(self.plan):
            regions = [leg.wanted.rows.choices[0].region for leg in self._change.legs]
            return next_change(self.plan, regions, target, memo, shown)
        if withholds(self.plan):
            return next_entry(self.plan, target, memo, shown)
        return None if target.horizon is None else target.horizon + 1

    # ---- the rows

    def renewed(self, plan: Plan, job: CopyJob) -> CombinationCopier:
        known = self._change if plan is self.plan else None
        return CombinationCopier(self.maker, plan, job, known)

    def piece(self, cursor: Cursor, limit: int) -> CopyChunk | None:
        return None if self._is_lost else super().piece(cursor, limit)

    def _sendable(self, cursor: Cursor) -> Iterator[Sendable]:
        for found in self._lacking(max(cursor.parts, self.job.claim.cursor.parts)):
            yield len(found), partial(self._chunk, found)

    def _chunk(self, found: CombinedRows, count: int) -> CopyChunk:
        """The first of some combinations."""
        query = self.plan.query
        some = found if count == len(found) else found.take(np.arange(count))
        keys = sort_keys(query, some.rows, moments=True)
        instants = some.visible_from, some.visible_until
        return CopyChunk(some.ids, *instants, keys, project(query, some.rows), some.parts)

    def _count_lacking(self) -> int:
        if not self.job.repair.asked and not self.job.claim.cursor.parts:
            return len(self._come_ids)
        return sum(len(one) for one in self._lacking(self.job.claim.cursor.parts))

    def _lacking(self, after: tuple[int, ...]) -> Iterator[CombinedRows]:
        """The combinations, after one with the given parts, that the client does not have."""
        repair, change = self.job.repair, self._change
        # A copy that is replaced has nothing to repair, whatever the client has of it.
        if not repair.asked or self.job.claim.copy is None:
            yield from change.come(after)
            return
        come = np.sort(self._come_ids)
        for one in change.every(after):
            had = ~member(one.ids, repair.resend)
            had &= ~member(one.ids, come) if repair.have is None else member(one.ids, repair.have)
            if not had.all():
                yield one.keep(~had)


def _unmarked(target: Mark) -> Mark:
    """The mark without what only the difference tells of it."""
    legs = tuple(replace(leg, low=0) for leg in target.legs)
    return replace(target, legs=legs, digest=NO_DIGEST, rows=0)


def _marked_total(mark: Mark) -> Total:
    return Total(mark.rows, Digest.read(mark.digest))
