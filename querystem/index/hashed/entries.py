"""Indexed predicates as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from querystem.expressions import Expression
from querystem.index.batch import EVERYTHING
from querystem.index.hashed.coded_texts import CodedTexts, join_codes
from querystem.index.hashed.combinations import KeyColumn, concat, take
from querystem.index.hashed.conjunction import LikeKey
from querystem.index.hashed.ladders import KeyRange


@dataclass(frozen=True, slots=True)
class Entries:
    """Hashed predicates as columns: an entry for each predicate and combination of its values.

    `fixed` has a column for each fixed operand, `ranges` the least and the greatest key of others,
    `likes` the patterns of some, and `residuals` the conditions that remain.
    """

    ids: Int64s
    fixed: list[KeyColumn]
    ranges: dict[Expression, KeyRange]
    likes: dict[LikeKey, CodedTexts]
    residuals: CodedTexts

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, places: Int64s) -> Entries:
        """Return the entries at these places."""
        return Entries(
            self.ids[places],
            [take(column, places) for column in self.fixed],
            {operand: (lo[places], hi[places]) for operand, (lo, hi) in self.ranges.items()},
            {key: patterns.take(places) for key, patterns in self.likes.items()},
            self.residuals.take(places),
        )


def join_entries(parts: Sequence[Entries]) -> Entries:
    """Return the entries of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    operands = dict.fromkeys(operand for part in parts for operand in part.ranges)
    like_keys = dict.fromkeys(key for part in parts for key in part.likes)
    return Entries(
        np.concatenate([part.ids for part in parts]),
        [concat(columns) for columns in zip(*[part.fixed for part in parts], strict=True)],
        {operand: _join_range(parts, operand) for operand in operands},
        {
            key: join_codes([part.likes.get(key) or CodedTexts.none(len(part)) for part in parts])
            for key in like_keys
        },
        join_codes([part.residuals for part in parts]),
    )


def _join_range(parts: Sequence[Entries], operand: Expression) -> KeyRange:
    sides = [part.ranges.get(operand) or _unbounded(len(part)) for part in parts]
    return np.concatenate([lo for lo, _ in sides]), np.concatenate([hi for _, hi in sides])


def _unbounded(count: int) -> KeyRange:
    return np.full(count, EVERYTHING[0]), np.full(count, EVERYTHING[1])
