"""Registrations of several legs against a model of lists: ids, counts, drafts and tables."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN
from psoup.store import (
    Composite,
    Entry,
    Event,
    Expire,
    LegPredicate,
    Position,
    Register,
    RegisteredLeg,
    Renew,
    State,
    Store,
    StreamCreated,
    StreamEnded,
    Touched,
    Unregister,
)
from psoup.store.log.event_table import from_table, to_table
from psoup.write.draft import CommitDraft, Moment, RecentBatches, Stale
from psoup.write.registrations import Prepared, RegisterAll
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op
from querystem.legs import Leg
from querystem.query import Output, Query
from querystem.query_json import read_form
from querystem.refresh import RefreshOn
from querystem.sources import From
from results.window import UNBOUNDED
from tests.support.tables import epoch_of, write_changes

NAMES = ("one", "two", "three")
IDS = {name: number for number, name in enumerate(NAMES, 1)}


class Part(NamedTuple):
    """A stream, and the number its rows must have."""

    stream: str
    number: int

    @property
    def where(self) -> Expression:
        column, number = ColumnRef("a", BIGINT), Literal(self.number, BIGINT)
        return Call(Op.EQ, (column, number), BOOLEAN)

    @property
    def leg(self) -> Leg:
        return Leg(self.stream, self.where, UNBOUNDED)

    @property
    def key(self) -> tuple[int, str]:
        return IDS[self.stream], self.leg.predicate_key


class QuerySpec(NamedTuple):
    """A query by its legs and its REFRESH triggers."""

    parts: tuple[Part, ...]
    triggers: tuple[Part, ...]

    @property
    def query(self) -> Query:
        """The first of the triggers refreshes the first leg, and so on; one more the whole."""
        refreshes = [RefreshOn(part.stream, part.where) for part in self.triggers]
        pairs = itertools.zip_longest(self.parts, refreshes[: len(self.parts)])
        items = tuple(replace(part.leg, refresh=refresh) for part, refresh in pairs)
        refresh = refreshes[-1] if len(refreshes) > len(self.parts) else None
        source = items[0] if len(items) == 1 else From(items)
        name = "a" if len(items) == 1 else "0.a"
        return Query(source, (Output("a", ColumnRef(name, BIGINT)),), refresh=refresh)

    @property
    def keys(self) -> list[tuple[int, str]]:
        """What is matched: once for each leg, and each trigger that equals no leg."""
        keys = [part.key for part in self.parts]
        triggers = dict.fromkeys(
            (IDS[trigger.stream], trigger.predicate_key) for trigger in self.query.triggers
        )
        return [*keys, *(key for key in triggers if key not in keys)]


PARTS = st.builds(Part, st.sampled_from(NAMES), st.integers(0, 2))
SPECS = st.builds(
    QuerySpec,
    st.lists(PARTS, min_size=1, max_size=4).map(tuple),
    st.lists(PARTS, max_size=3).map(tuple),
)


class Replaced(NamedTuple):
    """A registration gets another query."""

    chosen: int
    spec: QuerySpec


Step = QuerySpec | Replaced | tuple[str, int]
STEPS = st.lists(
    st.one_of(
        SPECS,
        st.builds(Replaced, st.integers(0), SPECS),
        st.tuples(st.sampled_from(["unregister", "expire", "renew"]), st.integers(0)),
    ),
    max_size=15,
)


def register_all(*specs: QuerySpec) -> RegisterAll:
    ready = [Prepared("", "{}", spec.query) for spec in specs]
    return RegisterAll("main", "main", IDS, "a text", 60, ready)


def under_key(key: str, text: str, spec: QuerySpec) -> RegisterAll:
    ready = [Prepared(key, "{}", spec.query)]
    return RegisterAll("main", "main", IDS, text, 60, ready, replace=True)


class World:
    """A state that entries are applied to, commit by commit, and the model of it."""

    def __init__(self) -> None:
        self.state = State()
        self.live: dict[bytes, QuerySpec] = {}
        self.touched = Touched()
        self.version = 0
        self.commit(*[StreamCreated(IDS[name], schema(name)) for name in NAMES])

    def draft(self) -> CommitDraft:
        moment = Moment(self.version + 1, "here", self.version + 1)
        return CommitDraft(self.state.draft(), self.version + 1, moment, RecentBatches())

    def commit(self, *events: Event) -> None:
        draft = self.draft()
        for event in events:
            draft.append("main", "main", event)
        self.apply(draft)

    def apply(self, draft: CommitDraft) -> None:
        """Apply a draft's entries as the log gives them back."""
        self.version += 1
        entries = from_table(self.version, to_table(draft.entries))
        assert entries == draft.entries
        for entry in entries:
            self.state.apply(entry, self.touched)
        for name in ("streams", "registrations", "predicates"):
            assert dict(getattr(draft.state, name)) == dict(getattr(self.state, name))
        assert draft.state.next_predicate_id == self.state.next_predicate_id

    def take(self, step: Step) -> None:
        if isinstance(step, QuerySpec):
            draft = self.draft()
            registered = under_key(f"key {self.version}", "a text", step).propose(draft)
            self.apply(draft)
            (handle,) = registered.handles
            self.live[handle] = step
        elif isinstance(step, Replaced):
            self.replace(step)
        elif self.live:
            name, chosen = step
            handle = sorted(self.live)[chosen % len(self.live)]
            if name == "renew":
                self.commit(Renew(handle))
            else:
                self.commit(Unregister(handle) if name == "unregister" else Expire(handle))
                del self.live[handle]

    def replace(self, step: Replaced) -> None:
        if not self.live:
            return
        handle = sorted(self.live)[step.chosen % len(self.live)]
        before, draft = self.state.registrations[handle], self.draft()
        text = f"text {self.version}"
        registered = under_key(before.client_key, text, step.spec).propose(draft)
        self.apply(draft)
        after, at = self.state.registrations[handle], Position(self.version, 0)
        assert (registered.handles, registered.created, registered.replaced) == ([handle], 0, 1)
        assert (after.position, after.since) == (at, self.version) and registered.position == at
        unchanged = ("handle", "client_key", "lease", "stamp")
        assert all(getattr(before, name) == getattr(after, name) for name in unchanged)
        self.live[handle] = step.spec

    def check(self, state: State) -> None:
        shared = Counter(key for spec in self.live.values() for key in spec.keys)
        assert {(p.stream_id, p.key): p.registrations for p in state.predicates.values()} == shared
        read = Counter(id_ for spec in self.live.values() for id_ in {p.key[0] for p in spec.parts})
        assert {stream.id: stream.registrations for stream in state.streams.values()} == {
            id_: read[id_] for id_ in IDS.values()
        }
        assert set(state.registrations) == set(self.live)
        for handle, spec in self.live.items():
            registration = state.registrations[handle]
            predicates = [state.predicates[leg.predicate_id] for leg in registration.legs]
            assert [(p.stream_id, p.key) for p in predicates] == [part.key for part in spec.parts]
            assert [leg.stream_id for leg in registration.legs] == [p.stream_id for p in predicates]
            assert read_form(registration.query, [p.key for p in predicates]) == spec.query
            triggers = [state.predicates[leg.predicate_id] for leg in registration.triggers]
            written = [(IDS[on.stream], on.predicate_key) for on in spec.query.triggers]
            assert [(p.stream_id, p.key) for p in triggers] == written


def schema(name: str) -> StreamSchema:
    return StreamSchema(name, (Column("a", BIGINT),))


@given(STEPS)
def test_the_fold_counts_every_leg(steps: list[Step]) -> None:
    world = World()
    for step in steps:
        world.take(step)
        world.check(world.state)
    for columns in world.state.columns:
        columns._check()


@given(st.lists(SPECS, min_size=1, max_size=5), STEPS)
def test_registrations_of_one_commit_see_each_other(specs: list[QuerySpec], steps) -> None:
    world = World()
    for step in steps:
        world.take(step)
    draft = world.draft()
    registered = register_all(*specs).propose(draft)
    world.apply(draft)
    world.live |= dict(zip(registered.handles, specs, strict=True))
    world.check(world.state)


def test_new_predicates_get_their_ids_in_the_order_of_the_legs() -> None:
    world = World()
    world.take(QuerySpec((Part("two", 0),), ()))
    parts = Part("one", 0), Part("two", 0), Part("one", 0), Part("three", 1)
    world.take(QuerySpec(parts, (Part("one", 2),)))
    registration = list(world.state.registrations.values())[-1]
    assert [leg.predicate_id for leg in registration.legs] == [2, 1, 2, 3]
    assert registration.triggers == (RegisteredLeg(1, 4),)
    assert (registration.stream_id, registration.predicate_id) == (1, 2)
    assert world.state.next_predicate_id == 5
    counts = {
        predicate.id: predicate.registrations for predicate in world.state.predicates.values()
    }
    assert counts == {1: 2, 2: 2, 3: 1, 4: 1}


def test_a_predicate_that_both_queries_have_keeps_its_id() -> None:
    world = World()
    world.take(QuerySpec((Part("one", 0), Part("two", 0)), ()))
    world.take(Replaced(0, QuerySpec((Part("three", 0), Part("one", 0)), (Part("two", 1),))))
    (registration,) = world.state.registrations.values()
    assert [leg.predicate_id for leg in registration.legs] == [3, 1]
    assert registration.triggers == (RegisteredLeg(2, 4),)
    assert sorted(world.state.predicates) == [1, 3, 4]


def test_the_query_that_is_there_replaces_nothing() -> None:
    world = World()
    spec = QuerySpec((Part("one", 0),), ())
    world.take(spec)
    draft = world.draft()
    registered = under_key("key 1", "a text", spec).propose(draft)
    assert (registered.created, registered.replaced, registered.position) == (
        0,
        0,
        Position(2, 0),
    ) and draft.empty


def test_a_stream_that_was_created_again_is_bound_again() -> None:
    world = World()
    spec = QuerySpec((Part("one", 0),), ())
    world.take(spec)
    world.commit(StreamEnded(1))
    world.commit(StreamCreated(4, schema("one")))
    draft = world.draft()
    again = replace(under_key("key 1", "a text", spec), streams=IDS | {"one": 4})
    assert again.propose(draft).replaced == 1
    (registration,) = draft.state.registrations.values()
    assert registration.stream_id == 4


@pytest.mark.parametrize("dropped", NAMES)
def test_the_stream_of_no_leg_may_have_gone(dropped: str) -> None:
    world = World()
    world.commit(StreamEnded(IDS[dropped]))
    draft = world.draft()
    with pytest.raises(Stale):
        register_all(QuerySpec(tuple(Part(name, 0) for name in NAMES), ())).propose(draft)
    assert draft.empty


@pytest.mark.parametrize("every", [1, 2, 7])
@settings(max_examples=10)
@given(st.data())
def test_the_tables_give_the_legs_back(tmp_path_factory, every: int, data: st.DataObject) -> None:
    store = Store.open(tmp_path_factory.mktemp("store"), create=True, sync=False)
    world, versions = World(), dict[str, int]()
    for number, step in enumerate(data.draw(STEPS)):
        world.take(step)
        if number % every == 0:
            write_changes(store, world.state, world.touched, versions)
            world.touched = Touched()
    write_changes(store, world.state, world.touched, versions)
    store.epochs.append(1, epoch_of(world.state, versions))
    loaded = store.state(store.epochs.latest()[1])
    world.check(loaded)
    assert loaded.registrations == world.state.registrations
    assert loaded.predicates == world.state.predicates


def test_a_register_event_has_room_for_a_composite(tmp_path: Path) -> None:
    legs = tuple(LegPredicate(number, 10 + number, f"key {number}") for number in (2, 1))
    composite = Composite(4, (1, 2), '[["0.a","1.a"]]', 3_600_000_000, 13, "over both")
    event = Register(bytes(16), "", legs, "text", "{}", "form", 60, (), composite)
    store = Store.open(tmp_path / "store", create=True, sync=False)
    entry = Entry(Position(1, 0), 5, "main", "me", event)
    store.log.append(1, [entry])
    assert store.log.read(1)[:-1] == [entry]
    assert store.log.read(1, payloads=False)[:-1] == [entry]
