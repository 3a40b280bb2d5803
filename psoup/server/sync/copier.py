"""What a copier finds out about a job, whatever the copy is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from datastem.arrays import Int64s
from psoup.server.invoke import Plan
from psoup.server.sync.jobs import Job
from psoup.server.sync.parts import Chunk
from psoup.v1 import psoup_pb2 as pb


@dataclass(frozen=True, slots=True)
class Difference:
    """From the claim of the job to its target, whose rows number `row_count`.

    `lacking` rows are yet to be sent, from ids upwards of `next_id`. The job may be another than
    the one asked for, where that could not be done.
    """

    job: Job
    whole: bool
    reason: pb.SyncReason
    removed: Int64s
    lacking: int
    row_count: int
    digest: bytes
    good_until: int | None

    @property
    def nothing(self) -> bool:
        return not self.lacking and not len(self.removed) and not self.whole


class Copier(Protocol):
    """Works in any thread. Raises FileNotFoundError where a file of its plan is gone."""

    def difference(self) -> Difference: ...

    def renewed(self, plan: Plan, job: Job) -> Copier:
        """For the job of the difference, and a plan of now: between two pieces nothing is held
        that can be found again."""

    def piece(self, cursor: int, limit: int) -> Chunk | None:
        """Of the lacking rows those with ids from `cursor` on: at least one, of about `limit`
        bytes, by ascending id. None where all that were left have passed the retention since."""
