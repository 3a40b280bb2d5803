"""Aggregates: computed in pieces, cached, and merged in any order."""

from __future__ import annotations

from querystem.aggregate.finish import finish
from querystem.aggregate.partial import Partial, merge, partial

__all__ = ["Partial", "finish", "merge", "partial"]
