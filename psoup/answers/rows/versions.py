"""All versions of the rows of a keyed stream, for legs with AS OF, whose rows are looked up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import key_digests
from datastem.instants import FOR_EVER
from datastem.stem_view import StemView
from psoup.answers.matching.permitted_rows import MatchSource
from psoup.answers.planning.plan import LegPlan
from psoup.answers.rows.leg_rows import LegRows
from psoup.answers.rows.windows import Choice
from results.region import Region


@dataclass(frozen=True)
class StoredVersions:
    """The versions of a leg's stream, as far as they are known to the plan.

    `referrers` has the rows that look versions up, if versions are to be as known at the position
    of the row that looks them up.
    """

    leg: LegPlan
    matcher: MatchSource
    referrers: StemView | None

    def find(self, keys: Sequence[pa.Array], instants: Int64s, rows: Int64s | None) -> Int64s:
        """Return the ids of the rows that were current at the instants, −1 for none; with `rows`,
        as was known at the position of each of those rows of the referring stream."""
        assert self.leg.keyed is not None, "only rows of keyed streams are looked up"
        if not len(instants):
            return instants
        high, _ = self.leg.limit()
        # For each lookup, the id that all versions known to it are below.
        highs = np.full(len(instants), high)
        if rows is not None and self.referrers is not None:
            highs = np.minimum(highs, _known_at(self.leg.stem, _positions(self.referrers, rows)))
        return self.leg.keyed.current_at(key_digests(keys), instants, highs)

    def rows(self, ids: Int64s, reads: frozenset[str]) -> pa.RecordBatch:
        """Return the permitted rows with these ascending ids that the leg's predicate matches.
        Which rows are current was decided by all rows, not only permitted ones."""
        high, _ = self.leg.limit()
        # `find` has chosen the ids already, so the region must not exclude any of them.
        everything = Region(None, (FOR_EVER, 0), 0, high)
        source = LegRows(self.leg, self.matcher, Choice(everything, ids))
        return source.gather(source.picked(), reads)


def _positions(stem: StemView, row_ids: Int64s) -> Int64s:
    """Return the positions of rows by their ids."""
    ids, positions = _columns(stem)
    return positions[np.searchsorted(ids, row_ids)]


def _known_at(stem: StemView, positions: Int64s) -> Int64s:
    """Return the next row id at each position. Rows come in the order of their positions."""
    ids, row_positions = _columns(stem)
    # For each position, the place of the first row after it; one past the last without any.
    places = np.searchsorted(row_positions, positions, "right")
    return np.append(ids, stem.high)[places]


def _columns(stem: StemView) -> tuple[Int64s, Int64s]:
    """Return the ids and positions of all rows, both ascending."""
    parts = list(stem.columns(("_row_id", "_position"), 0))
    ids, positions = (
        np.concatenate([np.empty(0, np.int64), *(part.column(name).to_numpy() for part in parts)])
        for name in ("_row_id", "_position")
    )
    return ids, positions
