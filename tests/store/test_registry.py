"""Registrations and predicates in columns behave like dicts, in a draft and outside of one."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psoup.store import (
    Position,
    Predicate,
    RegisteredComposite,
    RegisteredLeg,
    Registration,
)
from psoup.store.layout import MORE_LEGS
from psoup.store.state import column_mapping
from psoup.store.state.columns import with_constants
from psoup.store.state.drafts import DraftPredicates, DraftRegistrations
from psoup.store.state.legs import LegsColumn, no_more_legs
from psoup.store.state.predicates import Predicates
from psoup.store.state.registrations import Registrations
from psoup.store.state.views import ids_text

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["single", "many", "remove", "replace"]), st.integers(0, 50)),
    max_size=25,
)


@pytest.fixture(autouse=True)
def compact_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_mapping, "_COMPACT_FROM_ROWS", 3)


# ---- registrations


def registration(number: int, at: int) -> Registration:
    handle = (number * 2**60 % 2**128 + number).to_bytes(16)
    key = f"k{number}" if number % 3 else ""
    legs = tuple(RegisteredLeg(1 + (number + n) % 3, number + n) for n in range(1 + number % 4))
    triggers = tuple(RegisteredLeg(1 + number % 2, number + 1 + n) for n in range(number % 3))
    return Registration(
        handle, f"t{number % 2}", f"o{number % 5 % 2}", key, legs, triggers,
        f"SELECT {at}", "{}", f"form {number % 4}", 60, at, Position(at, 0),
        composite=composite(number) if number % 5 == 1 else None,
        views=tuple(range(number % 3)),
    )  # fmt: skip


def composite(number: int) -> RegisteredComposite:
    return RegisteredComposite(100 + number % 3, 1000 + number)


def table_of(values: list[Registration]) -> pa.Table:
    apart = ("legs", "triggers", "composite")
    names = [name for name in Registration.__slots__ if name not in apart]
    rows = [
        {name: getattr(value, name) for name in (*names, "stream_id", "predicate_id")}
        | {"position": value.position.packed}
        | {"more_legs": [asdict(leg) for leg in value.legs[1:]] or None}
        | {"more_triggers": [asdict(leg) for leg in value.triggers[1:]] or None}
        | {"trigger_stream_id": value.triggers[0].stream_id if value.triggers else 0}
        | {"trigger_id": value.triggers[0].predicate_id if value.triggers else 0}
        | {"composite_id": value.composite and value.composite.composite_id}
        | {"composite_predicate_id": value.composite and value.composite.predicate_id}
        | {"views": ids_text(value.views) or None}
        for value in sorted(values, key=lambda value: value.handle)
    ]
    names += ["stream_id", "predicate_id", "more_legs", "composite_id", "composite_predicate_id"]
    names += ["trigger_stream_id", "trigger_id", "more_triggers"]
    columns = {name: [row[name] for row in rows] for name in names}
    types = {"handle": pa.binary(), "more_legs": MORE_LEGS, "more_triggers": MORE_LEGS}
    integers = (
        "stream_id", "predicate_id", "trigger_stream_id", "trigger_id", "lease", "stamp",
        "position", "contact", "composite_id", "composite_predicate_id",
    )  # fmt: skip
    types |= dict.fromkeys(integers, pa.int64())
    return pa.table({n: pa.array(v, types.get(n, pa.string())) for n, v in columns.items()})


class Registering:
    """Every change is made to the columns and to a dict."""

    def __init__(self) -> None:
        self.columns: Registrations | DraftRegistrations = Registrations()
        self.model: dict[bytes, Registration] = {}
        self.number = 0
        self.at = 0

    def make(self) -> Registration:
        self.number += 1
        return registration(self.number, self.at)

    def take(self, name: str, chosen: int) -> None:
        self.at += 1
        if name == "single":
            self.put(self.make())
        elif name == "many":
            new = [self.make() for _ in range(chosen % 7)]
            self.columns.extend(table_of(new))
            self.model |= {value.handle: value for value in new}
        elif self.model and name in ("remove", "replace"):
            handle = sorted(self.model)[chosen % len(self.model)]
            if name == "remove":
                assert self.columns.pop(handle) == self.model.pop(handle)
            else:
                self.put(replace(self.model[handle], position=Position(self.at, 0), text="other"))

    def put(self, value: Registration) -> None:
        self.columns[value.handle] = self.model[value.handle] = value

    def check(self) -> None:
        assert dict(self.columns) == self.model
        assert len(self.columns) == len(self.model)
        keys = {
            (value.tenant, value.owner, value.client_key): value for value in self.model.values()
        }
        for number in range(self.number + 2):
            value = registration(number, 0)
            key = value.tenant, value.owner, value.client_key
            expected = keys.get(key) if value.client_key else None
            assert self.columns.find(*key) == (expected and expected.handle)
            assert (value.handle in self.columns) == (value.handle in self.model)
        client_keys = [f"k{number}" for number in range(self.number + 2)]
        found_all = self.columns.find_all("t1", "o0", pa.array(client_keys))
        assert {client_keys[place]: value for place, value in found_all.items()} == {
            key: (
                value.handle,
                value.stream_id,
                value.text,
                value.parameters,
                value.position.packed,
            )
            for (t, o, key), value in keys.items()
            if key and (t, o) == ("t1", "o0")
        }


@given(OPERATIONS, OPERATIONS)
def test_registrations_are_a_dict(operations, drafted) -> None:
    twins = Registering()
    for name, chosen in operations:
        twins.take(name, chosen)
    twins.check()
    base = twins.columns
    assert isinstance(base, Registrations)
    base._check()
    _check_rows(base, twins.model)
    before, twins.columns = dict(twins.model), DraftRegistrations(base)
    for name, chosen in drafted:
        twins.take(name, chosen)
    twins.check()
    assert dict(base) == before, "a draft changes only itself"


def _check_rows(base: Registrations, model: dict[bytes, Registration]) -> None:
    handles = pa.array([*model, b"-" * 16], pa.binary())
    rows = base.rows_of(handles)
    assert rows[-1] == -1
    table = base.take(rows[:-1])
    assert table.column("handle").to_pylist() == list(model)
    expected = [[asdict(leg) for leg in value.legs[1:]] for value in model.values()]
    assert table.column("more_legs").to_pylist() == expected
    read = Counter(stream for value in model.values() for stream in value.streams)
    assert base.by_stream() == read
    shared = Counter(value.composite.composite_id for value in model.values() if value.composite)
    assert base.by_composite() == shared


@given(
    OPERATIONS,
    st.integers(1, 4),
    st.sampled_from(["", "o0", "o1", "o9"]),
    st.none() | st.sets(st.integers(1, 3), max_size=2),
    st.sampled_from(["", "1", "TEXT", "K", "("]),
)
def test_pages_show_each_registration_once_in_order(
    operations, size: int, owner: str, over: set[int] | None, part: str
) -> None:
    twins = Registering()
    for name, chosen in operations:
        twins.take(name, chosen)
    assert isinstance(twins.columns, Registrations)
    after: tuple[int, bytes] | None = (0, b"")
    listed: list[Registration] = []
    while after is not None:
        page, after = twins.columns.page("t1", owner, after, size, over, part)
        assert len(page) <= size and (page or after is None)
        listed += page

    def wanted(value: Registration) -> bool:
        reads = {leg.stream_id for leg in (*value.legs, *value.triggers)} | set(value.views)
        return over is None or not reads.isdisjoint(over)

    expected = [
        value
        for value in twins.model.values()
        if value.tenant == "t1"
        and owner in ("", value.owner)
        and wanted(value)
        and (part.lower() in value.text.lower() or part.lower() in value.client_key.lower())
    ]
    assert listed == sorted(expected, key=lambda value: (value.position, value.handle))


# ---- predicates


class Sharing:
    def __init__(self) -> None:
        self.columns: Predicates | DraftPredicates = Predicates()
        self.model: dict[int, Predicate] = {}
        self.number = 0

    def make(self) -> Predicate:
        self.number += 1
        return Predicate(self.number, "main", 1 + self.number % 2, f"key {self.number}", 1)

    def take(self, name: str, chosen: int) -> None:
        ids = sorted(self.model)
        if name == "single":
            predicate = self.make()
            self.columns[predicate.id] = self.model[predicate.id] = predicate
        elif name == "many":
            new = [self.make() for _ in range(chosen % 7)]
            self.columns.extend(_predicate_table(new))
            self.model |= {predicate.id: predicate for predicate in new}
        elif name == "remove" and ids:
            del self.columns[ids[chosen % len(ids)]]
            del self.model[ids[chosen % len(ids)]]
        elif name == "replace" and ids:
            counted = ids[chosen % len(ids) :]
            self.columns.count(np.array(counted), np.arange(len(counted)))
            for more, id_ in enumerate(counted):
                old = self.model[id_]
                self.model[id_] = replace(old, registrations=old.registrations + more)

    def check(self) -> None:
        assert dict(self.columns) == self.model
        keys = {(value.stream_id, value.key): value.id for value in self.model.values()}
        predicate_keys = [f"key {number}" for number in range(self.number + 2)]
        for stream_id in (1, 2, 3):
            ids = [keys.get((stream_id, key)) for key in predicate_keys]
            assert [self.columns.find(stream_id, key) for key in predicate_keys] == ids
            matches = self.columns.find_all(stream_id, pa.array(predicate_keys))
            assert matches.tolist() == [-1 if id_ is None else id_ for id_ in ids]


@given(OPERATIONS, OPERATIONS)
def test_predicates_are_a_dict(operations, drafted) -> None:
    twins = Sharing()
    for name, chosen in operations:
        twins.take(name, chosen)
    twins.check()
    base = twins.columns
    assert isinstance(base, Predicates)
    base._check()
    for stream_id in (1, 2, 3):
        expected = sorted(
            predicate.id for predicate in twins.model.values() if predicate.stream_id == stream_id
        )
        assert base.of_stream(stream_id).tolist() == expected
    before, twins.columns = dict(twins.model), DraftPredicates(base)
    for name, chosen in drafted:
        twins.take(name, chosen)
    twins.check()
    assert dict(base) == before, "a draft changes only itself"


def _predicate_table(new: list[Predicate]) -> pa.Table:
    columns: dict[str, Any] = {
        "predicate_id": pa.array([predicate.id for predicate in new], pa.int64()),
        "stream_id": pa.array([predicate.stream_id for predicate in new], pa.int64()),
        "key": pa.array([predicate.key for predicate in new], pa.string()),
    }
    return with_constants(pa.table(columns), {"tenant": "main", "registrations": 1})


def test_memory_is_reused_when_registrations_go() -> None:
    twins = Registering()
    for _ in range(40):
        twins.take("many", 6)
    assert isinstance(twins.columns, Registrations)
    full = twins.columns.nbytes
    for handle in sorted(twins.model)[: len(twins.model) * 9 // 10]:
        del twins.columns[handle]
    assert twins.columns.nbytes < full / 3


def test_a_registration_of_one_leg_takes_nothing_for_legs() -> None:
    legs = LegsColumn()
    legs.extend(no_more_legs(1000))
    legs.append(())
    assert legs.nbytes == 0 and legs[1000] == ()


def test_legs_come_out_of_any_cut_of_an_array_as_they_were_put_in() -> None:
    lists = [[{"stream_id": n, "predicate_id": 10 * n}] * (n % 3) for n in range(20)]
    whole = pa.array(lists, MORE_LEGS)
    for begin in range(20):
        legs = LegsColumn()
        legs.extend(pa.chunked_array([whole.slice(begin, 3), whole.slice(begin + 3)]))
        for order in (np.arange(20 - begin), np.arange(20 - begin)[::-1]):
            assert legs.take(order).to_pylist() == [lists[begin + row] for row in order]


@given(OPERATIONS, st.integers(0, 25))
def test_oracle_registrations_over_a_stream_by_their_forms(
    steps: list[tuple[str, int]], cut: int
) -> None:
    base = Registrations()
    draft = DraftRegistrations(base)
    for place, (kind, number) in enumerate(steps):
        registrations = base if place < cut else draft
        value = registration(number, place + 1)
        if kind == "remove":
            if value.handle in registrations:
                del registrations[value.handle]
        else:
            registrations[value.handle] = value
    for stream_id in (1, 2, 3):
        expected: dict[str, set[bytes]] = {}
        for handle in draft:
            value = draft[handle]
            # In a store no view has the id of a stream.
            streams = {leg.stream_id for leg in (*value.legs, *value.triggers)}
            if stream_id in {*streams, *value.views}:
                expected.setdefault(value.query, set()).add(handle)
        grouped = draft.by_form(stream_id)
        assert {form: set(handles) for form, handles in grouped.items()} == expected
        assert sum(map(len, grouped.values())) == sum(map(len, expected.values()))
