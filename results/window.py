"""A window over time: which timestamps belong to the answer at an instant NOW.

Half-open inside: `[begin, end)` in microseconds. The language says both ends belong to the
window; the binder adds the microsecond, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Bound:
    """An instant: `offset` itself, or NOW + offset where it is relative."""

    offset: int
    relative: bool

    def at(self, now: int) -> int:
        return now + self.offset if self.relative else self.offset


@dataclass(frozen=True, slots=True)
class Window:
    """`begin` None: from the first row retained. `end` None: up to and including NOW."""

    begin: Bound | None = None
    end: Bound | None = None

    def at(self, now: int, retain: int | None = None) -> tuple[int | None, int]:
        """`[begin, end)` at NOW. Rows after NOW wait, rows past the retention are gone.

        The interval is empty where begin >= end.
        """
        limit = now + 1
        end = limit if self.end is None else min(self.end.at(now), limit)
        begins = [] if self.begin is None else [self.begin.at(now)]
        if retain is not None:
            begins.append(now - retain + 1)
        return (max(begins) if begins else None), end

    def to_json(self) -> dict[str, Any]:
        return {"begin": _bound_json(self.begin), "end": _bound_json(self.end)}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Window:
        return cls(_bound(form["begin"]), _bound(form["end"]))


UNBOUNDED = Window()


def _bound_json(bound: Bound | None) -> list[Any] | None:
    return None if bound is None else [bound.offset, bound.relative]


def _bound(form: list[Any] | None) -> Bound | None:
    return None if form is None else Bound(form[0], form[1])
