"""Interest compared with a naive twin that goes through every registration's legs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastem.instants import DAY, HOUR, MIN_INSTANT, MINUTE, SECOND, SINCE_EVER
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TIMESTAMP
from psoup.lookup import TenantStreams
from psoup.store import Data, Entry, Event, Interest, Position, State, StreamCreated, Unregister
from psoup.store.interest import Interests
from psoup.store.interest.windows import widened
from psoup.write.draft import CommitDraft, Moment, RecentBatches
from psoup.write.registrations import Prepared, RegisterAll, composition_of
from querystem.composites import ComposedStream
from querystem.language import bind_query

BEGIN = 1_800_000_000 * SECOND
FIXED = 1_700_000_000 * SECOND
ALL = None
A, B = Column("a", BIGINT), Column("at", TIMESTAMP)
STREAMS = (
    StreamSchema("plain", (A,)),
    StreamSchema("early", (A, B), ordered_by="at"),
    StreamSchema("late", (A, B), ordered_by="at"),
    StreamSchema("keyed", (A, B), key=("a",)),
)
# Ids of streams are random and need 63 bits, so these do, too.
IDS = {schema.name: (1 << 62) + 0x1234_5678_9ABC * n for n, schema in enumerate(STREAMS, 1)}


@dataclass(frozen=True)
class Case:
    """A text, and for each leg its stream, how far behind NOW it reaches (or the instant, or ALL),
    and the streams whose least ts is that NOW; without streams it is the clock."""

    sql: str
    legs: tuple[tuple[str, int | None, tuple[str, ...]], ...]


def single_leg(stream: str, window: str, behind: int | None) -> Case:
    clock = () if stream == "plain" else (stream,)
    return Case(f"SELECT a FROM {stream} WHERE a > 1 {window}", ((stream, behind, clock),))


BOTH = ("early", "late")
CASES = [
    single_leg("plain", "RANGE 10 MINUTES", 10 * MINUTE),
    single_leg("plain", "RANGE 1 DAY", DAY),
    single_leg("plain", "", ALL),
    single_leg("plain", "ROWS 5", ALL),
    single_leg("plain", "BEGIN ROW 3 END ROW LAST", ALL),
    single_leg("early", "RANGE 10 MINUTES SLIDE 5 MINUTES", 15 * MINUTE),
    single_leg("early", "BEGIN NOW - 2 HOURS END NOW - 1 HOUR", 2 * HOUR),
    single_leg("early", "BEGIN TIMESTAMP '2023-11-14 22:13:20' END NOW", -FIXED),
    single_leg("early", "RANGE 10 MINUTES REFRESH EVERY 1 HOUR", HOUR + 10 * MINUTE),
    single_leg("late", "RANGE 3 HOURS", 3 * HOUR),
    single_leg("keyed", "RANGE 10 MINUTES", ALL),
    Case(
        "SELECT a FROM early WHERE a > 1 RANGE 10 MINUTES REFRESH ON late WHERE a > 1",
        (("early", ALL, ()), ("late", ALL, ())),
    ),
    Case(
        "SELECT a FROM early WHERE a > 1 RANGE 1 HOUR UNION ALL "
        "SELECT a FROM late WHERE a > 1 RANGE 2 HOURS",
        (("early", HOUR, BOTH), ("late", 2 * HOUR, BOTH)),
    ),
    Case(
        "SELECT a FROM early WHERE a > 1 AND a IN (SELECT a FROM late WHERE a > 1 RANGE 1 DAY) "
        "RANGE 1 HOUR",
        (("early", HOUR, BOTH), ("late", DAY, BOTH)),
    ),
    Case(
        "SELECT e.a FROM early e, late l WHERE e.a = l.a AND e.a > 1 AND l.a > 1 RANGE 1 HOUR",
        (("early", ALL, ()), ("late", ALL, ())),
    ),
]


@dataclass
class World:
    """A state at the end of a log, and the registered texts by handle."""

    state: State = field(default_factory=State)
    registered: dict[bytes, Case] = field(default_factory=dict)
    version: int = 0
    stamp: int = BEGIN

    def __post_init__(self) -> None:
        for schema in STREAMS:
            self.append(StreamCreated(IDS[schema.name], schema))

    def append(self, event: Event) -> None:
        self.version += 1
        entry = Entry(Position(self.version, 0), self.stamp, "main", "main", event)
        self.state.apply(entry)

    def register(self, case: Case, handle: bytes | None = None) -> None:
        """Register a text as a server does; with `handle`, replace the text of that
        registration."""
        streams = TenantStreams(self.state, "main")
        query = bind_query(case.sql, streams.lookup, {}, names=streams.names)
        legs = [self.state.streams[IDS[leg.stream]] for leg in query.legs]
        composed = [ComposedStream(stream.id, stream.schema) for stream in legs]
        key = str(self.version)
        if handle is not None:
            key = self.state.registrations[handle].client_key
        ready = Prepared(key, "{}", query, composition_of(query, composed))
        self.version += 1
        moment = Moment(self.stamp, "here", self.stamp)
        draft = CommitDraft(self.state.draft(), self.version, moment, RecentBatches())
        all_ = RegisterAll(
            "main", "main", streams.ids, case.sql, DAY, [ready], replace=handle is not None
        )
        (registered_handle,) = all_.propose(draft).handles
        for entry in draft.entries:
            self.state.apply(entry)
        self.registered[registered_handle] = case

    def unregister(self, handle: bytes) -> None:
        self.append(Unregister(handle))
        del self.registered[handle]

    def reach(self, name: str, ts: int) -> None:
        stream = self.state.streams[IDS[name]]
        row = Data(stream.id, "", 0, 1, stream.high, ts, ts, stream.reached, ts, b"", b"", None)
        self.append(row)

    # ---- the naive twin

    def legs(self) -> Iterator[tuple[int, int | None]]:
        """Yield the predicate and the exact begin of every leg and trigger; None: all rows."""
        for handle, case in self.registered.items():
            registration = self.state.registrations[handle]
            pairs = [
                (leg.stream_id, leg.predicate_id)
                for leg in (*registration.legs, *registration.triggers)
            ]
            for (stream, predicate), (name, behind, clock) in zip(pairs, case.legs, strict=True):
                assert stream == IDS[name]
                yield predicate, self.begin(behind, clock)
            if registration.composite is not None:
                yield registration.composite.predicate_id, None

    def begin(self, behind: int | None, clock: tuple[str, ...]) -> int | None:
        if behind is None:
            return None
        if behind < 0:
            return -behind
        if not clock:
            return self.state.clock - behind
        nows = [self.state.streams[IDS[name]].reached for name in clock]
        return None if None in nows else min(filter(None, nows)) - behind

    def expected(self) -> dict[int, int]:
        begins: dict[int, int] = {}
        for predicate, begin in self.legs():
            least = SINCE_EVER if begin is None else begin
            begins[predicate] = min(begins.get(predicate, least), least)
        return begins


def check(world: World, interests: Interests) -> None:
    expected = world.expected()
    for stream_id in (*world.state.streams, *world.state.composites):
        interests.of_stream(stream_id)._check()
        if stream_id not in world.state.streams:
            continue
        ids, begins = interests.begins(world.state, stream_id, 0, 1 << 62)
        for predicate, begin in zip(ids.tolist(), begins.tolist(), strict=True):
            exact = expected[predicate]
            slack = 0 if exact == SINCE_EVER else 2 * HOUR + (world.stamp - exact) // 8
            assert begin <= exact <= begin + slack, (predicate, begin, exact)
            whole = interests.begin(world.state, stream_id, predicate, predicate + 1)
            assert whole == begin
        if len(ids):
            first = interests.begin(world.state, stream_id, 0, 1 << 62)
            assert first == begins.min()
            for low in (FIXED - 2 * DAY, int(first) - 1, int(first), BEGIN):
                low = max(low, MIN_INSTANT)
                reached = interests.can_reach(world.state, stream_id, low)
                assert reached is (low >= first)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.integers(0, len(CASES) - 1)),
        st.tuples(st.just("unregister"), st.integers(0, 9)),
        st.tuples(st.just("replace"), st.integers(0, 9)),
        st.tuples(st.just("early"), st.integers(0, 20)),
        st.tuples(st.just("late"), st.integers(0, 20)),
        st.tuples(st.just("pass"), st.integers(0, 100)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(actions)
def test_every_predicate_reaches_as_far_as_its_widest_window(
    steps: list[tuple[str, int]],
) -> None:
    world, interests = World(), Interests()
    for action, number in steps:
        before = world.state.next_predicate_id
        handles = list(world.registered)
        match action:
            case "register":
                world.register(CASES[number])
            case "unregister" if handles:
                world.unregister(handles[number % len(handles)])
            case "replace" if handles:
                handle = handles[number % len(handles)]
                world.register(CASES[(number + before) % len(CASES)], handle)
            case "early" | "late":
                world.reach(action, BEGIN + number * MINUTE)
            case _:
                world.stamp += number * MINUTE
        interests.refresh(world.state)
        check(world, interests)
    fresh = Interests()
    fresh.load(world.state)
    check(world, fresh)


@pytest.mark.parametrize("behind", [0, 1, 31, 32, 33, 600 * SECOND, DAY + 1, 30 * DAY])
def test_a_window_is_widened_by_a_sixteenth_at_most(behind: int) -> None:
    assert behind <= widened(behind) <= behind + behind // 16 + 1


def test_a_request_counts_for_a_day_and_only_as_far_back_as_it_says() -> None:
    world, interests = World(), Interests()
    world.register(CASES[0])
    (predicate,) = world.state.predicates
    since = BEGIN - 7 * DAY
    world.append(Interest(IDS["plain"], predicate, since))
    interests.refresh(world.state)
    assert interests.begin(world.state, IDS["plain"], predicate, predicate + 1) == since
    assert interests.can_reach(world.state, IDS["plain"], since)
    assert not interests.can_reach(world.state, IDS["plain"], since - 1)
    assert interests.begins(world.state, IDS["plain"], 0, 99)[1].tolist() == [since]
    world.append(Interest(IDS["plain"], predicate, None))
    assert interests.begin(world.state, IDS["plain"], predicate, predicate + 1) == SINCE_EVER
    world.stamp += DAY
    world.register(CASES[9])
    interests.refresh(world.state)
    assert interests.begin(world.state, IDS["plain"], predicate, predicate + 1) > SINCE_EVER
    world.append(Interest(IDS["plain"], predicate, since))
    world.append(Unregister(next(iter(world.registered))))
    interests.refresh(world.state)
    begin = interests.begin(world.state, IDS["plain"], predicate, predicate + 1)
    assert begin > world.stamp, "it has ended"
    assert not interests.can_reach(world.state, IDS["plain"], since)
    world.register(CASES[0])
    interests.refresh(world.state)
    ids, begins = interests.begins(world.state, IDS["plain"], 0, 99)
    assert np.all(begins >= world.stamp - 11 * MINUTE) and len(ids) == 1


def test_a_predicate_with_users_that_are_not_registrations_reaches_everything() -> None:
    world, interests = World(), Interests()
    world.register(CASES[0])
    (predicate,) = world.state.predicates
    interests.refresh(world.state)
    world.state.predicates.count_one(predicate, 1)
    interests.refresh(world.state)
    assert interests.begin(world.state, IDS["plain"], 0, 99) == SINCE_EVER
