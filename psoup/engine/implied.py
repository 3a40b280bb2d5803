"""Predicates that those of a back-fill imply: only rows that match them can match anew.

That helps where every predicate of a pass has such a one: else the rows are read for the others
anyway.
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
from psoup.engine.coverage import Band
from psoup.engine.ledger import Ledger
from psoup.store import CorruptStore, DataFile
from psoup.store.delta.reading import reader
from psoup.store.state.predicates import Predicates
from psoup.store.state.quarantine import MACHINE_ERRORS
from querystem.expressions import Expression, from_json
from querystem.implication import Conjunction, ImplicationIndex
from results.bitmaps import decode

log = logging.getLogger(__name__)

# Passes of more predicates are not looked at; nor are others than a stream's newest predicates.
_MOST, _CONSIDERED = 64, 256
_MOST_INDEXED = 4096
# So long is looked for one of them.
_SECONDS = 0.001


class WiderPredicates:
    """Finds the predicates that those of a pass imply. For the driver."""

    def __init__(self) -> None:
        self._indexes: dict[int, ImplicationIndex] = {}
        self._wheres: dict[int, Expression] = {}

    def of(self, ledger: Ledger, stream_id: int, band: Band) -> tuple[int, ...]:
        """Live predicates, one of which each predicate of a band implies and which have met all its
        rows; none where a predicate of the band implies no such one."""
        _, predicates = ledger.state.columns
        live = predicates.of_stream(stream_id)
        pass_ids = live[_inside(live, band.predicates)]
        if not 0 < len(pass_ids) <= _MOST:
            return ()
        try:
            index = self._index(stream_id, predicates, ledger.state.quarantine.predicates)
            met = {id_ for id_ in index if _has_met(ledger, stream_id, id_, band.lo)}
            eligible = met.intersection(live.tolist())
            found = [self._tightest(index, predicates[int(id_)].key, eligible) for id_ in pass_ids]
        except MACHINE_ERRORS:
            raise
        except Exception:
            # Back-fill does without; a predicate that fails there, too, is set aside there.
            log.exception("predicates of stream %d can't be compared", stream_id)
            return ()
        chosen = {one for one in found if one is not None}
        return () if None in found else tuple(sorted(chosen))

    def _tightest(self, index: ImplicationIndex, key: str, eligible: set[int]) -> int | None:
        """The predicate that a predicate implies and that implies most of the others it implies."""
        best: int | None = None
        for id_ in index.implied(from_json(json.loads(key)), _SECONDS):
            if id_ in eligible and (best is None or self._implies(id_, best)):
                best = id_
        return best

    def _implies(self, left: int, right: int) -> bool:
        return Conjunction(self._wheres[left]).implies(Conjunction(self._wheres[right]))

    def _index(
        self, stream_id: int, predicates: Predicates, set_aside: frozenset[int]
    ) -> ImplicationIndex:
        if len(self._wheres) > _MOST_INDEXED:
            self._indexes.clear()
            self._wheres.clear()
        index = self._indexes.setdefault(stream_id, ImplicationIndex())
        rows = predicates.latest(stream_id, _CONSIDERED)
        ids, keys = (rows.column(name).to_pylist() for name in ("predicate_id", "key"))
        for id_, key in zip(ids, keys, strict=True):
            if id_ not in index and id_ not in set_aside:
                self._wheres[id_] = from_json(json.loads(key))
                index.insert(id_, self._wheres[id_])
        return index


def _inside(ids: Int64s, ranges: Iterable[tuple[int, int]]) -> np.ndarray:
    inside = np.zeros(len(ids), np.bool_)
    for lo, hi in ranges:
        inside |= (ids >= lo) & (ids < hi)
    return inside


def _has_met(ledger: Ledger, stream_id: int, predicate: int, row: int) -> bool:
    """Tells whether a predicate has met all rows from a row on."""
    cohorts = ledger.coverage.cohorts(stream_id)
    return any(one.lo <= predicate < one.hi and one.row_lo <= row for one in cohorts)


def matched_ids(
    root: Path, files: Iterable[DataFile], predicates: Iterable[int], lo: int, hi: int
) -> Int64s | None:
    """The ascending ids of `[lo, hi)` that one of some predicates matches, by the pieces in files
    of the matches table; None where a file is damaged or gone."""
    wanted = pa.array(predicates, pa.int64())
    found = [np.empty(0, np.int64)]
    try:
        for file in files:
            table = reader(root, file).whole()
            table = table.filter(pc.is_in(table.column("predicate_id"), wanted))
            for block, bitmap in zip(
                table.column("block").to_pylist(), table.column("bitmap").to_pylist(), strict=True
            ):
                found.append((block << BLOCK_BITS) + decode(bitmap).astype(np.int64))
    except (CorruptStore, FileNotFoundError) as error:
        log.warning("%s; all rows are looked at", error)
        return None
    ids = np.unique(np.concatenate(found))
    return ids[np.searchsorted(ids, lo) : np.searchsorted(ids, hi)]
