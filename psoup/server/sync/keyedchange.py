"""What changed in a copy of a keyed stream's current rows, told by the keys that have new rows.

A row stops being current only because another of its key came. So the keys of the new rows say all
that came and went, and what the copy comes to, its count and its digest, follows from what it came
to before, where that is remembered. Elsewhere all current rows are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from datastem.keyed_rows import KeyedRows
from psoup.server.choosing import Choice
from psoup.server.invoke import Plan
from psoup.server.matcher import Matcher
from psoup.server.summaries import Entry, Summaries
from psoup.server.sync.rowset import RowSet, Total
from results.region import Region


@dataclass(frozen=True)
class KeptTotals:
    """What the current matching rows of a region came to, when nothing later was known."""

    summaries: Summaries
    predicate_id: int

    def find(self, region: Region) -> Total | None:
        entry = self.summaries.probe(("current", self.predicate_id, region))
        return None if entry is None else entry.value

    def keep(self, region: Region, total: Total) -> None:
        entry = Entry(region.lo, region.hi, 0, 0, total, total.nbytes)
        self.summaries.insert(("current", self.predicate_id, region), entry)


@dataclass(frozen=True)
class Change:
    """Rows to add to a copy and to leave out of it; `old` is the copy's region, where the two are
    all there is between it and the target."""

    come: RowSet
    gone: RowSet
    old: Region | None

    def total(self, kept: KeptTotals) -> Total | None:
        """What the target comes to, where it is remembered what the copy did."""
        before = None if self.old is None else kept.find(self.old)
        if before is None:
            return None
        return before.plus(Total.of(self.come.ids)).minus(Total.of(self.gone.ids))


def keyed_change(
    plan: Plan, matcher: Matcher, old: Region, new: Region, rows: tuple[KeyedRows, KeyedRows]
) -> Change:
    """`rows` are no longer current, and newly so."""
    gone, come = (
        Choice(region, some.ids[region.holds(some.ts, some.ids)])
        for region, some in zip((old, new), rows, strict=True)
    )
    return Change(RowSet(plan, matcher, (come,)), RowSet(plan, matcher, (gone,)), old)
