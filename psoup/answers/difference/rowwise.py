"""Copies whose rows are sent one by one: what rows and combinations of rows have in common.

The difference is the rows that the client lacks, and the ids of those to remove. If the ids would
take more bytes than all rows do, the copy is sent whole.
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
_MIN_ROW_BYTES = 40
# The names and types of columns that a whole copy brings, about.
_COLUMNS_BYTES = 200

# The number of some lacking rows, and a function that makes a chunk of the first few.
Sendable = tuple[int, Callable[[int], CopyChunk]]


@dataclass(frozen=True)
class RowwiseCopier(ABC):
    """Computes the difference of a job from rows that a plan finds again.

    The job's target may be earlier than the plan, never later.
    """

    maker: AnswerMaker
    plan: Plan
    job: CopyJob

    # ---- the difference

    def difference(self) -> Difference:
        replacement = self._replacement()
        if replacement is not None:
            return self.renewed(self.plan, replacement).difference()
        job, whole = self.job, self.job.claim.copy is None
        total, lacking = self._total(), self._count_lacking()
        removed = NO_IDS if whole else job.unsent(self._removed())
        if not whole and not job.continued and self._is_whole_less(total.rows - lacking, removed):
            restart = self._without_copy(WholeReason.SMALLER)
            return self.renewed(self.plan, restart).difference()
        return Difference(
            self._marked(total),
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
        """Return the job of a client that has nothing."""
        return replace(self.job, claim=Claim(), reason=reason)

    def _is_whole_less(self, unchanged: int, removed: Int64s) -> bool:
        """Return True if sending the unchanged rows again takes fewer bytes than the removed
        ids."""
        row_bytes = _MIN_ROW_BYTES + 8 * len(self.plan.query.outputs)
        return self._removal_bytes(removed) > unchanged * row_bytes + _COLUMNS_BYTES

    def _marked(self, total: Total) -> CopyJob:
        """Return the job with all that its target's mark must hold; `total` is the target's."""
        return self.job

    # ---- the rows

    def buffered(self) -> CopyChunk | None:
        """Return None: rows are found again for each piece."""
        return None

    def piece(self, cursor: Cursor, limit: int) -> CopyChunk | None:
        """Return the first of the lacking rows from the cursor on, as `Copier` says."""
        chunks: list[CopyChunk] = []
        room = limit
        for count, first in self._sendable(cursor):
            most = max(1, room // _MIN_ROW_BYTES)
            chunks.append(first(min(count, most)).cut(room))
            room -= chunks[-1].nbytes
            # Rows after a cut would be sent out of order, and the cursor would skip those cut off.
            if room <= 0 or len(chunks[-1].ids) < count:
                break
        return CopyChunk.joined(chunks) if chunks else None

    # ---- what rows and combinations differ in

    @abstractmethod
    def renewed(self, plan: Plan, job: CopyJob) -> RowwiseCopier: ...

    @abstractmethod
    def _replacement(self) -> CopyJob | None:
        """Return the job to do instead if this one can't be done; None if it can."""

    @abstractmethod
    def _total(self) -> Total:
        """Return the total of the target."""

    @abstractmethod
    def _count_lacking(self) -> int:
        """Return how many rows of the target the client does not have."""

    @abstractmethod
    def _removed(self) -> Int64s:
        """Return the ids of unexpired rows of the copy that the target lacks."""

    @abstractmethod
    def _ended(self) -> Int64s:
        """Return the removed ids whose stream key was updated or deleted."""

    @abstractmethod
    def _removal_bytes(self, removed: Int64s) -> int:
        """Return the bytes that removed ids take in a message, about."""

    @property
    @abstractmethod
    def _good_until(self) -> int | None:
        """The instant up to which nothing but new rows changes the answer; None without one."""

    @abstractmethod
    def _sendable(self, cursor: Cursor) -> Iterator[Sendable]:
        """Yield the lacking rows from the cursor on, in pieces."""
