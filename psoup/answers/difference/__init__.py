"""Two marks of an answer, what a client has and what it is to have: what changed in between.

A `Mark` says what a copy of an answer is. A `CopyJob` goes from one mark to another, and a `Copier`
tells the difference: of answers that consist of rows (`row_copy`), or of results that only
computing tells (`result_copy`).
"""

from psoup.answers.difference.copier import Copier, CopyChunk, Difference
from psoup.answers.difference.job import Claim, CopyJob, Mark, Repair, WholeReason
from psoup.answers.difference.result_copy import ResultCopier
from psoup.answers.difference.row_copy import RowCopier

__all__ = [
    "CopyChunk",
    "Claim",
    "Copier",
    "Difference",
    "CopyJob",
    "Mark",
    "Repair",
    "ResultCopier",
    "RowCopier",
    "WholeReason",
]
