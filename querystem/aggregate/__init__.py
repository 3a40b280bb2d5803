"""Aggregates that can be computed in pieces, kept, and put together in any way."""

from __future__ import annotations

from querystem.aggregate.finish import finish
from querystem.aggregate.partial import Partial, count, counts_rows, merge, partial

__all__ = ["Partial", "count", "counts_rows", "finish", "merge", "partial"]
