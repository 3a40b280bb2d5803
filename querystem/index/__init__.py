"""The query SteM: the index of all predicates over a stream."""

from __future__ import annotations

from querystem.index.matches import Matches
from querystem.index.stem import QueryStem

__all__ = ["Matches", "QueryStem"]
