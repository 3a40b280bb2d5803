"""Keyed streams, naively: each key's rows in a list, sorted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.window import Bound, RowWindow, TimeWindow, Window
from tests.oracle.grouping import identity

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Keyed:
    """How a keyed stream is looked at. `high` None: everything is known. `reached` is the stream's
    own NOW, from which its retention counts; None: the NOW of the answer.

    Rows are as everywhere, with `_op` "delete" for deletes.
    """

    key: tuple[str, ...]
    high: int | None = None
    reached: int | None = None

    def known(self, rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if self.high is None or row["row_id"] < self.high]

    def histories(self, rows: Iterable[Row]) -> list[list[Row]]:
        """Return the rows of each key, by (ts, row_id)."""
        histories: dict[Any, list[Row]] = {}
        for row in sorted(rows, key=lambda row: (row["ts"], row["row_id"])):
            histories.setdefault(tuple(identity(row[name]) for name in self.key), []).append(row)
        return list(histories.values())

    def ends(self, rows: Iterable[Row]) -> dict[int, int | None]:
        """By row id."""
        return {
            row["row_id"]: history[place + 1]["ts"] if place + 1 < len(history) else None
            for history in self.histories(rows)
            for place, row in enumerate(history)
        }

    def retained(self, rows: Sequence[Row], now: int, retain: int | None) -> list[Row]:
        """Return those that have no end, or one that is not past the retention, by all that is
        known."""
        if retain is None:
            return list(rows)
        cut = (now if self.reached is None else max(now, self.reached)) - retain
        ends = self.ends(rows)
        return [row for row in rows if (end := ends[row["row_id"]]) is None or end > cut]

    def current(self, rows: Iterable[Row], instant: int) -> list[Row]:
        """Return those of these rows with ts <= instant < end, without deletes."""
        rows = list(rows)
        ends = self.ends(rows)
        return [
            row
            for row in rows
            if row["ts"] <= instant
            and ((end := ends[row["row_id"]]) is None or instant < end)
            and row.get("_op") != "delete"
        ]


def keyed_rows(
    keyed: Keyed, window: Window, rows: Sequence[Row], now: int, retain: int | None
) -> tuple[Window, list[Row]]:
    """Return the rows a window chooses from, and the window with LAST counted from all that was
    known."""
    instant = now
    if isinstance(window, TimeWindow) and window.slide is not None:
        instant = now // window.slide * window.slide
    last = max((row["row_id"] for row in keyed.known(rows)), default=-1)
    if isinstance(window, RowWindow):
        window = RowWindow(_fixed(window.begin, last), _fixed(window.end, last))
    return window, keyed.current(keyed.known(keyed.retained(rows, now, retain)), instant)


def _fixed(bound: Bound, last: int) -> Bound:
    return Bound(bound.offset + last, False) if bound.relative else bound
