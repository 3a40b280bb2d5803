"""What changed between two marks of an answer: the one a client has and the one it is to have.

A `Mark` says what a copy of an answer is. A `CopyJob` goes from one mark to another. A `Copier`
computes the difference: of rows (`row_copy`), of combinations of rows (`combination_copy`), or of
results that must be computed (`result_copy`).
"""

from psoup.answers.difference.combination_copy import CombinationCopier
from psoup.answers.difference.copier import Copier, CopyChunk, Difference
from psoup.answers.difference.job import (
    BEGINNING,
    Claim,
    CopyJob,
    Cursor,
    LegMark,
    Mark,
    Repair,
    WholeReason,
    by_rows,
)
from psoup.answers.difference.result_copy import ResultCopier
from psoup.answers.difference.row_copy import RowCopier
from psoup.answers.maker import AnswerMaker
from psoup.answers.planning.plan import Plan
from querystem.legs import Leg

__all__ = [
    "BEGINNING",
    "Claim",
    "CombinationCopier",
    "Copier",
    "CopyChunk",
    "CopyJob",
    "Cursor",
    "Difference",
    "LegMark",
    "Mark",
    "Repair",
    "ResultCopier",
    "RowCopier",
    "WholeReason",
    "copier_of",
]


def copier_of(maker: AnswerMaker, plan: Plan, job: CopyJob) -> Copier:
    """Return the copier for answers of the kind that a plan makes."""
    if not by_rows(plan):
        return ResultCopier(maker, plan, job)
    if isinstance(plan.query.source, Leg):
        return RowCopier(maker, plan, job)
    return CombinationCopier(maker, plan, job)
