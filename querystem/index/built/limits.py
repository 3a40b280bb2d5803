"""When pairs of a predicate and a row cost more than bitmaps of all predicates."""

from __future__ import annotations

# To look at one pair costs as much as bitmaps cost for so many predicates and one row.
PREDICATES_PER_PAIR = 40
# And a batch costs bitmaps as much as so many rows do.
_ROWS_PER_BATCH = 400
# For so many pairs bitmaps need less memory.
_MAX_PAIRS = 1 << 24


def most_pairs(predicates: int, rows: int) -> int:
    """Return how many pairs are as cheap as bitmaps of the predicates for a batch of rows."""
    return min(predicates * (rows + _ROWS_PER_BATCH) // PREDICATES_PER_PAIR, _MAX_PAIRS)
