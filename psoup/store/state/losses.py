"""Rows that were published and are lost: holes, and the losses that the operator has accepted.

The file of a hole is damaged or gone. The engine names the hole in its epochs and goes on. An
answer that needs the rows fails until the file is restored or the operator accepts the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from datastem.instants import from_micros


@dataclass(frozen=True, slots=True)
class Hole:
    """Lost rows of a stream: ids in `[row_lo, row_hi)`, ts in `[ts_lo, ts_hi]`, None if unknown.
    `file` held them."""

    stream_id: int
    row_lo: int
    row_hi: int
    ts_lo: int | None
    ts_hi: int | None
    file: str

    @property
    def rows(self) -> Lost:
        return Lost(self.stream_id, self.row_lo, self.row_hi)

    def meets(self, begin: int | None, end: int | None) -> bool:
        """Return True if a lost row may have its ts in `[begin, end)`; None is unbounded."""
        if self.ts_lo is None or self.ts_hi is None:
            return True
        return (begin is None or self.ts_hi >= begin) and (end is None or self.ts_lo < end)

    def text(self, stream: str) -> str:
        """Describe the hole to people."""
        when = ""
        if self.ts_lo is not None and self.ts_hi is not None:
            when = f", {from_micros(self.ts_lo):%F %T.%f} to {from_micros(self.ts_hi):%F %T.%f}"
        ids = f"{self.row_lo} to {self.row_hi - 1}"
        return f"rows {ids} of stream {stream}{when}: {self.file} is damaged or gone"


@dataclass(frozen=True, slots=True, order=True)
class Lost:
    """Row ids `[row_lo, row_hi)` of a stream."""

    stream_id: int
    row_lo: int
    row_hi: int

    def contains(self, rows: Lost) -> bool:
        inside = self.row_lo <= rows.row_lo and rows.row_hi <= self.row_hi
        return self.stream_id == rows.stream_id and inside


@dataclass(frozen=True, slots=True)
class Losses:
    """The holes, and the rows whose loss the operator has `accepted`, in a hole or not."""

    holes: tuple[Hole, ...] = ()
    accepted: tuple[Lost, ...] = ()

    @property
    def open(self) -> tuple[Hole, ...]:
        """The holes whose loss is not accepted."""
        return tuple(hole for hole in self.holes if not self.is_accepted(hole))

    def is_accepted(self, hole: Hole) -> bool:
        return any(rows.contains(hole.rows) for rows in self.accepted)

    def lose(self, hole: Hole) -> Losses:
        return self if hole in self.holes else replace(self, holes=(*self.holes, hole))

    def accept(self, rows: Iterable[Lost]) -> Losses:
        new = tuple(lost for lost in rows if lost not in self.accepted)
        return replace(self, accepted=(*self.accepted, *new)) if new else self

    def only(self, stays: Callable[[Hole], bool]) -> Losses:
        """Return the holes for which `stays` is true, and the accepted rows that contain one of
        them."""
        holes = tuple(filter(stays, self.holes))
        accepted = tuple(
            rows for rows in self.accepted if any(rows.contains(hole.rows) for hole in holes)
        )
        return Losses(holes, accepted)


NO_LOSS = Losses()
