"""Entries back as formulas."""

from __future__ import annotations

from collections.abc import Iterator

from datastem.types import Kind
from querystem.expressions import Expression
from querystem.index.formula import Formula, Member, every, some
from querystem.index.hashed.rests import Rests
from querystem.index.hashed.segment import NO_REST, Entries
from querystem.index.keys import EVERYTHING, interval_of


def formulas_of(
    entries: Entries, fixed: tuple[Expression, ...], rests: Rests
) -> Iterator[tuple[int, Formula]]:
    """The predicates of some entries."""
    found: dict[int, list[Formula]] = {}
    for place, id_ in enumerate(entries.ids.tolist()):
        found.setdefault(id_, []).append(_formula(entries, place, fixed, rests))
    for id_, parts in found.items():
        yield id_, some(parts)


def _formula(entries: Entries, place: int, fixed: tuple[Expression, ...], rests: Rests) -> Formula:
    parts: list[Formula] = []
    for operand, column in zip(fixed, entries.fixed, strict=True):
        if operand.type.kind is Kind.TEXT:
            parts.append(Member(operand, column[place].as_py()))
        else:
            parts.append(interval_of(operand, int(column[place]), int(column[place])))
    for operand, (lo, hi) in entries.ranges.items():
        bounds = int(lo[place]), int(hi[place])
        if bounds != EVERYTHING:
            parts.append(interval_of(operand, *bounds))
    if entries.rest[place] != NO_REST:
        parts.append(rests.formula(int(entries.rest[place])))
    return every(parts)
