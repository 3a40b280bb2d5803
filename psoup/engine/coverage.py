"""Coverage, as the engine keeps it: which predicates have met which rows.

Predicates that arrive in one step are a cohort. A cohort has met every row from `row_lo` on, for
ever; back-fill takes `row_lo` down to 0. Cohorts that have come equally far are one.

Invariants (`_check`): the cohorts of a stream are disjoint ascending ranges of predicate ids, and
neighbours differ in `row_lo`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from psoup.store.layout import COVERAGE


@dataclass(frozen=True, slots=True)
class Cohort:
    """The predicates of one stream with lo <= id < hi: all rows with id >= row_lo are met."""

    lo: int
    hi: int
    row_lo: int


@dataclass(frozen=True, slots=True)
class Band:
    """Work of a back-fill slice: these ranges of predicate ids over the rows [lo, hi)."""

    predicates: tuple[tuple[int, int], ...]
    lo: int
    hi: int


class Cohorts:
    """The cohorts of every stream, and the rows of the coverage table that say so."""

    def __init__(self) -> None:
        self._streams: dict[int, list[Cohort]] = {}

    @classmethod
    def load(cls, table: pa.Table) -> Cohorts:
        """Reads the rows of the coverage table.

        The ranges of rows that a cohort has met join without a gap, so the lowest one says how far
        it has come.
        """
        coverage = cls()
        rows: dict[int, list[Cohort]] = {}
        for row in table.to_pylist():
            cohort = Cohort(row["predicate_lo"], row["predicate_hi"], row["row_lo"])
            rows.setdefault(row["stream_id"], []).append(cohort)
        for stream_id, cohorts in rows.items():
            coverage._streams[stream_id] = _lowest(cohorts)
        return coverage

    def table(self) -> pa.Table:
        """The fewest rows that `load` reads back as these cohorts."""
        rows = [
            _row(stream_id, cohort, None)
            for stream_id, cohorts in self._streams.items()
            for cohort in cohorts
        ]
        return pa.Table.from_pylist(rows, schema=COVERAGE)

    def cohorts(self, stream_id: int) -> list[Cohort]:
        return list(self._streams.get(stream_id, ()))

    def streams(self) -> list[int]:
        return list(self._streams)

    def start(self, stream_id: int, cohort: Cohort) -> pa.Table:
        """Adds a cohort, whose ids are above all before, and returns the row to append to the
        table."""
        cohorts = [*self.cohorts(stream_id), cohort]
        self._streams[stream_id] = _joined(cohorts)
        return pa.Table.from_pylist([_row(stream_id, cohort, None)], schema=COVERAGE)

    def extend(self, stream_id: int, row_lo: int, top: int) -> pa.Table:
        """Notes that the cohorts of a pass have come down to `row_lo`, and returns the rows to
        append to the table. Cohorts above `top` are not part of the pass."""
        cohorts = self.cohorts(stream_id)
        behind = [cohort for cohort in cohorts if row_lo < cohort.row_lo <= top]
        rows = [_row(stream_id, replace(one, row_lo=row_lo), one.row_lo) for one in behind]
        self._streams[stream_id] = _joined(
            replace(cohort, row_lo=row_lo) if cohort in behind else cohort for cohort in cohorts
        )
        return pa.Table.from_pylist(rows, schema=COVERAGE)

    def raise_to(self, stream_id: int, row_lo: int) -> None:
        """Forgets what was matched below `row_lo`. The table must be written anew: appended rows
        can only say that more was matched."""
        self._streams[stream_id] = _joined(
            replace(cohort, row_lo=max(cohort.row_lo, row_lo)) for cohort in self.cohorts(stream_id)
        )

    def forget(self, stream_id: int) -> None:
        self._streams.pop(stream_id, None)

    def pending(self, stream_id: int, floor: int) -> int:
        """Counts the rows that back-fill has still to go through; no row below `floor` exists."""
        highest = max((cohort.row_lo for cohort in self.cohorts(stream_id)), default=0)
        return max(0, highest - floor)

    def top(self, stream_id: int, floor: int, reached: int) -> int:
        """The row id at which the pass goes on that has come down to `reached`, or at which the
        next pass begins.

        Cohorts that came during a pass wait for the next, which takes all of them: if each were
        first, none would come far while others keep coming.
        """
        levels = [one.row_lo for one in self.cohorts(stream_id) if one.row_lo > floor]
        under_way = any(level <= reached for level in levels)
        return reached if under_way else max(levels, default=0)

    def bands(self, stream_id: int, rows: int, floor: int, top: int) -> list[Band]:
        """The next `rows` rows of a pass that goes on at `top`, newest first: each level of rows
        with the cohorts that have not met it. Empty where nothing is left above `floor`."""
        cohorts = [one for one in self.cohorts(stream_id) if floor < one.row_lo <= top]
        levels = sorted({cohort.row_lo for cohort in cohorts}, reverse=True)
        if not levels:
            return []
        end = max(levels[0] - rows, floor)
        cuts = [level for level in levels if level > end] + [end]
        return [
            Band(tuple((c.lo, c.hi) for c in cohorts if c.row_lo >= hi), lo, hi)
            for hi, lo in pairwise(cuts)
        ]

    def _check(self) -> None:
        for cohorts in self._streams.values():
            assert all(cohort.lo < cohort.hi for cohort in cohorts)
            for left, right in pairwise(cohorts):
                assert left.hi <= right.lo and left.row_lo != right.row_lo


def _row(stream_id: int, cohort: Cohort, row_hi: int | None) -> dict[str, int | None]:
    return {
        "stream_id": stream_id,
        "predicate_lo": cohort.lo,
        "predicate_hi": cohort.hi,
        "row_lo": cohort.row_lo,
        "row_hi": row_hi,
    }


def _joined(cohorts: Iterable[Cohort]) -> list[Cohort]:
    """Joins neighbours that came equally far. Ids between them belong to other streams."""
    joined: list[Cohort] = []
    for cohort in cohorts:
        if joined and joined[-1].row_lo == cohort.row_lo:
            cohort = Cohort(joined.pop().lo, cohort.hi, cohort.row_lo)
        joined.append(cohort)
    return joined


def _lowest(rows: list[Cohort]) -> list[Cohort]:
    """Cuts `rows` into ranges of predicate ids, each with the least row_lo of its rows."""
    cuts = sorted({cut for row in rows for cut in (row.lo, row.hi)})
    pieces = []
    for lo, hi in pairwise(cuts):
        levels = [row.row_lo for row in rows if row.lo <= lo and hi <= row.hi]
        if levels:
            pieces.append(Cohort(lo, hi, min(levels)))
    return _joined(pieces)
