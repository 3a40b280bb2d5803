"""Coverage, as the engine keeps it: which predicates were matched with which rows.

Predicates that arrive in one step are a cohort. A cohort is matched with every row from a row id
on. Back-fill adds older rows, down to the oldest that its windows reach, or to 0. Matches of rows
that no window reaches any more may be dropped. Neighbouring cohorts with equal rows are joined.

Quarantine cuts a predicate out of its cohort: its rows end at the next row id of then. A release
lets it be matched with new rows again. The rows between are a gap, which back-fill closes.

Invariants (`_check`): the cohorts of a stream are ascending ranges of predicate ids without ids
between them, and neighbours differ in their rows. The rows of a cohort are ascending ranges that do
not touch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from datastem.blocks import BLOCK_ROWS
from psoup.store.layout import COVERAGE
from results.id_sets import Range, subtract, union

# The end of rows that grow with the stream: past every row id. The table has NULL for it.
OPEN = 1 << 62


@dataclass(frozen=True, slots=True)
class Cohort:
    """The predicates of one stream with lo <= id < hi, and the rows that they were matched with.
    The last of `rows` ends at OPEN, unless the predicates are in quarantine."""

    lo: int
    hi: int
    rows: tuple[Range, ...]

    @classmethod
    def since(cls, lo: int, hi: int, row_lo: int) -> Cohort:
        """Return a cohort that is matched with all rows from `row_lo` on."""
        return cls(lo, hi, ((row_lo, OPEN),))

    @property
    def row_lo(self) -> int:
        """The first row that the predicates were matched with; OPEN if there is none."""
        return self.rows[0][0] if self.rows else OPEN

    @property
    def is_open(self) -> bool:
        """Whether new rows are matched with the predicates."""
        return bool(self.rows) and self.rows[-1][1] == OPEN

    @property
    def gaps(self) -> list[Range]:
        """The rows that back-fill may match the predicates with, ascending; none for predicates in
        quarantine."""
        return subtract(0, OPEN, self.rows) if self.is_open else []

    def gaps_above(self, floor: int) -> list[Range]:
        """Return the gaps that have rows, if the stream's rows begin at `floor`."""
        return [gap for gap in self.gaps if gap[1] > floor]

    def covers(self, row_lo: int, row_hi: int) -> bool:
        """Return True if the predicates were matched with all rows of a range."""
        return any(lo <= row_lo and row_hi <= hi for lo, hi in self.rows)

    def over(self, rows: Iterable[Range]) -> Cohort:
        return replace(self, rows=tuple(union(rows)))

    def from_row(self, row_lo: int) -> Cohort:
        """Return the cohort without the rows below `row_lo`."""
        return self.over((max(lo, row_lo), hi) for lo, hi in self.rows)

    def closed(self, ids: Iterable[int], high: int) -> list[Cohort]:
        """Return cohorts of the same predicates, of which those in `ids` have no rows from `high`
        on."""
        split, lo = list[Cohort](), self.lo
        closed = self.over((row_lo, min(row_hi, high)) for row_lo, row_hi in self.rows)
        for id_ in sorted(id_ for id_ in ids if self.lo <= id_ < self.hi):
            split += [replace(self, lo=lo, hi=id_), replace(closed, lo=id_, hi=id_ + 1)]
            lo = id_ + 1
        split.append(replace(self, lo=lo))
        return [cohort for cohort in split if cohort.lo < cohort.hi]


@dataclass(frozen=True, slots=True)
class Band:
    """Work of a back-fill slice: these ranges of predicate ids over the rows [lo, hi)."""

    predicates: tuple[tuple[int, int], ...]
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Want:
    """Work for back-fill: the predicates with lo <= id < hi were matched with the row `row_lo`, and
    are to be matched with those before it, from `target` on."""

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
        """Return the cohorts that the rows of the coverage table describe."""
        coverage = cls()
        parts: dict[int, list[Cohort]] = {}
        for row in table.to_pylist():
            row_hi = OPEN if row["row_hi"] is None else row["row_hi"]
            rows = ((row["row_lo"], row_hi),)
            part = Cohort(row["predicate_lo"], row["predicate_hi"], rows)
            parts.setdefault(row["stream_id"], []).append(part)
        for stream_id, cohorts in parts.items():
            coverage._streams[stream_id] = _united(cohorts)
        return coverage

    def table(self) -> pa.Table:
        """Return the fewest rows that `load` reads back as these cohorts."""
        tables = [_table(stream_id, cohorts) for stream_id, cohorts in self._streams.items()]
        return pa.concat_tables([COVERAGE.empty_table(), *tables])

    def cohorts(self, stream_id: int) -> list[Cohort]:
        """Return the cohorts of a stream, by predicate ids ascending."""
        return list(self._streams.get(stream_id, ()))

    def interrupted(self, stream_id: int) -> list[Cohort]:
        """Return the cohorts of a stream that have a gap between their rows."""
        return [cohort for cohort in self.cohorts(stream_id) if len(cohort.rows) > 1]

    def streams(self) -> list[int]:
        """Return the ids of the streams and composites that have cohorts."""
        return list(self._streams)

    def start(self, stream_id: int, cohort: Cohort, quarantined: Iterable[int] = ()) -> pa.Table:
        """Add a cohort, of which the `quarantined` predicates have no rows; return the rows to
        append to the table. Its ids must be above all earlier ones."""
        earlier = self.cohorts(stream_id)
        # Ids since the last cohort belong to other streams. With them, cohorts have no ids between
        # them, so a want for several joined cohorts describes no others when it is loaded.
        lo = earlier[-1].hi if earlier else cohort.lo
        added = replace(cohort, lo=lo).closed(quarantined, cohort.row_lo)
        self._streams[stream_id] = _joined([*earlier, *added])
        return _table(stream_id, added)

    def close(self, stream_id: int, ids: Iterable[int], high: int) -> None:
        """Note that predicates are not matched with rows from `high` on, which none of them has
        met. The caller writes the table again: appended rows can only add to it."""
        ids = list(ids)
        cohorts = (part for cohort in self.cohorts(stream_id) for part in cohort.closed(ids, high))
        self._streams[stream_id] = _joined(cohorts)

    def reopen(self, stream_id: int, predicate_id: int, high: int) -> pa.Table:
        """Note that a predicate is matched with all rows from `high` on; return the row to append
        to the table."""
        return self._add(stream_id, [Cohort.since(predicate_id, predicate_id + 1, high)])

    def extend(self, stream_id: int, wants: Iterable[Want], row_lo: int) -> pa.Table:
        """Note that the predicates of `wants` were matched with the rows from `row_lo` on, or from
        their target if that is higher; return the rows to append to the table."""
        added = [
            Cohort(want.lo, want.hi, ((max(row_lo, want.target), want.row_lo),)) for want in wants
        ]
        # Wants that gained no rows are left out.
        return self._add(stream_id, [part for part in added if union(part.rows)])

    def _add(self, stream_id: int, added: list[Cohort]) -> pa.Table:
        """Add rows to predicates, which may be parts of cohorts; return the rows to append to the
        table."""
        self._streams[stream_id] = _united([*self.cohorts(stream_id), *added])
        return _table(stream_id, added)

    def raise_to(self, stream_id: int, row_lo: int) -> None:
        """Forget the matches of rows below `row_lo`. The caller writes the table again."""
        self._streams[stream_id] = _joined(
            cohort.from_row(row_lo) for cohort in self.cohorts(stream_id)
        )

    def cut(self, stream_id: int, levels: Iterable[int]) -> None:
        """Forget the matches below a row id, one for each cohort in order. The caller writes the
        table again."""
        self._streams[stream_id] = _joined(
            cohort.from_row(level)
            for cohort, level in zip(self.cohorts(stream_id), levels, strict=True)
        )

    def forget(self, stream_id: int) -> None:
        """Drop the cohorts of a stream."""
        self._streams.pop(stream_id, None)

    def _check(self) -> None:
        for cohorts in self._streams.values():
            assert all(cohort.lo < cohort.hi for cohort in cohorts)
            assert all(cohort.rows == tuple(union(cohort.rows)) for cohort in cohorts)
            for previous, right in pairwise(cohorts):
                assert previous.hi == right.lo and previous.rows != right.rows


def _table(stream_id: int, cohorts: Iterable[Cohort]) -> pa.Table:
    """Return the rows of the table for cohorts, one for each range of their rows."""
    rows = [
        {
            "stream_id": stream_id,
            "predicate_lo": cohort.lo,
            "predicate_hi": cohort.hi,
            "row_lo": row_lo,
            "row_hi": None if row_hi == OPEN else row_hi,
        }
        for cohort in cohorts
        # A cohort without rows has an empty range: else its neighbours would be joined over it.
        for row_lo, row_hi in cohort.rows or ((0, 0),)
    ]
    return pa.Table.from_pylist(rows, schema=COVERAGE)


def _joined(cohorts: Iterable[Cohort]) -> list[Cohort]:
    """Return the cohorts with neighbours of equal rows joined."""
    joined: list[Cohort] = []
    for cohort in cohorts:
        if joined and joined[-1].rows == cohort.rows:
            cohort = replace(cohort, lo=joined.pop().lo)
        joined.append(cohort)
    return joined


def _united(parts: list[Cohort]) -> list[Cohort]:
    """Return disjoint ranges of predicate ids, each with the rows of all `parts` over it."""
    # Between two neighbouring cuts, a part has all predicate ids or none.
    cuts = sorted({cut for part in parts for cut in (part.lo, part.hi)})
    # Descending, so that `pop` takes the part with the least `lo`.
    pending_parts = sorted(parts, key=lambda part: part.lo, reverse=True)
    united, active = list[Cohort](), list[Cohort]()
    for lo, hi in pairwise(cuts):
        active = [part for part in active if part.hi > lo]
        while pending_parts and pending_parts[-1].lo <= lo:
            active.append(pending_parts.pop())
        if active:
            rows = union(row_range for part in active for row_range in part.rows)
            united.append(Cohort(lo, hi, tuple(rows)))
    return _joined(united)


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
