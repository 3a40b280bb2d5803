"""Registrations and predicates in columns behave as dicts do, in a draft and out of it."""

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
    st.tuples(st.sampled_from(["one", "many", "remove", "replace"]), st.integers(0, 50)),
    max_size=25,
)


@pytest.fixture(autouse=True)
def squeezed_often(monkeypatch: pytest.MonkeyPatch) -> None:
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
        {name: getattr(one, name) for name in (*names, "stream_id", "predicate_id")}
        | {"position": one.position.packed}
        | {"more_legs": [asdict(leg) for leg in one.legs[1:]] or None}
        | {"more_triggers": [asdict(leg) for leg in one.triggers[1:]] or None}
        | {"trigger_stream_id": one.triggers[0].stream_id if one.triggers else 0}
        | {"trigger_id": one.triggers[0].predicate_id if one.triggers else 0}
        | {"composite_id": one.composite and one.composite.composite_id}
        | {"composite_predicate_id": one.composite and one.composite.predicate_id}
        | {"views": ids_text(one.views) or None}
        for one in sorted(values, key=lambda one: one.handle)
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
        if name == "one":
            self.put(self.make())
        elif name == "many":
            new = [self.make() for _ in range(chosen % 7)]
            self.columns.extend(table_of(new))
            self.model |= {one.handle: one for one in new}
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
        keys = {(one.tenant, one.owner, one.client_key): one for one in self.model.values()}
        for number in range(self.number + 2):
            one = registration(number, 0)
            key = one.tenant, one.owner, one.client_key
            found = keys.get(key) if one.client_key else None
            assert self.columns.find(*key) == (found and found.handle)
            assert (one.handle in self.columns) == (one.handle in self.model)
        wanted = [f"k{number}" for number in range(self.number + 2)]
        found_all = self.columns.find_all("t1", "o0", pa.array(wanted))
        assert {wanted[place]: one for place, one in found_all.items()} == {
            key: (one.handle, one.stream_id, one.text, one.parameters, one.position.packed)
            for (t, o, key), one in keys.items()
            if key and (t, o) == ("t1", "o0")
        }


@given(OPERATIONS, OPERATIONS)
def test_registrations_are_a_dict(operations, drafted) -> None:
    made = Registering()
    for name, chosen in operations:
        made.take(name, chosen)
    made.check()
    base = made.columns
    assert isinstance(base, Registrations)
    base._check()
    _check_rows(base, made.model)
    before, made.columns = dict(made.model), DraftRegistrations(base)
    for name, chosen in drafted:
        made.take(name, chosen)
    made.check()
    assert dict(base) == before, "a draft changes only itself"


def _check_rows(base: Registrations, model: dict[bytes, Registration]) -> None:
    handles = pa.array([*model, b"-" * 16], pa.binary())
    rows = base.rows_of(handles)
    assert rows[-1] == -1
    taken = base.take(rows[:-1])
    assert taken.column("handle").to_pylist() == list(model)
    expected = [[asdict(leg) for leg in one.legs[1:]] for one in model.values()]
    assert taken.column("more_legs").to_pylist() == expected
    read = Counter(stream for one in model.values() for stream in one.streams)
    assert base.by_stream() == read
    shared = Counter(one.composite.composite_id for one in model.values() if one.composite)
    assert base.by_composite() == shared


@given(OPERATIONS, st.integers(1, 4), st.sampled_from(["", "o0", "o1", "o9"]))
def test_pages_show_each_registration_once_in_order(operations, size: int, owner: str) -> None:
    made = Registering()
    for name, chosen in operations:
        made.take(name, chosen)
    assert isinstance(made.columns, Registrations)
    after, found = (0, b""), []
    while page := made.columns.page("t1", owner, after, size):
        found += page
        after = page[-1].position.packed, page[-1].handle
    mine = [one for one in made.model.values() if one.tenant == "t1" and owner in ("", one.owner)]
    assert found == sorted(mine, key=lambda one: (one.position, one.handle))


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
        if name == "one":
            one = self.make()
            self.columns[one.id] = self.model[one.id] = one
        elif name == "many":
            new = [self.make() for _ in range(chosen % 7)]
            self.columns.extend(_predicate_table(new))
            self.model |= {one.id: one for one in new}
        elif name == "remove" and ids:
            del self.columns[ids[chosen % len(ids)]]
            del self.model[ids[chosen % len(ids)]]
        elif name == "replace" and ids:
            some = ids[chosen % len(ids) :]
            self.columns.count(np.array(some), np.arange(len(some)))
            for more, id_ in enumerate(some):
                old = self.model[id_]
                self.model[id_] = replace(old, registrations=old.registrations + more)

    def check(self) -> None:
        assert dict(self.columns) == self.model
        keys = {(one.stream_id, one.key): one.id for one in self.model.values()}
        wanted = [f"key {number}" for number in range(self.number + 2)]
        for stream_id in (1, 2, 3):
            ids = [keys.get((stream_id, key)) for key in wanted]
            assert [self.columns.find(stream_id, key) for key in wanted] == ids
            found = self.columns.find_all(stream_id, pa.array(wanted))
            assert found.tolist() == [-1 if one is None else one for one in ids]


@given(OPERATIONS, OPERATIONS)
def test_predicates_are_a_dict(operations, drafted) -> None:
    made = Sharing()
    for name, chosen in operations:
        made.take(name, chosen)
    made.check()
    base = made.columns
    assert isinstance(base, Predicates)
    base._check()
    for stream_id in (1, 2, 3):
        mine = sorted(one.id for one in made.model.values() if one.stream_id == stream_id)
        assert base.of_stream(stream_id).tolist() == mine
    before, made.columns = dict(made.model), DraftPredicates(base)
    for name, chosen in drafted:
        made.take(name, chosen)
    made.check()
    assert dict(base) == before, "a draft changes only itself"


def _predicate_table(new: list[Predicate]) -> pa.Table:
    columns: dict[str, Any] = {
        "predicate_id": pa.array([one.id for one in new], pa.int64()),
        "stream_id": pa.array([one.stream_id for one in new], pa.int64()),
        "key": pa.array([one.key for one in new], pa.string()),
    }
    return with_constants(pa.table(columns), {"tenant": "main", "registrations": 1})


def test_memory_is_reused_when_registrations_go() -> None:
    made = Registering()
    for _ in range(40):
        made.take("many", 6)
    assert isinstance(made.columns, Registrations)
    full = made.columns.nbytes
    for handle in sorted(made.model)[: len(made.model) * 9 // 10]:
        del made.columns[handle]
    assert made.columns.nbytes < full / 3


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
