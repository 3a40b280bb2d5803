"""Copies whose rows are told one by one: what is common to those of rows and of combinations.

The difference is the rows that the client lacks, which are sent, and the ids of those that are
gone. Where to tell these would take more than all rows do, the copy is sent whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from datastem.arrays import Int64s
from psoup.answers.difference.copier import CopyChunk, Difference
from psoup.answers.difference.job import Claim, CopyJob, Cursor, WholeReason
from psoup.answers.difference.keys import NO_IDS
from psoup.answers.difference.row_sets import Total
from psoup.answers.maker import AnswerMaker
from psoup.answers.planning.plan import Plan

# No row of a copy is smaller than this.
_LEAST_ROW = 40
_COLUMNS_BYTES = 200

# So many rows that are lacking, and the function that makes a chunk of the first few.
Sendable = tuple[int, Callable[[int], CopyChunk]]


@dataclass(frozen=True)
class RowwiseCopier(ABC):
    """Tells the difference of a job from rows that a plan finds again.

    The job's target may be earlier than the plan, never later.
    """

    maker: AnswerMaker
    plan: Plan
    job: CopyJob

    # ---- the difference

    def difference(self) -> Difference:
        instead = self._instead()
        if instead is not None:
            return self.renewed(self.plan, instead).difference()
        job, whole = self.job, self.job.claim.copy is None
        total, lacking = self._total(), self._count_lacking()
        removed = NO_IDS if whole else job.unsent(self._removed())
        if not whole and not job.continued and self._is_less_whole(total.rows - lacking, removed):
            afresh = self._without_copy(WholeReason.SMALLER)
            return self.renewed(self.plan, afresh).difference()
        return Difference(
            self._told(total),
            whole,
            job.reason,
            removed,
            lacking,
            total.rows,
            total.digest.content,
            self._good_until,
            NO_IDS if whole or not job.question.changes else self._ended(),
        )

    def _without_copy(self, reason: WholeReason) -> CopyJob:
        """The job of a client that has nothing."""
        return replace(self.job, claim=Claim(), reason=reason)

    def _is_less_whole(self, kept: int, removed: Int64s) -> bool:
        """Tells whether the rows that need not be sent are less than what tells which are gone."""
        row = _LEAST_ROW + 8 * len(self.plan.query.outputs)
        return self._telling_bytes(removed) > kept * row + _COLUMNS_BYTES

    def _told(self, total: Total) -> CopyJob:
        """The job as its difference tells it, whose target has this total."""
        return self.job

    # ---- the rows

    def held(self) -> CopyChunk | None:
        """Return None: rows are found again for each piece."""
        return None

    def piece(self, cursor: Cursor, limit: int) -> CopyChunk | None:
        """The first of the lacking rows from the cursor on, as `Copier` has it."""
        chunks: list[CopyChunk] = []
        left = limit
        for count, first in self._sendable(cursor):
            most = max(1, left // _LEAST_ROW)
            chunks.append(first(min(count, most)).cut(left))
            left -= chunks[-1].nbytes
            if left <= 0 or len(chunks[-1].ids) < count:
                break
        return CopyChunk.joined(chunks) if chunks else None

    # ---- what rows and combinations differ in

    @abstractmethod
    def renewed(self, plan: Plan, job: CopyJob) -> RowwiseCopier: ...

    @abstractmethod
    def _instead(self) -> CopyJob | None:
        """The job that is done instead, where this one cannot be; else None."""

    @abstractmethod
    def _total(self) -> Total:
        """The total of the target."""

    @abstractmethod
    def _count_lacking(self) -> int:
        """How many rows of the target the client does not have."""

    @abstractmethod
    def _removed(self) -> Int64s:
        """The ids of the rows of the copy that are no longer among the target's, and have not
        expired."""

    @abstractmethod
    def _ended(self) -> Int64s:
        """The ids of those of them that are gone because a key was updated or deleted."""

    @abstractmethod
    def _telling_bytes(self, removed: Int64s) -> int:
        """The bytes that it takes to tell ids, about."""

    @property
    @abstractmethod
    def _good_until(self) -> int | None:
        """The instant up to which nothing but new rows changes the answer; None without one."""

    @abstractmethod
    def _sendable(self, cursor: Cursor) -> Iterator[Sendable]:
        """The lacking rows from the cursor on, some at a time."""
