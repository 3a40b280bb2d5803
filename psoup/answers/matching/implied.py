"""Predicates that a new one implies: only their matches need be looked at for it.

A predicate that the engine has not matched yet is computed on the spot. Where it implies one that
the engine has matched, no other row can match it, so the rows that one matches are all that is
looked at, as far as the engine has come with it.
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
from psoup.store import Epoch, State
from psoup.store.state.quarantine import MACHINE_ERRORS
from querystem.expressions import TRUE, Expression, from_json
from querystem.implication import ImplicationIndex
from results.id_sets import intersect, size

log = logging.getLogger("psoup.answers")

# So many of a stream's newest predicates are considered, and looked for in so many seconds.
_CONSIDERED = 256
_SECONDS = 0.001
# So many predicates may have been found by a look: the one with fewest matches is taken of these.
MOST_FOUND = 4
# An index that has grown to so many predicates begins anew.
_MOST_INDEXED = 4096
_REMEMBERED = 10_000
Found = tuple[tuple[int, Expression], ...]


@dataclass(frozen=True, slots=True)
class LiveNeighbours:
    """Live predicates of a stream as of an epoch, by id, with their keys."""

    finder: ImpliedFinder
    stream_id: int
    epoch: int
    keys: Mapping[int, str]

    def implied(self, predicate: int, where: Expression) -> Found:
        """A few predicates that `where` implies, by id. In any thread."""
        return self.finder.find(self, predicate, where)

    def note(self, predicate: int, implied: int, rows: int, looked_at: int) -> None:
        self.finder.note(predicate, implied, rows, looked_at)


@dataclass(frozen=True, slots=True)
class ImpliedUse:
    """The gain of a predicate: of `rows` rows `looked_at` were looked at, those that the
    predicate `implied`, which is `where`, matches."""

    implied: int
    where: Expression
    rows: int = 0
    looked_at: int = 0


class ImpliedFinder:
    """Finds predicates that others imply, and remembers what it found. Thread-safe but for
    `prepared`, which is for the thread that changes the state."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: dict[int, ImplicationIndex] = {}
        self._wheres: dict[int, Expression] = {}
        self._found: LruCache[tuple[int, int], Found] = LruCache(_REMEMBERED)
        self._uses: LruCache[int, ImpliedUse] = LruCache(_REMEMBERED)

    def prepared(self, plan: Plan, state: State) -> Plan:
        """The plan, with the neighbours of each predicate that the engine has yet to match."""
        legs = tuple(self._with_neighbours(plan, leg, state) for leg in plan.legs)
        changed = any(one is not other for one, other in zip(legs, plan.legs, strict=True))
        return replace(plan, legs=legs) if changed else plan

    def _with_neighbours(self, plan: Plan, leg: LegPlan, state: State) -> LegPlan:
        mark = plan.epoch.epoch.streams.get(leg.stream_id)
        if mark is None or mark.high < matcher.WORTH_LOOKING or leg.leg.where == TRUE:
            return leg
        covered = plan.epoch.covering(leg.stream_id).ranges(leg.predicate_id)
        if size(intersect(0, mark.high, covered)) >= mark.high:
            return leg
        keys = self._keys(plan.epoch.epoch, leg, state)
        if not keys:
            return leg
        found = LiveNeighbours(self, leg.stream_id, plan.epoch.number, keys)
        return replace(leg, neighbours=found)

    def _keys(self, epoch: Epoch, leg: LegPlan, state: State) -> dict[int, str]:
        known = self._found.get((leg.predicate_id, epoch.number))
        if known is not None:
            return {id_: "" for id_, _ in known if id_ in state.predicates}
        _, predicates = state.columns
        rows = predicates.latest(leg.stream_id, _CONSIDERED)
        ids, keys = (rows.column(name).to_pylist() for name in ("predicate_id", "key"))
        others = {leg.predicate_id, *epoch.quarantine.predicates}
        return {id_: key for id_, key in zip(ids, keys, strict=True) if id_ not in others}

    def used(self, predicate: int) -> ImpliedUse | None:
        """The gain of a predicate in this process, as far as that is remembered."""
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

    def find(self, among: LiveNeighbours, predicate: int, where: Expression) -> Found:
        known = self._found.get((predicate, among.epoch))
        if known is None:
            with self._lock:
                known, complete = self._looked(among, where)
            if complete:
                self._found.put((predicate, among.epoch), known)
        return tuple(one for one in known if one[0] in among.keys)

    def _looked(self, among: LiveNeighbours, where: Expression) -> tuple[Found, bool]:
        """Look, and find nothing if a predicate of another query fails: this one does without."""
        try:
            return self._look(among, where)
        except MACHINE_ERRORS:
            raise
        except Exception:
            log.exception("a predicate of stream %d can't be compared", among.stream_id)
            return (), True

    def _look(self, among: LiveNeighbours, where: Expression) -> tuple[Found, bool]:
        """The finds of the time there is, and whether that was enough for all."""
        until = time.monotonic() + _SECONDS
        index = self._index(among.stream_id)
        complete = True
        for id_, key in among.keys.items():
            if id_ in index or not key:
                continue
            if time.monotonic() > until:
                complete = False
                break
            self._wheres[id_] = from_json(json.loads(key))
            index.insert(id_, self._wheres[id_])
        found: list[tuple[int, Expression]] = []
        for id_ in index.implied(where, max(until - time.monotonic(), _SECONDS / 2)):
            if id_ in among.keys:
                found.append((id_, self._wheres[id_]))
            if len(found) == MOST_FOUND:
                break
        return tuple(found), complete

    def _index(self, stream_id: int) -> ImplicationIndex:
        if len(self._wheres) > _MOST_INDEXED:
            self._indexes.clear()
            self._wheres.clear()
        return self._indexes.setdefault(stream_id, ImplicationIndex())
