"""Composites against a model: which queries share one, drafts and replays, tables, and their
end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastem.instants import DAY, MINUTE
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN
from psoup.store import (
    CompositeMark,
    Event,
    Expire,
    Position,
    State,
    Store,
    StreamCreated,
    StreamEnded,
    Touched,
    Unregister,
)
from psoup.store.log.event_table import from_table, to_table
from psoup.write.draft import CommitDraft, Moment, Proposal, RecentBatches
from psoup.write.registrations import Prepared, RegisterAll, composition_of
from querystem.composites import ComposedStream, Composition
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op
from querystem.legs import Leg
from querystem.query import Output, Query
from querystem.sources import From, item_column
from results.window import Bound, TimeWindow
from tests.support.tables import epoch_of, write_changes

pytestmark = pytest.mark.usefixtures("counted_ids")

NAMES = ("one", "two", "three")
IDS = {name: number for number, name in enumerate(NAMES, 1)}
SCHEMAS = {name: StreamSchema(name, (Column("a", BIGINT), Column("b", BIGINT))) for name in NAMES}


class Part(NamedTuple):
    """A leg: its stream, and the number that `b` of its rows must be."""

    stream: str
    number: int

    def leg(self, reach: int) -> Leg:
        where = _equal(ColumnRef("b", BIGINT), Literal(self.number, BIGINT))
        return Leg(self.stream, where, TimeWindow(Bound(1 - reach, True)))


class QuerySpec(NamedTuple):
    """A join of neighbours by equal `a`."""

    parts: tuple[Part, ...]
    reach: int

    @property
    def query(self) -> Query:
        legs = tuple(part.leg(self.reach) for part in self.parts)
        if len(legs) == 1:
            return Query(legs[0], (Output("a", ColumnRef("a", BIGINT)),))
        sides = [ColumnRef(item_column(n, "a"), BIGINT) for n in range(len(legs))]
        on = [_equal(*pair) for pair in zip(sides, sides[1:], strict=False)]
        source = From(legs, on[0] if len(on) == 1 else Call(Op.AND, tuple(on), BOOLEAN))
        return Query(source, (Output("a", sides[0]),))

    @property
    def composition(self) -> Composition | None:
        streams = [ComposedStream(IDS[part.stream], SCHEMAS[part.stream]) for part in self.parts]
        return composition_of(self.query, streams)

    @property
    def identity(self) -> Any:
        composition = self.composition
        assert composition is not None
        return composition.shape.legs, composition.shape.factors_key, composition.shape.span


def _equal(left: Expression, right: Expression) -> Expression:
    return Call(Op.EQ, (left, right), BOOLEAN)


PARTS = st.builds(Part, st.sampled_from(NAMES), st.integers(0, 1))
SPECS = st.builds(
    QuerySpec,
    st.lists(PARTS, min_size=1, max_size=3).map(tuple),
    st.sampled_from([MINUTE, MINUTE, 5 * DAY]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.lists(SPECS, min_size=1, max_size=3)),
        st.tuples(st.just("replace"), SPECS),
        st.tuples(st.sampled_from(["unregister", "expire"]), st.integers(0)),
        st.tuples(st.just("drop"), st.sampled_from(NAMES)),
    ),
    max_size=12,
)


class World:
    """A state that commits are applied to, and the registrations that it should have."""

    def __init__(self) -> None:
        self.state, self.touched, self.version = State(), Touched(), 0
        self.live: dict[bytes, QuerySpec] = {}
        self.dropped: set[str] = set()
        self.commit(*[StreamCreated(IDS[name], SCHEMAS[name]) for name in NAMES])

    # ---- commits

    def draft(self) -> CommitDraft:
        moment = Moment(self.version + 1, "here", self.version + 1)
        return CommitDraft(self.state.draft(), self.version + 1, moment, RecentBatches())

    def commit(self, *events: Event) -> None:
        draft = self.draft()
        for event in events:
            draft.append("main", "main", event)
        self.apply(draft)

    def propose(self, proposal: Proposal[Any]) -> Any:
        draft = self.draft()
        outcome = proposal.propose(draft)
        self.apply(draft)
        return outcome

    def apply(self, draft: CommitDraft) -> None:
        """Apply a draft's entries as the log gives them back; both states are the same then."""
        self.version += 1
        entries = from_table(self.version, to_table(draft.entries))
        assert entries == draft.entries
        for entry in entries:
            self.state.apply(entry, self.touched)
        for name in ("streams", "registrations", "predicates", "composites"):
            assert dict(getattr(draft.state, name)) == dict(getattr(self.state, name))
        assert draft.state.next_predicate_id == self.state.next_predicate_id

    # ---- steps

    def take(self, step: tuple[str, Any]) -> None:
        name, argument = step
        if name == "register":
            self.register([spec for spec in argument if self.fits(spec)])
        elif name == "replace" and self.fits(argument):
            self.replace(argument)
        elif name == "drop" and argument not in self.dropped:
            self.dropped.add(argument)
            self.commit(StreamEnded(IDS[argument]))
        elif name in ("unregister", "expire") and self.live:
            handle = sorted(self.live)[argument % len(self.live)]
            self.commit(Unregister(handle) if name == "unregister" else Expire(handle))
            del self.live[handle]

    def fits(self, spec: QuerySpec) -> bool:
        return self.dropped.isdisjoint(part.stream for part in spec.parts)

    def register(self, specs: list[QuerySpec]) -> list[bytes]:
        ready = [Prepared("", "{}", spec.query, spec.composition) for spec in specs]
        handles: list[bytes] = self.propose(register_all(*ready, text="a text")).handles
        self.live |= dict(zip(handles, specs, strict=True))
        return handles

    def replace(self, spec: QuerySpec) -> None:
        """Replace the query of the one registration that has a client key, or make it."""
        ready = Prepared("mine", "{}", spec.query, spec.composition)
        (handle,) = self.propose(register_all(ready, text=str(spec), again=True)).handles
        self.live[handle] = spec

    # ---- expected state

    def check(self, state: State) -> None:
        composed = {handle: spec for handle, spec in self.live.items() if len(spec.parts) > 1}
        shared = Counter(spec.identity for spec in composed.values() if self.fits(spec))
        assert {
            composite.identity: composite.registrations for composite in state.composites.values()
        } == shared
        for handle, spec in self.live.items():
            registered = state.registrations[handle].composite
            assert (registered is not None) == (handle in composed)
            if registered is not None:
                composition = spec.composition
                assert composition is not None
                predicate = state.predicates[registered.predicate_id]
                assert (predicate.stream_id, predicate.key) == (
                    registered.composite_id,
                    composition.key,
                )
                if self.fits(spec):
                    assert state.composites.find(*spec.identity) == registered.composite_id
        uses = Counter(id_ for value in state.registrations.values() for id_ in value.predicates)
        assert {value.id: value.registrations for value in state.predicates.values()} == uses
        numbers = [*state.streams, *state.composites]
        assert len(set(numbers)) == len(numbers) and all(map(state.has_id, numbers))


def register_all(*ready: Prepared, text: str, again: bool = False) -> RegisterAll:
    return RegisterAll("main", "main", IDS, text, 60, ready, again)


@given(STEPS)
def test_the_fold_counts_every_composite(steps: list[tuple[str, Any]]) -> None:
    world = World()
    for step in steps:
        # A registration whose stream is gone can't be bound again, so it is not.
        if step[0] in ("register", "replace") and world.dropped:
            continue
        world.take(step)
        world.check(world.state)
    for columns in world.state.columns:
        columns._check()


@pytest.mark.parametrize("every", [1, 3])
@settings(max_examples=15)
@given(steps=STEPS)
def test_the_tables_give_the_composites_back(tmp_path_factory, every: int, steps) -> None:
    store = Store.open(tmp_path_factory.mktemp("store"), create=True, sync=False)
    world, versions = World(), dict[str, int]()
    for number, step in enumerate(steps):
        if step[0] in ("register", "replace") and world.dropped:
            continue
        world.take(step)
        if number % every == 0:
            write_changes(store, world.state, world.touched, versions)
            world.touched = Touched()
    write_changes(store, world.state, world.touched, versions)
    store.epochs.append(1, epoch_of(world.state, versions))
    loaded = store.state(store.epochs.latest()[1])
    world.check(loaded)
    for name in ("composites", "registrations", "predicates"):
        assert getattr(loaded, name) == getattr(world.state, name)


JOIN = QuerySpec((Part("one", 0), Part("two", 1)), MINUTE)


def test_equal_joins_share_a_composite() -> None:
    world = World()
    swapped = JOIN._replace(parts=(Part("two", 0), Part("one", 1)))
    longer = JOIN._replace(reach=5 * DAY)
    handles = world.register([JOIN, swapped, JOIN, longer])
    composites = [world.state.registrations[handle].composite for handle in handles]
    first, second, third, last = (composite.composite_id for composite in composites if composite)
    assert first == second == third != last
    assert [composite.predicate_id for composite in composites if composite] == [3, 6, 3, 7]
    assert world.state.composites[first].registrations == 3


def test_legs_that_are_fixed_to_one_value_have_a_composite_of_their_own() -> None:
    world = World()
    fixed = [JOIN._replace(parts=(Part("one", n), Part("two", n))) for n in (0, 1)]
    handles = world.register([JOIN, *fixed])
    registrations = [world.state.registrations[handle].composite for handle in handles]
    first, second, third = (composite.composite_id for composite in registrations if composite)
    assert first != second == third


def test_a_composite_that_comes_back_has_another_number() -> None:
    world = World()
    (handle,) = world.register([JOIN])
    world.commit(Unregister(handle))
    assert not world.state.composites
    (handle,) = world.register([JOIN])
    assert list(world.state.composites) == [5]


def test_an_epoch_says_what_it_knows_of_composites(tmp_path) -> None:
    store = Store.open(tmp_path / "store", create=True, sync=False)
    marks = {
        9: CompositeMark(70, 3, 2, 5, (10, 20), ((1, 4), (2,)), ((3, 5), (7, 9)), True, '{"0":1}'),
        4: CompositeMark.without_box(3),
    }
    world = World()
    epoch = replace(epoch_of(world.state, {}), composites=marks, position=Position(1, 0))
    store.epochs.append(1, epoch)
    assert store.epochs.latest() == (1, epoch)
