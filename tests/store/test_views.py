"""Views in the log, in its fold, and in the tables that store the fold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT
from psoup.store import (
    Entry,
    Event,
    LegPredicate,
    Position,
    Register,
    RegisterMany,
    State,
    Store,
    StreamCreated,
    Touched,
    Unregister,
    ViewCreated,
    ViewEnded,
    ViewState,
    views_over,
)
from psoup.store.log.events import MANY
from querystem.user_functions import FunctionDefinition
from querystem.views import Delivery, ViewDefinition
from tests.support.tables import epoch_of, write_changes

COLUMNS = (Column("speed", BIGINT),)


def view(view_id: int, name: str, *over: int, delivery: Delivery = Delivery.PLAIN) -> ViewCreated:
    definition = ViewDefinition(name, f"SELECT speed FROM {over[0]}", COLUMNS, delivery)
    return ViewCreated(view_id, definition, over)


def register(number: int, *views: int) -> Register:
    leg = LegPredicate(1, 1, "a")
    return Register(number.to_bytes(16), "", (leg,), "SELECT", "{}", "{}", 60, views=views)


def many(*numbers: int, views: tuple[int, ...]) -> RegisterMany:
    columns = {
        "handle": [number.to_bytes(16) for number in numbers],
        "client_key": [""] * len(numbers),
        "predicate_id": [1] * len(numbers),
        "key": ["a"] * len(numbers),
        "parameters": ["{}"] * len(numbers),
    }
    return RegisterMany(1, "SELECT", "{}", 60, pa.table(columns, schema=MANY), views)


EVENTS: list[Event] = [
    StreamCreated(1, StreamSchema("readings", COLUMNS)),
    register(1),
    view(2, "fast", 1),
    view(3, "faster", 1, 2, delivery=Delivery.STREAMED),
    register(2, 2),
    many(3, 4, views=(3, 2)),
    register(5, 3, 2),
    ViewEnded(3),
    view(4, "faster", 2, 1, delivery=Delivery.COMPLETE),
    Unregister((4).to_bytes(16)),
]


def entries() -> list[Entry]:
    return [Entry(Position(1, n), 100 + n, "main", "main", event) for n, event in enumerate(EVENTS)]


def folded(count: int = len(EVENTS)) -> State:
    state = State()
    for entry in entries()[:count]:
        state.apply(entry)
    return state


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store", create=True)


def test_the_log_gives_them_back(store: Store) -> None:
    store.log.append(1, entries())
    assert store.log.read(1)[:-1] == entries()


def test_fold() -> None:
    state = folded()
    assert state.has_id(4) and not state.has_id(5)
    assert state.view_names == {("main", "fast"): 2, ("main", "faster"): 4}
    assert state.views[3].dropped and not state.views[4].dropped
    newest = state.find_view("main", "faster")
    assert newest is not None and isinstance(newest.definition, ViewDefinition)
    assert newest.definition.delivery is Delivery.COMPLETE
    assert state.find_view("other", "fast") is None
    through = {
        registration.handle: registration.views for registration in state.registrations.values()
    }
    ids = {1: (), 2: (2,), 3: (3, 2), 5: (3, 2)}
    assert through == {number.to_bytes(16): views for number, views in ids.items()}


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    at_once, singly = folded(5), folded(5)
    entry = entries()[5]
    at_once.apply(entry)
    for number in (3, 4):
        singly.apply(replace(entry, event=register(number, 3, 2)))
    assert at_once == singly


@pytest.mark.parametrize("cut", range(len(EVENTS)))
def test_a_draft_changes_only_itself(cut: int) -> None:
    state = folded(cut)
    draft = state.draft()
    for entry in entries()[cut:]:
        draft.apply(entry)
    assert state == folded(cut)
    whole = folded()
    for name in ("views", "view_names", "registrations"):
        assert dict(getattr(draft, name)) == getattr(whole, name)


@pytest.mark.parametrize("cuts", [[10], [3, 4, 6, 8, 10], list(range(1, 11))])
def test_the_tables_give_the_fold_back(store: Store, cuts: list[int]) -> None:
    state, versions, begin = State(), dict[str, int](), 0
    for cut in cuts:
        touched = Touched()
        for entry in entries()[begin:cut]:
            state.apply(entry, touched)
        begin = cut
        write_changes(store, state, touched, versions)
    loaded = store.state(epoch_of(state, versions))
    assert loaded.registrations == state.registrations
    assert loaded.view_names == state.view_names and loaded.stream_names == state.stream_names
    assert _without_position(loaded) == _without_position(state)


def _without_position(state: State) -> dict[int, ViewState]:
    return {
        id_: replace(view_state, position=Position(0, 0)) for id_, view_state in state.views.items()
    }


def test_views_over_stand_before_what_they_are_over() -> None:
    state = State()
    chain = [view(2, "a", 1), view(3, "b", 2), view(4, "c", 3, 2), view(5, "d", 1), view(6, "e", 4)]
    for number, event in enumerate([EVENTS[0], *chain, ViewEnded(5)]):
        state.apply(Entry(Position(1, number), 1, "main", "main", event))
    assert [view_state.definition.name for view_state in views_over(state.views, 1)] == [
        "e",
        "c",
        "b",
        "a",
    ]
    assert [view_state.definition.name for view_state in views_over(state.views, 3)] == ["e", "c"]
    assert views_over(state.views, 6) == []


def test_functions_are_read_back_from_the_log_and_from_the_tables(store: Store) -> None:
    parameters, text = (Column("x", BIGINT),), "x + 1"
    names = [(2, "more", ()), (3, "most", (2,))]
    events: list[Event] = [
        ViewCreated(id_, FunctionDefinition(name, parameters, text, BIGINT), over)
        for id_, name, over in names
    ]
    written = [
        Entry(Position(1, n), 100 + n, "main", "main", event)
        for n, event in enumerate([*events, ViewEnded(3)])
    ]
    store.log.append(1, written)
    assert store.log.read(1)[:-1] == written
    state, touched, versions = State(), Touched(), dict[str, int]()
    for entry in written:
        state.apply(entry, touched)
    assert [function.id for function in views_over(state.views, 2)] == []
    write_changes(store, state, touched, versions)
    loaded = store.state(epoch_of(state, versions))
    assert loaded.view_names == state.view_names == {("main", "more"): 2}
    assert _without_position(loaded) == _without_position(state)
