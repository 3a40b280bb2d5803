"""The interest in each stream: how far back the windows of each predicate reach.

A predicate has the widest window of its registrations and of servers' requests. It reaches all rows
if a registration is not bounded by time, or if it has users other than registrations, whose reach
is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s, Mask
from datastem.instants import SINCE_EVER
from psoup.store.interest.registered import (
    NO_BEHIND,
    NO_SINCE,
    OWN_CLOCK,
    Clocks,
    Reaches,
    RegisteredReaches,
)
from psoup.store.interest.windows import EVERYTHING, FIXED, Windows, widened
from psoup.store.state.state import State

_COLUMNS = ("behind", "since", "clocks")


@dataclass(frozen=True, slots=True)
class Widest:
    """The widest windows of some predicates: pairs (clock, microseconds behind its NOW), and the
    earliest instant at which a fixed window begins."""

    behind: tuple[tuple[int, int], ...]
    since: int


class StreamInterest:
    """The reaches of a stream's predicates, ascending by id, and their windows."""

    def __init__(self) -> None:
        self.reaches = Reaches.of_all(())
        self.windows = Windows()
        self._widest: dict[tuple[int, int], Widest] = {}

    @property
    def ids(self) -> Int64s:
        return self.reaches.predicates

    def put(self, more: Reaches) -> None:
        """Set the reaches of predicates, which ascend; those of known predicates are replaced."""
        before = _among(self.ids, more.predicates)
        unchanged = self.reaches.take(np.flatnonzero(~before))
        self._count(self.reaches.take(np.flatnonzero(before)), -1)
        self._count(more, 1)
        # If all ids are greater, as those of new predicates are, nothing has to be sorted.
        after = not len(unchanged.predicates) or unchanged.predicates[-1] < more.predicates[0]
        joined = Reaches.of_all([unchanged, more])
        self.reaches = joined if after else joined.take(np.argsort(joined.predicates))
        self._widest.clear()

    def remove(self, ids: Int64s) -> None:
        removed = _among(self.ids, ids)
        self._count(self.reaches.take(np.flatnonzero(removed)), -1)
        self.reaches = self.reaches.take(np.flatnonzero(~removed))
        self._widest.clear()

    def widest(self, lo: int, hi: int) -> Widest:
        """Return the widest windows of the predicates `[lo, hi)`."""
        if (lo, hi) not in self._widest:
            first, last = np.searchsorted(self.ids, [lo, hi])
            reaches = self.reaches.take(np.arange(first, last))
            moving = [
                (int(clock), int(reaches.behind[reaches.clocks == clock].max()))
                for clock in np.unique(reaches.clocks)
            ]
            behind = tuple((clock, far) for clock, far in moving if far != NO_BEHIND)
            self._widest[lo, hi] = Widest(behind, int(reaches.since.min(initial=NO_SINCE)))
        return self._widest[lo, hi]

    def _count(self, reaches: Reaches, sign: int) -> None:
        moving = reaches.behind != NO_BEHIND
        windows = [(reaches.clocks[moving], reaches.behind[moving])]
        # The NOW of FIXED is 0, so a window since an instant reaches minus that instant behind it.
        fixed = reaches.since[reaches.since != NO_SINCE]
        windows.append((np.full(len(fixed), FIXED), -fixed))
        for clocks, behind in windows:
            for clock in np.unique(clocks).tolist():
                different, counts = np.unique(behind[clocks == clock], return_counts=True)
                for far, count in zip(different.tolist(), counts.tolist(), strict=True):
                    (self.windows.add if sign > 0 else self.windows.remove)(clock, far, count)

    def _check(self) -> None:
        assert (np.diff(self.ids) > 0).all()
        self.windows._check()
        fresh = StreamInterest()
        if len(self.ids):
            fresh.put(self.reaches)
        assert fresh.windows._counts == self.windows._counts


class Interests:
    """The interest in every stream of a state, kept up with it by `refresh`.

    Thread safety: none; it reads the state.
    """

    def __init__(self) -> None:
        self._clocks = Clocks()
        self._registered = RegisteredReaches(self._clocks)
        self._streams: dict[int, StreamInterest] = {}
        # All known predicates, ascending by id, and the stream of each.
        self._ids, self._owners = np.empty(0, np.int64), np.empty(0, np.int64)
        self._loaded = False

    # ---- keeping up

    def refresh(self, state: State) -> None:
        """Read what changed in the state since the last call. Only one object may do so for a
        state."""
        changed = state.columns[1].changed()
        if changed is None or not self._loaded:
            self.load(state)
        elif len(changed):
            self.update(state, changed)

    def load(self, state: State) -> None:
        """Read all registrations."""
        self._loaded = True
        self._streams.clear()
        self._ids, self._owners = np.empty(0, np.int64), np.empty(0, np.int64)
        registrations, predicates = state.columns
        every = np.sort(predicates.take(predicates.rows(), ["predicate_id"]).column(0).to_numpy())
        self._put(state, every, registrations.rows())

    def update(self, state: State, ids: Int64s) -> None:
        """Read the registrations of some predicates again; `ids` ascend and include ended ones."""
        registrations, _ = state.columns
        self._put(state, ids, registrations.with_predicates(ids))

    def _put(self, state: State, ids: Int64s, rows: Int64s) -> None:
        _, predicates = state.columns
        live_rows = predicates.rows_of(ids)
        table = predicates.take(
            live_rows[live_rows >= 0], ["predicate_id", "stream_id", "registrations"]
        )
        live, owners, users = (
            table.column(name).to_numpy() for name in ("predicate_id", "stream_id", "registrations")
        )
        order = np.argsort(live)
        live, owners, users = live[order], owners[order], users[order]
        # Ids without a live row are those of predicates that have ended.
        self._remove(np.setdiff1d(ids, live))
        if not len(live):
            return
        self._record_owners(live, owners)
        reaches = self._registered.of(state, rows)
        reaches = self._folded(reaches, live, owners, users)
        for stream in np.unique(owners).tolist():
            places = np.flatnonzero(owners == stream)
            self._streams.setdefault(stream, StreamInterest()).put(reaches.take(places))

    def _record_owners(self, ids: Int64s, owners: Int64s) -> None:
        new = ~_among(ids, self._ids)
        at = np.searchsorted(self._ids, ids[new])
        self._ids = np.insert(self._ids, at, ids[new])
        self._owners = np.insert(self._owners, at, owners[new])

    def _remove(self, ended: Int64s) -> None:
        removed = _among(self._ids, ended)
        for stream in np.unique(self._owners[removed]).tolist():
            self._streams[stream].remove(ended)
        self._ids, self._owners = self._ids[~removed], self._owners[~removed]

    def _folded(self, registered: Reaches, ids: Int64s, owners: Int64s, users: Int64s) -> Reaches:
        """Return the widest reach of each predicate of `ids`; everything if it has more users than
        registrations in `registered`."""
        registered = registered.take(np.argsort(registered.predicates, kind="stable"))
        folded = Reaches.everything(ids)
        first = np.searchsorted(registered.predicates, ids)
        counts = np.searchsorted(registered.predicates, ids, "right") - first
        is_bounded: Mask = (counts > 0) & (counts >= users)
        if not is_bounded.any():
            return folded
        bounded, begins = np.flatnonzero(is_bounded), first[is_bounded]
        # `registered` is sorted by predicate. Predicate n has the places [begins[n], ends[n]);
        # `cuts` holds both alternately, and `_reduced` drops the gaps, which belong to unbounded
        # predicates.
        ends = begins + counts[is_bounded]
        cuts = np.column_stack([begins, ends]).ravel()
        folded.behind[bounded] = _reduced(np.maximum, registered.behind, cuts, NO_BEHIND)
        folded.since[bounded] = _reduced(np.minimum, registered.since, cuts, NO_SINCE)
        folded.clocks[bounded] = registered.clocks[begins]
        differ = _reduced(np.maximum, registered.clocks, cuts, 0)
        differ = differ != _reduced(np.minimum, registered.clocks, cuts, np.iinfo(np.int64).max)
        for place in bounded[differ].tolist():
            several = registered.clocks[first[place] : first[place] + counts[place]].tolist()
            folded.clocks[place] = self._clocks.slowest(several, int(owners[place]))
        return folded

    # ---- looking

    def of_stream(self, stream_id: int) -> StreamInterest:
        return self._streams.get(stream_id) or StreamInterest()

    def begin(self, state: State, stream_id: int, lo: int, hi: int) -> int:
        """Return the least ts that a window of the predicates `[lo, hi)` of a stream can hold at
        NOW or later; SINCE_EVER if rows of any age count."""
        widest = self.of_stream(stream_id).widest(lo, hi)
        requested = self._requested(state, stream_id).items()
        begins = [widest.since, *(since for id_, since in requested if lo <= id_ < hi)]
        for clock, behind in widest.behind:
            now = self._now(state, stream_id, clock)
            if behind == EVERYTHING or now is None:
                return SINCE_EVER
            begins.append(now - behind)
        return min(begins)

    def begins(self, state: State, stream_id: int, lo: int, hi: int) -> tuple[Int64s, Int64s]:
        """Return the ids of the predicates `[lo, hi)` of a stream, and `begin` of each."""
        interest = self.of_stream(stream_id)
        first, last = np.searchsorted(interest.ids, [lo, hi])
        reaches = interest.reaches.take(np.arange(first, last))
        begins = reaches.since.copy()
        for clock in np.unique(reaches.clocks).tolist():
            same_clock = (reaches.clocks == clock) & (reaches.behind != NO_BEHIND)
            now = self._now(state, stream_id, clock)
            whole = (reaches.behind == EVERYTHING) | (now is None)
            # EVERYTHING is replaced before the subtraction, which could overflow.
            moving = SINCE_EVER if now is None else now - np.where(whole, 0, reaches.behind)
            begins[same_clock] = np.minimum(begins, np.where(whole, SINCE_EVER, moving))[same_clock]
        for predicate, since in self._requested(state, stream_id).items():
            place = slice(*np.searchsorted(reaches.predicates, [predicate, predicate + 1]))
            begins[place] = np.minimum(begins[place], since)
        return reaches.predicates, begins

    def can_reach(self, state: State, stream_id: int, high: int) -> bool:
        """Return True if a window of any predicate of a stream can hold rows with a ts up to `high`
        at NOW or later."""
        if any(since <= high for since in self._requested(state, stream_id).values()):
            return True
        windows = self.of_stream(stream_id).windows
        return windows.can_reach(high, lambda clock: self._now(state, stream_id, clock))

    def widened(self, state: State, stream_id: int, since: int | None) -> int | None:
        """Return an instant at or before `since`, rounded as windows are; None if `since` is None
        or the stream has no NOW."""
        now = self._now(state, stream_id, OWN_CLOCK)
        if since is None or now is None:
            return None
        return now - widened(now - since)

    def _requested(self, state: State, stream_id: int) -> dict[int, int]:
        """Return the first ts that servers have requested for live predicates of a stream, by
        predicate."""
        stream = state.streams.get(stream_id)
        requests = {} if stream is None else stream.interest_requests
        return {
            id_: request.since
            for id_, request in requests.items()
            if request.is_live(state.clock) and id_ in state.predicates
        }

    def _now(self, state: State, stream_id: int, clock: int) -> int | None:
        """Return the NOW of a clock, for windows over a stream, minus the unconfirmed jumps; None
        if it has none yet."""
        if clock == FIXED:
            return 0
        streams = [state.streams[id_] for id_ in self._clocks.streams(clock, stream_id)]
        if clock == OWN_CLOCK and streams[0].schema.now_is_clock:
            return state.vouched
        # The slowest stream decides, so there is no NOW before each of them has one.
        reached = [stream.reached for stream in streams if stream.reached is not None]
        return min(reached) - state.jumps.unconfirmed if len(reached) == len(streams) else None


def _reduced(function: np.ufunc, values: Int64s, cuts: Int64s, beyond: int) -> Int64s:
    """Reduce `values[cuts[0]:cuts[1]]`, `values[cuts[2]:cuts[3]]`, and so on."""
    # The last cut may be the length of `values`, which reduceat refuses: append one value.
    reduced: Int64s = function.reduceat(np.append(values, beyond), cuts)[::2]
    return reduced


def _among(ids: Int64s, among: Int64s) -> Mask:
    """Return a mask of the ids that are in `among`; both ascend, and one may be much longer."""
    marks = np.zeros(len(ids), np.bool_)
    # The shorter array is searched for in the longer one.
    if len(among) < len(ids):
        places = np.searchsorted(ids, among)
        inside = places < len(ids)
        places, among = places[inside], among[inside]
        marks[places[ids[places] == among]] = True
    elif len(among):
        places = np.minimum(np.searchsorted(among, ids), len(among) - 1)
        marks = among[places] == ids
    return marks
