"""The progress of a composite at an epoch: which combinations are stored, for which predicates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class CompositeMark:
    """A composite at an epoch: its combinations with ids below `high` are in `version` of its stem,
    its rows by join key in `joins_version` of its joins.

    The combinations are those of rows in a box, `[since, highs[0])` of leg 0 and `[0, highs[k])` of
    every other leg k; without `since` there is no box yet, and no combinations are stored.
    `admitted[k]` are the ids, ascending, of the local predicates of leg k whose rows are in the
    joins. All combinations of those rows are stored that a predicate over the composite matches
    whose id is in one of the ranges `predicates`, ascending; others may be stored, too. A
    `suspended` composite is not updated. `order` is JSON: what the engine has measured for the
    order of the legs.
    """

    high: int
    version: int
    joins_version: int
    since: int | None
    highs: tuple[int, ...]
    admitted: tuple[tuple[int, ...], ...]
    predicates: tuple[tuple[int, int], ...] = ()
    suspended: bool = False
    order: str = ""

    @classmethod
    def without_box(cls, legs: int, high: int = 0) -> CompositeMark:
        """Return the mark of a composite without stored combinations; its next combination has id
        `high`."""
        return cls(high, 0, 0, None, (0,) * legs, ((),) * legs)

    def has_predicate(self, predicate_id: int) -> bool:
        """Return True if all combinations in the box are stored that a predicate matches."""
        return self.since is not None and any(
            low <= predicate_id < high for low, high in self.predicates
        )

    def without_predicates(self, predicate_ids: Iterable[int]) -> CompositeMark:
        """Return the mark without some predicates over the composite."""
        ranges = self.predicates
        for id_ in predicate_ids:
            parts = (((low, min(high, id_)), (max(low, id_ + 1), high)) for low, high in ranges)
            ranges = tuple(part for pair in parts for part in pair if part[0] < part[1])
        return replace(self, predicates=ranges)


def mark_row(composite_id: int, mark: CompositeMark) -> dict[str, Any]:
    """Return a mark as a value of the column `composites` of the epochs table."""
    # Not `asdict`, which copies the ids of all admitted predicates one by one.
    values = {field.name: getattr(mark, field.name) for field in fields(mark)}
    ranges = [{"low": low, "high": high} for low, high in mark.predicates]
    return {"composite_id": composite_id} | values | {"predicates": ranges}


def read_mark(row: Mapping[str, Any]) -> tuple[int, CompositeMark]:
    """Read what `mark_row` has written: the composite's id, and its mark."""
    values = dict(row)
    composite_id = values.pop("composite_id")
    values["highs"] = tuple(values["highs"])
    values["predicates"] = tuple((part["low"], part["high"]) for part in values["predicates"])
    values["admitted"] = tuple(tuple(ids) for ids in values["admitted"])
    return composite_id, CompositeMark(**values)
