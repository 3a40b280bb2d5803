"""The progress of a composite at an epoch: which combinations are stored, for which predicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CompositeMark:
    """A composite at an epoch: its combinations with ids below `high` are in `version` of its stem,
    its rows by join key in `joins_version` of its joins.

    The combinations are those of rows in a box, `[since, highs[0])` of leg 0 and `[0, highs[k])` of
    every other leg k; without `since` there is no box yet, and no combinations are stored.
    `admitted[k]` are the ids, ascending, of the local predicates of leg k whose rows are in. A
    `suspended` composite is not updated. `order` is JSON: what the engine has measured for the
    order of the legs.
    """

    high: int
    version: int
    joins_version: int
    since: int | None
    highs: tuple[int, ...]
    admitted: tuple[tuple[int, ...], ...]
    suspended: bool = False
    order: str = ""

    @classmethod
    def without_box(cls, legs: int, high: int = 0) -> CompositeMark:
        """Return the mark of a composite without stored combinations; its next combination has id
        `high`."""
        return cls(high, 0, 0, None, (0,) * legs, ((),) * legs)


def mark_row(composite_id: int, mark: CompositeMark) -> dict[str, Any]:
    """Return a mark as a value of the column `composites` of the epochs table."""
    return {"composite_id": composite_id} | asdict(mark)


def read_mark(row: Mapping[str, Any]) -> tuple[int, CompositeMark]:
    """Read what `mark_row` has written: the composite's id, and its mark."""
    values = dict(row)
    composite_id = values.pop("composite_id")
    values["highs"] = tuple(values["highs"])
    values["admitted"] = tuple(tuple(ids) for ids in values["admitted"])
    return composite_id, CompositeMark(**values)
