"""All versions of the rows of a keyed stream, for legs whose rows are looked up (AS OF)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import key_digests
from datastem.instants import FOR_EVER
from datastem.stem import StemView
from psoup.answers.matching.shown_rows import MatchSource
from psoup.answers.planning.plan import LegPlan
from psoup.answers.rows.leg_rows import LegRows
from psoup.answers.rows.windows import Choice
from results.region import Region


@dataclass(frozen=True)
class StoredVersions:
    """The versions of a leg's stream, as far as they are known to the plan.

    `other` has the rows whose positions say what was known, where the leg asks for that.
    """

    leg: LegPlan
    matcher: MatchSource
    other: StemView | None

    def find(self, keys: Sequence[pa.Array], instants: Int64s, rows: Int64s | None) -> Int64s:
        """The ids of the rows that were current at the instants, −1 where none was; with `rows`, as
        was known at the position of each of those rows of the other stream."""
        assert self.leg.keyed is not None, "only rows of keyed streams are looked up"
        if not len(instants):
            return instants
        high, _ = self.leg.known()
        highs = np.full(len(instants), high)
        if rows is not None and self.other is not None:
            highs = np.minimum(highs, _known_at(self.leg.stem, _positions(self.other, rows)))
        return self.leg.keyed.current_at(key_digests(keys), instants, highs)

    def rows(self, ids: Int64s, reads: frozenset[str]) -> pa.RecordBatch:
        """The rows with these ascending ids that the leg's predicate matches, of those that are
        shown: which of them are current was told from all."""
        high, _ = self.leg.known()
        everything = Region(None, (FOR_EVER, 0), 0, high)
        found = LegRows(self.leg, self.matcher, Choice(everything, ids))
        return found.gather(found.picked(), reads)


def _positions(stem: StemView, ids: Int64s) -> Int64s:
    """The positions of rows by their ids."""
    rows = _columns(stem)
    return rows[1][np.searchsorted(rows[0], ids)]


def _known_at(stem: StemView, positions: Int64s) -> Int64s:
    """The next row id at each position: rows come in the order of their positions."""
    ids, known = _columns(stem)
    places = np.searchsorted(known, positions, "right")
    return np.append(ids, stem.high)[places]


def _columns(stem: StemView) -> tuple[Int64s, Int64s]:
    """The ids and positions of all rows."""
    parts = list(stem.columns(("_row_id", "_position"), 0))
    ids, positions = (
        np.concatenate([np.empty(0, np.int64), *(part.column(name).to_numpy() for part in parts)])
        for name in ("_row_id", "_position")
    )
    return ids, positions
