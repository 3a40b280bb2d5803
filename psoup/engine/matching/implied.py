"""Predicates that those of a back-fill imply: only rows that match them can match.

That helps only if every predicate of a pass implies one: otherwise all rows are read for the rest.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS
from psoup.engine.ledger import Ledger
from psoup.engine.matching.coverage import Band
from psoup.store import CorruptStore, DataFile
from psoup.store.delta.reading import reader
from psoup.store.state.predicates import Predicates
from psoup.store.state.quarantine import MACHINE_ERRORS
from querystem.expressions import Expression, from_json
from querystem.implication import Conjunction, ImplicationIndex
from results.bitmaps import decode

log = logging.getLogger(__name__)

# Larger passes are not tried. Only the newest predicates of a stream are candidates.
_MAX_PASS_PREDICATES, _CANDIDATES = 64, 256
_MAX_INDEXED = 4096
# The time limit of the search for one predicate.
_SEARCH_SECONDS = 0.001


class WiderPredicates:
    """The predicates that those of a pass imply. Used by the driver."""

    def __init__(self) -> None:
        self._indexes: dict[int, ImplicationIndex] = {}
        self._wheres: dict[int, Expression] = {}

    def of(self, ledger: Ledger, stream_id: int, band: Band) -> tuple[int, ...]:
        """Return live predicates, matched with all rows of a band, of which each predicate of the
        band implies one; empty if a predicate of the band implies none."""
        _, predicates = ledger.state.columns
        live = predicates.of_stream(stream_id)
        pass_ids = live[_inside(live, band.predicates)]
        if not 0 < len(pass_ids) <= _MAX_PASS_PREDICATES:
            return ()
        try:
            index = self._index(stream_id, predicates, ledger.state.quarantine.predicates)
            # The pieces of a candidate are complete only for rows that it was matched with.
            met = {id_ for id_ in index if _has_met(ledger, stream_id, id_, band)}
            eligible = met.intersection(live.tolist())
            implied = [
                self._tightest(index, predicates[int(id_)].key, eligible) for id_ in pass_ids
            ]
        except MACHINE_ERRORS:
            raise
        except Exception:
            # Back-fill works without them; a predicate that fails there too is set aside there.
            log.exception("predicates of stream %d can't be compared", stream_id)
            return ()
        chosen = {id_ for id_ in implied if id_ is not None}
        return () if None in implied else tuple(sorted(chosen))

    def _tightest(self, index: ImplicationIndex, key: str, eligible: set[int]) -> int | None:
        """Return the narrowest eligible predicate that a predicate implies; None if it implies
        none.

        Narrowest means that no other found one implies it.
        """
        best: int | None = None
        for id_ in index.implied(from_json(json.loads(key)), _SEARCH_SECONDS):
            if id_ in eligible and (best is None or self._implies(id_, best)):
                best = id_
        return best

    def _implies(self, first: int, second: int) -> bool:
        return Conjunction(self._wheres[first]).implies(Conjunction(self._wheres[second]))

    def _index(
        self, stream_id: int, predicates: Predicates, set_aside: frozenset[int]
    ) -> ImplicationIndex:
        # Ended predicates stay in the indexes: start again when these are too large.
        if len(self._wheres) > _MAX_INDEXED:
            self._indexes.clear()
            self._wheres.clear()
        index = self._indexes.setdefault(stream_id, ImplicationIndex())
        rows = predicates.latest(stream_id, _CANDIDATES)
        ids, keys = (rows.column(name).to_pylist() for name in ("predicate_id", "key"))
        for id_, key in zip(ids, keys, strict=True):
            if id_ not in index and id_ not in set_aside:
                self._wheres[id_] = from_json(json.loads(key))
                index.insert(id_, self._wheres[id_])
        return index


def _inside(ids: Int64s, ranges: Iterable[tuple[int, int]]) -> np.ndarray:
    """Return a mask of the ids that are in one of the ranges."""
    inside = np.zeros(len(ids), np.bool_)
    for lo, hi in ranges:
        inside |= (ids >= lo) & (ids < hi)
    return inside


def _has_met(ledger: Ledger, stream_id: int, predicate: int, band: Band) -> bool:
    """Return True if a predicate was matched with all rows of a band."""
    cohorts = ledger.coverage.cohorts(stream_id)
    return any(
        cohort.lo <= predicate < cohort.hi and cohort.covers(band.lo, band.hi) for cohort in cohorts
    )


def matched_ids(
    root: Path, files: Iterable[DataFile], predicates: Iterable[int], lo: int, hi: int
) -> Int64s | None:
    """Return the ascending row ids in `[lo, hi)` that one of the predicates matches, by the pieces
    in files of the matches table; None if a file is damaged or missing."""
    predicate_ids = pa.array(predicates, pa.int64())
    parts = [np.empty(0, np.int64)]
    try:
        for file in files:
            table = reader(root, file).whole()
            table = table.filter(pc.is_in(table.column("predicate_id"), predicate_ids))
            for block, bitmap in zip(
                table.column("block").to_pylist(), table.column("bitmap").to_pylist(), strict=True
            ):
                # A bitmap holds the low bits of row ids, within its block.
                parts.append((block << BLOCK_BITS) + decode(bitmap).astype(np.int64))
    except (CorruptStore, FileNotFoundError) as error:
        log.warning("%s; reading all rows instead", error)
        return None
    # Two predicates may match one row, and files come in any order.
    ids = np.unique(np.concatenate(parts))
    return ids[np.searchsorted(ids, lo) : np.searchsorted(ids, hi)]
