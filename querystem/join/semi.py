"""The semi-join: which rows of one item have a row of another that a condition is true with.

If the condition is equalities alone, no pair is made: each row is only looked up. Else pairs are
made, with one of the other item's rows for all that are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Mask
from datastem.equality import canonical, codes
from querystem.expressions import Expression, Op
from querystem.join.equality import HashJoin
from querystem.join.factors import Comparison, JoinFactor, comparison, join_factors
from querystem.join.joining import JoinStep, chosen_side, join
from querystem.join.methods import JoinMethod
from querystem.join.room import JoinRoom

_OUTER, _INNER = 0, 1


@dataclass(frozen=True, slots=True)
class Partnered:
    """Whether each row of item 0 has a partner, and how that was found."""

    mask: Mask
    steps: tuple[JoinStep, ...]


def semi_join(
    items: Sequence[pa.RecordBatch],
    on: Expression,
    most_pairs: int,
    room: JoinRoom | None = None,
) -> Partnered:
    """Return the rows of item 0 for which there is a row of item 1 such that `on` is true.

    Names are those of `join`, and so are the errors.
    """
    factors = join_factors(on)
    both = [factor for factor in factors if len(factor.items) > 1]
    equalities = _equalities(both)
    mask = np.zeros(items[_OUTER].num_rows, np.bool_)
    # Other conditions need pairs. Of inner rows that are equal in all columns one is enough.
    if not equalities or len(equalities) < len(both):
        joined = join([items[_OUTER], _distinct(items[_INNER])], on, most_pairs, room)
        mask[joined.places[_OUTER]] = True
        return Partnered(mask, joined.steps)
    outer, inner = (chosen_side(number, rows, factors) for number, rows in enumerate(items))
    has_partner = HashJoin(outer, inner, equalities).partnered()
    places = outer.places[_OUTER]
    # `has_partner` is about the outer rows that their own factors kept; the others stay false.
    mask[slice(None) if places is None else places] = has_partner
    rows, count = (outer.length, inner.length), int(has_partner.sum())
    return Partnered(mask, (JoinStep(_INNER, JoinMethod.EQUALITY, rows, count, count),))


def _equalities(factors: Sequence[JoinFactor]) -> list[Comparison]:
    compared = [comparison(factor, frozenset({_OUTER}), _INNER) for factor in factors]
    return [factor for factor in compared if factor is not None and factor.op is Op.EQ]


def _distinct(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the distinct rows."""
    _, firsts = codes([canonical(column) for column in rows.columns], rows.num_rows)
    return rows if len(firsts) == rows.num_rows else rows.take(pa.array(firsts))
