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
from querystem.query import From, Leg, Output, Query
from querystem.query_json import read_form
from querystem.refresh import RefreshOn
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


class Asked(NamedTuple):
    parts: tuple[Part, ...]
    triggers: tuple[Part, ...]

    @property
    def query(self) -> Query:
        """The first of the triggers refreshes the first leg, and so on; one more the whole."""
        refreshes = [RefreshOn(part.stream, part.where) for part in self.triggers]
        each = itertools.zip_longest(self.parts, refreshes[: len(self.parts)])
        items = tuple(replace(part.leg, refresh=refresh) for part, refresh in each)
        refresh = refreshes[-1] if len(refreshes) > len(self.parts) else None
        source = items[0] if len(items) == 1 else From(items)
        name = "a" if len(items) == 1 else "0.a"
        return Query(source, (Output("a", ColumnRef(name, BIGINT)),), refresh=refresh)

    @property
    def keys(self) -> list[tuple[int, str]]:
        """What is matched: once for each leg, and each trigger where no leg is the same."""
        keys = [part.key for part in self.parts]
        triggers = dict.fromkeys(
            (IDS[one.stream], one.predicate_key) for one in self.query.triggers
        )
        return [*keys, *(key for key in triggers if key not in keys)]


PARTS = st.builds(Part, st.sampled_from(NAMES), st.integers(0, 2))
ASKED = st.builds(
    Asked,
    st.lists(PARTS, min_size=1, max_size=4).map(tuple),
    st.lists(PARTS, max_size=3).map(tuple),
)


class Replaced(NamedTuple):
    """Some registration gets another query."""

    chosen: int
    asked: Asked


Step = Asked | Replaced | tuple[str, int]
STEPS = st.lists(
    st.one_of(
        ASKED,
        st.builds(Replaced, st.integers(0), ASKED),
        st.tuples(st.sampled_from(["unregister", "expire", "renew"]), st.integers(0)),
    ),
    max_size=15,
)


def register_all(*asked: Asked) -> RegisterAll:
    ready = [Prepared("", "{}", one.query) for one in asked]
    return RegisterAll("main", "main", IDS, "a text", 60, ready)


def under_key(key: str, text: str, asked: Asked) -> RegisterAll:
    ready = [Prepared(key, "{}", asked.query)]
    return RegisterAll("main", "main", IDS, text, 60, ready, replace=True)


class World:
    """A state that entries are applied to, commit by commit, and the model of it."""

    def __init__(self) -> None:
        self.state = State()
        self.live: dict[bytes, Asked] = {}
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
        """Applies a draft's entries as the log gives them back."""
        self.version += 1
        entries = from_table(self.version, to_table(draft.entries))
        assert entries == draft.entries
        for entry in entries:
            self.state.apply(entry, self.touched)
        for name in ("streams", "registrations", "predicates"):
            assert dict(getattr(draft.state, name)) == dict(getattr(self.state, name))
        assert draft.state.next_predicate_id == self.state.next_predicate_id

    def take(self, step: Step) -> None:
        if isinstance(step, Asked):
            draft = self.draft()
            made = under_key(f"key {self.version}", "a text", step).propose(draft)
            self.apply(draft)
            (handle,) = made.handles
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
        made = under_key(before.client_key, text, step.asked).propose(draft)
        self.apply(draft)
        after, at = self.state.registrations[handle], Position(self.version, 0)
        assert (made.handles, made.created, made.replaced) == ([handle], 0, 1)
        assert (after.position, after.since) == (at, self.version) and made.position == at
        kept = ("handle", "client_key", "lease", "stamp")
        assert all(getattr(before, name) == getattr(after, name) for name in kept)
        self.live[handle] = step.asked

    def check(self, state: State) -> None:
        shared = Counter(key for asked in self.live.values() for key in asked.keys)
        assert {(p.stream_id, p.key): p.registrations for p in state.predicates.values()} == shared
        read = Counter(id_ for one in self.live.values() for id_ in {p.key[0] for p in one.parts})
        assert {one.id: one.registrations for one in state.streams.values()} == {
            id_: read[id_] for id_ in IDS.values()
        }
        assert set(state.registrations) == set(self.live)
        for handle, asked in self.live.items():
            found = state.registrations[handle]
            predicates = [state.predicates[leg.predicate_id] for leg in found.legs]
            assert [(one.stream_id, one.key) for one in predicates] == [p.key for p in asked.parts]
            assert [leg.stream_id for leg in found.legs] == [one.stream_id for one in predicates]
            assert read_form(found.query, [one.key for one in predicates]) == asked.query
            triggers = [state.predicates[one.predicate_id] for one in found.triggers]
            written = [(IDS[one.stream], one.predicate_key) for one in asked.query.triggers]
            assert [(one.stream_id, one.key) for one in triggers] == written


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


@given(st.lists(ASKED, min_size=1, max_size=5), STEPS)
def test_registrations_of_one_commit_see_each_other(asked: list[Asked], steps) -> None:
    world = World()
    for step in steps:
        world.take(step)
    draft = world.draft()
    made = register_all(*asked).propose(draft)
    world.apply(draft)
    world.live |= dict(zip(made.handles, asked, strict=True))
    world.check(world.state)


def test_new_predicates_get_their_ids_in_the_order_of_the_legs() -> None:
    world = World()
    world.take(Asked((Part("two", 0),), ()))
    parts = Part("one", 0), Part("two", 0), Part("one", 0), Part("three", 1)
    world.take(Asked(parts, (Part("one", 2),)))
    found = list(world.state.registrations.values())[-1]
    assert [leg.predicate_id for leg in found.legs] == [2, 1, 2, 3]
    assert found.triggers == (RegisteredLeg(1, 4),)
    assert (found.stream_id, found.predicate_id) == (1, 2)
    assert world.state.next_predicate_id == 5
    counts = {one.id: one.registrations for one in world.state.predicates.values()}
    assert counts == {1: 2, 2: 2, 3: 1, 4: 1}


def test_a_predicate_that_both_queries_have_keeps_its_id() -> None:
    world = World()
    world.take(Asked((Part("one", 0), Part("two", 0)), ()))
    world.take(Replaced(0, Asked((Part("three", 0), Part("one", 0)), (Part("two", 1),))))
    (found,) = world.state.registrations.values()
    assert [leg.predicate_id for leg in found.legs] == [3, 1]
    assert found.triggers == (RegisteredLeg(2, 4),)
    assert sorted(world.state.predicates) == [1, 3, 4]


def test_the_query_that_is_there_replaces_nothing() -> None:
    world = World()
    asked = Asked((Part("one", 0),), ())
    world.take(asked)
    draft = world.draft()
    made = under_key("key 1", "a text", asked).propose(draft)
    assert (made.created, made.replaced, made.position) == (0, 0, Position(2, 0)) and draft.empty


def test_a_stream_that_was_made_anew_is_bound_again() -> None:
    world = World()
    asked = Asked((Part("one", 0),), ())
    world.take(asked)
    world.commit(StreamEnded(1))
    world.commit(StreamCreated(4, schema("one")))
    draft = world.draft()
    again = replace(under_key("key 1", "a text", asked), streams=IDS | {"one": 4})
    assert again.propose(draft).replaced == 1
    (found,) = draft.state.registrations.values()
    assert found.stream_id == 4


@pytest.mark.parametrize("dropped", NAMES)
def test_the_stream_of_no_leg_may_have_gone(dropped: str) -> None:
    world = World()
    world.commit(StreamEnded(IDS[dropped]))
    draft = world.draft()
    with pytest.raises(Stale):
        register_all(Asked(tuple(Part(name, 0) for name in NAMES), ())).propose(draft)
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
