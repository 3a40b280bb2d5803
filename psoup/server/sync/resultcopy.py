"""Copies of groups, DISTINCT rows and the first so many: answers that only computing them tells.

The answer the client has is computed again, and compared row by row with the one it is to have. A
digest in the token proves that it came out the same; where it does not, because rows are gone, the
whole answer is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from datastem.arrays import Int64s, Mask
from datastem.instants import FOR_EVER, SINCE_EVER
from psoup.server.choosing import Choice, Horizon
from psoup.server.core import Core
from psoup.server.invoke import NO_ROWS, Plan, matching, rows_at
from psoup.server.matcher import Matcher, Work
from psoup.server.once import once
from psoup.server.planning import matcher_of, settle
from psoup.server.summaries import Entry
from psoup.server.sync.changes import next_change
from psoup.server.sync.copier import Difference
from psoup.server.sync.jobs import Job, by_clock, fresh_target
from psoup.server.sync.parts import Chunk
from psoup.server.sync.tokens import Claim, Mark
from psoup.v1 import psoup_pb2 as pb
from querystem.identity import identified
from results.checksum import Digest
from results.id_sets import member

_COLUMNS_BYTES = 200
_ID_BYTES = 10
_KEPT_BYTES = 2 << 20


@dataclass(frozen=True)
class _Answer:
    """`numbered` where two keys had one number, so that ids are places and say nothing."""

    chunk: Chunk
    numbered: bool

    @once
    def digest(self) -> bytes:
        return Digest().add(self.chunk.checksums).content

    @property
    def nbytes(self) -> int:
        return self.chunk.nbytes + 8 * len(self.chunk.ids)


@dataclass(frozen=True)
class ResultCopier:
    """For one plan; it keeps the rows to send until they are sent."""

    core: Core
    plan: Plan
    job: Job

    def renewed(self, plan: Plan, job: Job) -> ResultCopier:
        return self

    def difference(self) -> Difference:
        job, answer = self._aim
        removed, whole, reason = np.empty(0, np.int64), self._base is None, job.reason
        if whole and job.claim.copy is not None:
            gone = self._copy is None
            reason = pb.SYNC_REASON_RETENTION if gone else pb.SYNC_REASON_SMALLER
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

    def piece(self, cursor: int, limit: int) -> Chunk:
        start = int(np.searchsorted(self._lacking.ids, cursor))
        return self._lacking.slice(start, len(self._lacking.ids) - start).cut(limit)

    # ---- the two answers

    @once
    def _aim(self) -> tuple[Job, _Answer]:
        """The target's answer; that of now where the target's can't be told any more."""
        job = replace(self.job, target=self.target, moment=None)
        answer = self._answer(job.target)
        if job.continued and answer.digest != job.target.digest:
            job = job.restarted(self._settled(self.plan))
            answer = self._answer(job.target)
        if job.continued and job.claim.copy is not None and not self._told(job, answer):
            job = replace(job, claim=Claim(), reason=pb.SYNC_REASON_RETENTION)
        return replace(job, target=replace(job.target, digest=answer.digest)), answer

    @once
    def _copy(self) -> _Answer | None:
        return self._told(*self._aim)

    def _told(self, job: Job, answer: _Answer) -> _Answer | None:
        """What the client has, if it can be told."""
        copy = job.claim.copy
        if copy is None or answer.numbered:
            return None
        if copy.digest == answer.digest:
            return answer
        before = self._answer(copy)
        return before if before.digest == copy.digest and not before.numbered else None

    @once
    def _base(self) -> Chunk | None:
        """What the change is told against; None where the whole answer is sent."""
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
    def _lacking(self) -> Chunk:
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
        """What the answer is of, where REFRESH decides that found out here."""
        if self.job.fixed or self.plan.query.refresh is None:
            return self.job.target
        return self._settled(self.job.moment or self.plan)

    def _settled(self, plan: Plan) -> Mark:
        return fresh_target(settle(self.core, plan, self._work), self.job.claim.copy, -1)

    def _answer(self, mark: Mark) -> _Answer:
        """Small ones are remembered: the next sync asks for them again, and so do others whose
        registration says the same."""
        plan, summaries = self.plan, self.core.summaries
        about = plan.query, plan.window, mark.high, mark.now, mark.horizon
        key = ("answer", plan.stream_id, plan.predicate_id, about)
        entry = summaries.probe(key)
        if entry is not None:
            kept: _Answer = entry.value
            return kept
        found = self._computed(mark)
        if found.nbytes <= _KEPT_BYTES:
            summaries.insert(key, Entry(0, mark.high, 0, 0, found, found.nbytes))
        return found

    def _computed(self, mark: Mark) -> _Answer:
        rows = matching(self.plan, self._matcher, self._choice(mark), self.core.summaries)
        found = identified(self.plan.query, rows)
        count = len(found.ids)
        ids = found.ids if found.unique else np.arange(count)
        begin, until = np.full(count, SINCE_EVER), np.full(count, FOR_EVER)
        return _Answer(Chunk(ids, begin, until, found.sort_keys, found.outputs), not found.unique)

    def _choice(self, mark: Mark) -> Choice:
        if mark.now is None:
            return NO_ROWS
        retain = self.plan.schema.retain
        current = max(mark.now, mark.horizon or mark.now)
        oldest = None if retain is None else current - retain + 1
        return rows_at(self.plan, Horizon(mark.now, oldest, mark.high), self.core.summaries)

    @once
    def _matcher(self) -> Matcher:
        return matcher_of(self.core, self.plan, self._work, Matcher)

    @once
    def _work(self) -> Work:
        return Work(self.core.settings.compute_rows)

    @property
    def _good_until(self) -> int | None:
        if not by_clock(self.plan):
            return None
        target = self._aim[0].target
        return next_change(self.plan, self._choice(target).region, target, self.core.summaries)


def _same(rows: Chunk, base: Chunk) -> Mask:
    """Which rows the base has, with the same checksum."""
    if not len(base.ids):
        return np.zeros(len(rows.ids), np.bool_)
    places = np.searchsorted(base.ids, rows.ids)
    places[places == len(base.ids)] = 0
    return np.asarray((base.ids[places] == rows.ids) & (base.checksums[places] == rows.checksums))
