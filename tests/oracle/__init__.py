"""The naive meaning of everything: one row at a time, plain Python, exact.

Written apart from the kernel and sharing nothing with it but the bound form. Tests compare.
"""

from __future__ import annotations

from tests.oracle.answers import naive_answer, naive_rows
from tests.oracle.evaluator import evaluate_row

__all__ = ["evaluate_row", "naive_answer", "naive_rows"]
