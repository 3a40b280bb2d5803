"""Coverage, as the engine keeps it: which predicates have met which rows.

Predicates that arrive in one step are a cohort. A cohort has met every row from `row_lo` on;
back-fill takes `row_lo` down, to where its windows reach or to 0, and what no window can reach any
more may be cut. Cohorts that have come equally far are one. A predicate that is set aside is a
cohort of its own, which has met no row and wants none (`SET_ASIDE`).

Invariants (`_check`): the cohorts of a stream are disjoint ascending ranges of predicate ids, and
neighbours differ in `row_lo`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise

import pyarrow as pa

from datastem.blocks import BLOCK_ROWS
from psoup.store.layout import COVERAGE

# The `row_lo` of predicates that are set aside: past every row id.
SET_ASIDE = 1 << 62


@dataclass(frozen=True, slots=True)
class Cohort:
    """The predicates of one stream with lo <= id < hi: all rows with id >= row_lo are met."""

    lo: int
    hi: int
    row_lo: int

    @property
    def is_set_aside(self) -> bool:
        return self.row_lo == SET_ASIDE

    def without(self, ids: Iterable[int]) -> list[Cohort]:
        """Return cohorts of the same predicates, in which some of them are set aside."""
        made, lo = list[Cohort](), self.lo
        for id_ in sorted(one for one in ids if self.lo <= one < self.hi):
            made += [Cohort(lo, id_, self.row_lo), Cohort(id_, id_ + 1, SET_ASIDE)]
            lo = id_ + 1
        return [one for one in (*made, Cohort(lo, self.hi, self.row_lo)) if one.lo < one.hi]


@dataclass(frozen=True, slots=True)
class Band:
    """Work of a back-fill slice: these ranges of predicate ids over the rows [lo, hi)."""

    predicates: tuple[tuple[int, int], ...]
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Want:
    """The predicates with lo <= id < hi have met the rows from `row_lo` on and are to meet those
    from `target` on."""

    lo: int
    hi: int
    row_lo: int
    target: int


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

    def start(self, stream_id: int, cohort: Cohort, set_aside: Iterable[int] = ()) -> pa.Table:
        """Adds a cohort, whose ids are above all before, and returns the rows to append to the
        table. Some of its predicates may be set aside."""
        added = cohort.without(set_aside)
        self._streams[stream_id] = _joined([*self.cohorts(stream_id), *added])
        return pa.Table.from_pylist([_row(stream_id, one, None) for one in added], schema=COVERAGE)

    def set_aside(self, stream_id: int, ids: Iterable[int]) -> None:
        """Forget what predicates have met. The table must be written again."""
        ids = list(ids)
        cohorts = (part for one in self.cohorts(stream_id) for part in one.without(ids))
        self._streams[stream_id] = _joined(cohorts)

    def restart(self, stream_id: int, predicate_id: int, row_lo: int) -> pa.Table:
        """Let a predicate that was set aside meet rows from `row_lo` on, and return the row to
        append to the table."""
        cohort = Cohort(predicate_id, predicate_id + 1, row_lo)
        self._streams[stream_id] = _lowest([*self.cohorts(stream_id), cohort])
        return pa.Table.from_pylist([_row(stream_id, cohort, None)], schema=COVERAGE)

    def extend(self, stream_id: int, wants: Iterable[Want], row_lo: int) -> pa.Table:
        """Notes that the predicates of some wants have met the rows from `row_lo` on, or from their
        target where that is higher, and returns the rows to append to the table."""
        moved = [(one, max(row_lo, one.target)) for one in wants]
        moved = [(one, lo) for one, lo in moved if lo < one.row_lo]
        made = [Cohort(one.lo, one.hi, lo) for one, lo in moved]
        rows = [
            _row(stream_id, cohort, one.row_lo)
            for (one, _), cohort in zip(moved, made, strict=True)
        ]
        self._streams[stream_id] = _lowest([*self.cohorts(stream_id), *made])
        return pa.Table.from_pylist(rows, schema=COVERAGE)

    def raise_to(self, stream_id: int, row_lo: int) -> None:
        """Forgets what was matched below `row_lo`. The table must be written anew: appended rows
        can only say that more was matched."""
        self._streams[stream_id] = _joined(
            replace(cohort, row_lo=max(cohort.row_lo, row_lo)) for cohort in self.cohorts(stream_id)
        )

    def cut(self, stream_id: int, levels: Iterable[int]) -> None:
        """Forgets of each cohort what was matched below a row id. The table must be written
        anew."""
        self._streams[stream_id] = _joined(
            replace(cohort, row_lo=max(cohort.row_lo, level))
            for cohort, level in zip(self.cohorts(stream_id), levels, strict=True)
        )

    def forget(self, stream_id: int) -> None:
        self._streams.pop(stream_id, None)

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
    coming = sorted(rows, key=lambda row: row.lo, reverse=True)
    pieces, here = [], list[tuple[int, int]]()
    for lo, hi in pairwise(cuts):
        while coming and coming[-1].lo <= lo:
            row = coming.pop()
            heappush(here, (row.row_lo, row.hi))
        while here and here[0][1] <= lo:
            heappop(here)
        if here:
            pieces.append(Cohort(lo, hi, here[0][0]))
    return _joined(pieces)


# ---- the order in which wants are met


def pending(wants: Iterable[Want], floor: int) -> int:
    """Counts the rows that back-fill has to go through; no row below `floor` exists."""
    return max((one.row_lo - max(one.target, floor) for one in wants), default=0)


def top(wants: Iterable[Want], reached: int) -> int:
    """The row id at which the pass goes on that has come down to `reached`, or at which the next
    pass begins.

    Wants that came during a pass wait for the next, which takes all of them: if each were first,
    none would come far while others keep coming.
    """
    levels = [one.row_lo for one in wants]
    under_way = any(level <= reached for level in levels)
    return reached if under_way else max(levels, default=0)


def bands(wants: Iterable[Want], rows: int, floor: int, top: int) -> list[Band]:
    """The next `rows` rows of a pass that goes on at `top`, newest first: each level of rows with
    the wants that have yet to meet it. Empty where nothing is left above `floor`."""
    mine = [one for one in wants if max(one.target, floor) < one.row_lo <= top]
    if not mine:
        return []
    first = max(one.row_lo for one in mine)
    end = first - rows
    if rows >= BLOCK_ROWS:
        # Row groups end with their block, and one that two slices share is read twice.
        end -= end % BLOCK_ROWS
    end = max(end, floor, min(one.target for one in mine))
    levels = {level for one in mine for level in (one.row_lo, one.target) if level > end}
    cuts = [*sorted(levels, reverse=True), end]
    found = [
        Band(tuple((one.lo, one.hi) for one in mine if one.target < hi <= one.row_lo), lo, hi)
        for hi, lo in pairwise(cuts)
    ]
    # Between the rows of some wants and those of others there may be rows that nobody wants.
    return [band for band in found if band.predicates]
