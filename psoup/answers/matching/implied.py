"""Predicates that a new predicate implies: it needs to be computed for their matches only.

A predicate that the engine has not matched yet is computed by the server. If it implies a predicate
that the engine has matched, no other row can match it. So only the matches of the implied predicate
are computed, as far as the engine has matched that.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from datastem.caches import LruCache
from psoup.answers.matching import matcher
from psoup.answers.planning.plan import LegPlan, Plan
from psoup.answers.replicas.epoch_files import EpochView
from psoup.store import Epoch, State
from psoup.store.state.quarantine import MACHINE_ERRORS
from querystem.expressions import TRUE, Expression, from_json
from querystem.implication import ImplicationIndex
from results.id_sets import intersect, size

log = logging.getLogger("psoup.answers")

# How many of a stream's newest predicates are considered, and how long a search may take.
_CONSIDERED_PREDICATES = 256
_SEARCH_SECONDS = 0.001
# A search ends when it has found this many; the one with the fewest matches is used.
MAX_IMPLIED = 4
# When the indexes have grown to this many predicates, they start again empty.
_MAX_INDEXED_PREDICATES = 4096
_CACHED_PREDICATES = 10_000
# Implied predicates: id and condition.
Implied = tuple[tuple[int, Expression], ...]


@dataclass(frozen=True, slots=True)
class LiveNeighbours:
    """Live predicates of a stream as of an epoch: their predicate keys by id."""

    finder: ImpliedFinder
    stream_id: int
    epoch: int
    keys: Mapping[int, str]

    def implied(self, predicate: int, where: Expression) -> Implied:
        """Return a few predicates that `where` implies. Thread-safe."""
        return self.finder.find(self, predicate, where)

    def note(self, predicate: int, implied: int, rows: int, looked_at: int) -> None:
        self.finder.note(predicate, implied, rows, looked_at)


@dataclass(frozen=True, slots=True)
class ImpliedUse:
    """The gain of a predicate: instead of `rows` rows only `looked_at` were computed, those that
    the predicate `implied` matches. `where` is its condition."""

    implied: int
    where: Expression
    rows: int = 0
    looked_at: int = 0


class ImpliedFinder:
    """Finds predicates that others imply, and caches them. Thread-safe, except `prepared`, which is
    for the thread that changes the state."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: dict[int, ImplicationIndex] = {}
        self._wheres: dict[int, Expression] = {}
        # By predicate and epoch.
        self._cache: LruCache[tuple[int, int], Implied] = LruCache(_CACHED_PREDICATES)
        self._uses: LruCache[int, ImpliedUse] = LruCache(_CACHED_PREDICATES)
        # The predicates whose rows are all matched in one epoch, as far as they were looked up.
        self._matched: set[int] = set()
        self._matched_at: EpochView | None = None

    def prepared(self, plan: Plan, state: State) -> Plan:
        """Return the plan with the neighbours of each predicate that the engine has yet to
        match."""
        legs = tuple(self._with_neighbours(plan, leg, state) for leg in plan.legs)
        changed = any(new is not old for new, old in zip(legs, plan.legs, strict=True))
        return replace(plan, legs=legs) if changed else plan

    def _with_neighbours(self, plan: Plan, leg: LegPlan, state: State) -> LegPlan:
        mark = plan.epoch.epoch.streams.get(leg.stream_id)
        if mark is None or mark.high < matcher.MIN_LOOKUP_ROWS or leg.leg.where == TRUE:
            return leg
        if self._is_matched(plan.epoch, leg, mark.high):
            return leg
        keys = self._keys(plan.epoch.epoch, leg, state)
        if not keys:
            return leg
        neighbours = LiveNeighbours(self, leg.stream_id, plan.epoch.number, keys)
        return replace(leg, neighbours=neighbours)

    def _is_matched(self, epoch: EpochView, leg: LegPlan, high: int) -> bool:
        """Return True if the engine has matched all rows below `high`, the high of the epoch."""
        if self._matched_at is not epoch or len(self._matched) > _CACHED_PREDICATES:
            self._matched_at, self._matched = epoch, set()
        predicate = leg.predicate_id
        if predicate not in self._matched:
            covered = epoch.covering(leg.stream_id).ranges(predicate)
            if size(intersect(0, high, covered)) < high:
                return False
            self._matched.add(predicate)
        return True

    def _keys(self, epoch: Epoch, leg: LegPlan, state: State) -> dict[int, str]:
        """Return the predicate keys of a leg's neighbours; empty ones if a search has found them
        already."""
        cached = self._cache.get((leg.predicate_id, epoch.number))
        if cached is not None:
            # The conditions are cached too, so keys are not needed. Some may be gone.
            return {id_: "" for id_, _ in cached if id_ in state.predicates}
        _, predicates = state.columns
        rows = predicates.latest(leg.stream_id, _CONSIDERED_PREDICATES)
        ids, keys = (rows.column(name).to_pylist() for name in ("predicate_id", "key"))
        # The engine does not match predicates in quarantine, so they offer no candidates.
        excluded = {leg.predicate_id, *epoch.quarantine.predicates}
        return {id_: key for id_, key in zip(ids, keys, strict=True) if id_ not in excluded}

    def used(self, predicate: int) -> ImpliedUse | None:
        """Return the gain of a predicate in this process; None if there was none or it is no longer
        cached."""
        return self._uses.get(predicate)

    def note(self, predicate: int, implied: int, rows: int, looked_at: int) -> None:
        with self._lock:
            where = self._wheres.get(implied)
            use = self._uses.get(predicate)
            if use is None or use.implied != implied:
                use = None if where is None else ImpliedUse(implied, where)
            if use is not None:
                counts = use.rows + rows, use.looked_at + looked_at
                self._uses.put(predicate, ImpliedUse(implied, use.where, *counts))

    def find(self, among: LiveNeighbours, predicate: int, where: Expression) -> Implied:
        """Return a few of the neighbours that a predicate implies."""
        implied = self._cache.get((predicate, among.epoch))
        if implied is None:
            # A search adds to the indexes, which all threads share.
            with self._lock:
                implied, complete = self._try_search(among, where)
            # A search that ran out of time is not cached: the next one indexes further neighbours.
            if complete:
                self._cache.put((predicate, among.epoch), implied)
        return tuple((id_, condition) for id_, condition in implied if id_ in among.keys)

    def _try_search(self, among: LiveNeighbours, where: Expression) -> tuple[Implied, bool]:
        """Search; return nothing if the predicate of another query fails."""
        try:
            return self._search(among, where)
        except MACHINE_ERRORS:
            raise
        except Exception:
            log.exception("a predicate of stream %d can't be compared", among.stream_id)
            # Reported as complete, so that the failure is cached and not logged for every answer.
            return (), True

    def _search(self, among: LiveNeighbours, where: Expression) -> tuple[Implied, bool]:
        """Return what a search finds in time, and whether it has indexed all neighbours."""
        deadline = time.monotonic() + _SEARCH_SECONDS
        index = self._index(among.stream_id)
        complete = True
        for id_, key in among.keys.items():
            if id_ in index or not key:
                continue
            if time.monotonic() > deadline:
                complete = False
                break
            self._wheres[id_] = from_json(json.loads(key))
            index.insert(id_, self._wheres[id_])
        implied: list[tuple[int, Expression]] = []
        # Even if indexing took all the time, half of it is added for the search itself.
        for id_ in index.implied(where, max(deadline - time.monotonic(), _SEARCH_SECONDS / 2)):
            if id_ in among.keys:
                implied.append((id_, self._wheres[id_]))
            if len(implied) == MAX_IMPLIED:
                break
        return tuple(implied), complete

    def _index(self, stream_id: int) -> ImplicationIndex:
        if len(self._wheres) > _MAX_INDEXED_PREDICATES:
            self._indexes.clear()
            self._wheres.clear()
        return self._indexes.setdefault(stream_id, ImplicationIndex())
