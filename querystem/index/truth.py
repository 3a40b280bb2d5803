"""Where one formula holds, by itself: for rests of hashed predicates, and where there are few."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from datastem.arrays import Mask
from querystem.index.batch import Batch
from querystem.index.formula import Condition, Every, Formula, Interval, Member
from querystem.index.keys import key_of
from querystem.kernel.compare import END, START


def truth(formula: Formula, batch: Batch) -> Mask:
    """Where a formula holds; each condition is evaluated once for the batch."""
    match formula:
        case Condition():
            return batch.mask(formula)
        case Member(operand, value):
            equal = pc.equal(batch.texts(operand), value).fill_null(False)
            mask: Mask = equal.to_numpy(zero_copy_only=False)
            return mask
        case Interval():
            return _inside(formula, batch)
    is_every = isinstance(formula, Every)
    held = np.full(batch.length, is_every)
    for part in formula.parts:
        if is_every and held.any():
            held &= truth(part, batch)
        elif not is_every and not held.all():
            held |= truth(part, batch)
    return held


def _inside(factor: Interval, batch: Batch) -> Mask:
    keys, valid = batch.keys(factor.operand)
    type_ = factor.operand.type
    inside = np.ones(batch.length, np.bool_) if valid is None else valid.copy()
    if factor.begin is END or factor.end is START:
        return np.zeros(batch.length, np.bool_)
    if factor.begin is not START:
        inside &= np.asarray(keys >= key_of(factor.begin, type_), np.bool_)
    if factor.end is not END:
        inside &= np.asarray(keys < key_of(factor.end, type_), np.bool_)
    return inside
