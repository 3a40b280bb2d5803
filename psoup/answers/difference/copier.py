"""What a copier finds out about a job: a difference, whatever the copy is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from psoup.answers.difference.chunk import Chunk
from psoup.answers.difference.job import Job
from psoup.answers.difference.marks import WholeReason
from psoup.answers.plan import Plan
from results.idruns import Int64s


@dataclass(frozen=True, slots=True)
class Difference:
    """The way from the claim of a job to its target, which has `row_count` rows.

    The ids `removed` are yet to be told, and `lacking` rows yet to be sent. The job may be another
    than the one asked for, where that could not be done.
    """

    job: Job
    whole: bool
    reason: WholeReason
    removed: Int64s
    lacking: int
    row_count: int
    digest: bytes
    good_until: int | None

    @property
    def nothing(self) -> bool:
        return not self.lacking and not len(self.removed) and not self.whole


class Copier(Protocol):
    """Tells a difference, in any thread. Raises FileNotFoundError where a file of its plan is
    gone."""

    def difference(self) -> Difference: ...

    def renewed(self, plan: Plan, job: Job) -> Copier:
        """A copier for the job of the difference and a plan of now: between two pieces nothing is
        held that can be found again."""

    def piece(self, cursor: int, limit: int) -> Chunk | None:
        """The lacking rows with ids from `cursor` on: at least one, of about `limit` bytes, by
        ascending id. None where all that were left have passed the retention since."""
