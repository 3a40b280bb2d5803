"""Coverage, as the engine keeps it: which predicates were matched with which rows.

Predicates that arrive in one step are a cohort. A cohort was matched with every row from `row_lo`
on. Back-fill lowers `row_lo` to the oldest row that its windows reach, or to 0. Matches of rows
that no window reaches any more may be dropped, which raises it. Neighbouring cohorts with equal
`row_lo` are joined. A predicate in quarantine is a separate cohort without rows (`SET_ASIDE`).

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

# The `row_lo` of predicates in quarantine: past every row id.
SET_ASIDE = 1 << 62


@dataclass(frozen=True, slots=True)
class Cohort:
    """The predicates of one stream with lo <= id < hi, matched with all rows with id >= row_lo."""

    lo: int
    hi: int
    row_lo: int

    @property
    def is_set_aside(self) -> bool:
        return self.row_lo == SET_ASIDE

    def without(self, ids: Iterable[int]) -> list[Cohort]:
        """Return cohorts of the same predicates, of which those in `ids` are set aside."""
        split, lo = list[Cohort](), self.lo
        for id_ in sorted(id_ for id_ in ids if self.lo <= id_ < self.hi):
            split += [Cohort(lo, id_, self.row_lo), Cohort(id_, id_ + 1, SET_ASIDE)]
            lo = id_ + 1
        split.append(Cohort(lo, self.hi, self.row_lo))
        return [cohort for cohort in split if cohort.lo < cohort.hi]


@dataclass(frozen=True, slots=True)
class Band:
    """Work of a back-fill slice: these ranges of predicate ids over the rows [lo, hi)."""

    predicates: tuple[tuple[int, int], ...]
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Want:
    """Work for back-fill: the predicates with lo <= id < hi were matched with the rows from
    `row_lo` on, and are to be matched with those from `target` on."""

    lo: int
    hi: int
    row_lo: int
    target: int


class Cohorts:
    """The cohorts of every stream, and the rows of the coverage table that describe them."""

    def __init__(self) -> None:
        self._streams: dict[int, list[Cohort]] = {}

    @classmethod
    def load(cls, table: pa.Table) -> Cohorts:
        """Return the cohorts that the rows of the coverage table describe.

        The ranges of rows of a cohort join without a gap, so the lowest one gives its `row_lo`.
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
        """Return the fewest rows that `load` reads back as these cohorts."""
        rows = [
            _row(stream_id, cohort, None)
            for stream_id, cohorts in self._streams.items()
            for cohort in cohorts
        ]
        return pa.Table.from_pylist(rows, schema=COVERAGE)

    def cohorts(self, stream_id: int) -> list[Cohort]:
        """Return the cohorts of a stream, by predicate ids ascending."""
        return list(self._streams.get(stream_id, ()))

    def streams(self) -> list[int]:
        """Return the ids of the streams and composites that have cohorts."""
        return list(self._streams)

    def start(self, stream_id: int, cohort: Cohort, set_aside: Iterable[int] = ()) -> pa.Table:
        """Add a cohort, of which the predicates in `set_aside` are in quarantine; return the rows
        to append to the table. Its ids must be above all earlier ones."""
        added = cohort.without(set_aside)
        self._streams[stream_id] = _joined([*self.cohorts(stream_id), *added])
        return pa.Table.from_pylist(
            [_row(stream_id, part, None) for part in added], schema=COVERAGE
        )

    def set_aside(self, stream_id: int, ids: Iterable[int]) -> None:
        """Forget with which rows predicates were matched. The caller writes the table again."""
        ids = list(ids)
        cohorts = (part for cohort in self.cohorts(stream_id) for part in cohort.without(ids))
        self._streams[stream_id] = _joined(cohorts)

    def restart(self, stream_id: int, predicate_id: int, row_lo: int) -> pa.Table:
        """Let a predicate that was set aside be matched from `row_lo` on; return the row to append
        to the table."""
        cohort = Cohort(predicate_id, predicate_id + 1, row_lo)
        # SET_ASIDE is above every row id, so the new `row_lo` is the lowest and counts.
        self._streams[stream_id] = _lowest([*self.cohorts(stream_id), cohort])
        return pa.Table.from_pylist([_row(stream_id, cohort, None)], schema=COVERAGE)

    def extend(self, stream_id: int, wants: Iterable[Want], row_lo: int) -> pa.Table:
        """Note that the predicates of `wants` were matched with the rows from `row_lo` on, or from
        their target if that is higher; return the rows to append to the table."""
        # Each want with its new `row_lo`; those that gained no rows are left out.
        moved = [(want, max(row_lo, want.target)) for want in wants]
        moved = [(want, lo) for want, lo in moved if lo < want.row_lo]
        extended = [Cohort(want.lo, want.hi, lo) for want, lo in moved]
        rows = [
            _row(stream_id, cohort, want.row_lo)
            for (want, _), cohort in zip(moved, extended, strict=True)
        ]
        # A want may be a part of its cohort, which is then split at the ends of the want.
        self._streams[stream_id] = _lowest([*self.cohorts(stream_id), *extended])
        return pa.Table.from_pylist(rows, schema=COVERAGE)

    def raise_to(self, stream_id: int, row_lo: int) -> None:
        """Forget the matches of rows below `row_lo`. The caller writes the table again: appended
        rows can only state that more was matched."""
        self._streams[stream_id] = _joined(
            replace(cohort, row_lo=max(cohort.row_lo, row_lo)) for cohort in self.cohorts(stream_id)
        )

    def cut(self, stream_id: int, levels: Iterable[int]) -> None:
        """Forget the matches below a row id, one for each cohort in order. The caller writes the
        table again."""
        self._streams[stream_id] = _joined(
            replace(cohort, row_lo=max(cohort.row_lo, level))
            for cohort, level in zip(self.cohorts(stream_id), levels, strict=True)
        )

    def forget(self, stream_id: int) -> None:
        """Drop the cohorts of a stream."""
        self._streams.pop(stream_id, None)

    def _check(self) -> None:
        for cohorts in self._streams.values():
            assert all(cohort.lo < cohort.hi for cohort in cohorts)
            for previous, right in pairwise(cohorts):
                assert previous.hi <= right.lo and previous.row_lo != right.row_lo


def _row(stream_id: int, cohort: Cohort, row_hi: int | None) -> dict[str, int | None]:
    return {
        "stream_id": stream_id,
        "predicate_lo": cohort.lo,
        "predicate_hi": cohort.hi,
        "row_lo": cohort.row_lo,
        "row_hi": row_hi,
    }


def _joined(cohorts: Iterable[Cohort]) -> list[Cohort]:
    """Return the cohorts with neighbours of equal `row_lo` joined. Ids between them belong to other
    streams."""
    joined: list[Cohort] = []
    for cohort in cohorts:
        if joined and joined[-1].row_lo == cohort.row_lo:
            cohort = Cohort(joined.pop().lo, cohort.hi, cohort.row_lo)
        joined.append(cohort)
    return joined


def _lowest(rows: list[Cohort]) -> list[Cohort]:
    """Return ranges of predicate ids, each with the least `row_lo` of the `rows` over it."""
    # Between two neighbouring cuts, a row covers all predicate ids or none.
    cuts = sorted({cut for row in rows for cut in (row.lo, row.hi)})
    # Descending, so that `pop` takes the row with the least `lo`.
    pending_rows = sorted(rows, key=lambda row: row.lo, reverse=True)
    # A heap of (row_lo, hi) of the rows that reach into the current range.
    pieces, active = [], list[tuple[int, int]]()
    for lo, hi in pairwise(cuts):
        while pending_rows and pending_rows[-1].lo <= lo:
            row = pending_rows.pop()
            heappush(active, (row.row_lo, row.hi))
        # Only the top of the heap must be current: an ended row below it changes no minimum.
        while active and active[0][1] <= lo:
            heappop(active)
        if active:
            pieces.append(Cohort(lo, hi, active[0][0]))
    return _joined(pieces)


# ---- the order in which back-fill works


def pending(wants: Iterable[Want], floor: int) -> int:
    """Return the number of rows that back-fill still has to read; `floor` is the first row."""
    # Wants share one pass over the rows, so the longest of them decides.
    return max((want.row_lo - max(want.target, floor) for want in wants), default=0)


def top(wants: Iterable[Want], reached: int) -> int:
    """Return the row id at which the current pass, which has come down to `reached`, continues, or
    at which the next pass begins.

    Wants that arrive during a pass wait for the next pass, which takes all of them. If new ones
    came first, none would finish while more keep arriving.
    """
    levels = [want.row_lo for want in wants]
    # Wants of the running pass were extended to `reached`. Those that came since are above it.
    is_running = any(level <= reached for level in levels)
    return reached if is_running else max(levels, default=0)


def bands(wants: Iterable[Want], rows: int, floor: int, top: int) -> list[Band]:
    """Return the next `rows` rows of a pass that continues at `top`, newest first, as bands: each
    range of rows with the predicates to match with it. Empty if nothing remains above `floor`."""
    # Wants above `top` came during this pass, and wait for the next.
    open_wants = [want for want in wants if max(want.target, floor) < want.row_lo <= top]
    if not open_wants:
        return []
    first = max(want.row_lo for want in open_wants)
    end = first - rows
    if rows >= BLOCK_ROWS:
        # Row groups end with their block, and one that two slices share is read twice.
        end -= end % BLOCK_ROWS
    end = max(end, floor, min(want.target for want in open_wants))
    # Row ids at which predicates join or leave, newest first; bands lie between them.
    levels = {level for want in open_wants for level in (want.row_lo, want.target) if level > end}
    cuts = [*sorted(levels, reverse=True), end]
    candidates = [
        Band(
            tuple((want.lo, want.hi) for want in open_wants if want.target < hi <= want.row_lo),
            lo,
            hi,
        )
        for hi, lo in pairwise(cuts)
    ]
    # Between the rows of two wants there may be rows that no want needs.
    return [band for band in candidates if band.predicates]
