"""The tables of composites are rolled back and inspected like the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from psoup.engine.ledger import joins_name, stem_name
from psoup.engine.repair.recover import open_ledger
from psoup.store import (
    Composite,
    CompositeMark,
    Entry,
    Event,
    LegPredicate,
    Position,
    Register,
    State,
    Store,
    StreamCreated,
    Touched,
    Unregister,
)
from psoup.store.delta.files import write_data_file
from psoup.store.inspection import damage
from psoup.store.layout import JOINS, combinations_schema
from tests.store.test_state import SCHEMA
from tests.support.tables import epoch_of, write_changes

LEGS = LegPredicate(1, 1, "a"), LegPredicate(1, 2, "b")
COMPOSITE = Composite(2, (1, 1), "[]", None, 3, "over both")
HANDLE = bytes(16)
EVENTS: list[Event] = [
    StreamCreated(1, SCHEMA),
    Register(HANDLE, "", LEGS, "SELECT", "{}", "{}", 60, composite=COMPOSITE),
]
SCHEMAS = {"stems/2": combinations_schema(2), "joins/2": JOINS}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store whose epoch names one file of a composite's stem, and one of its joins."""
    store = Store.open(tmp_path / "store", create=True, sync=False)
    state, touched, versions = State(), Touched(), dict[str, int]()
    entries = [
        Entry(Position(1, number), 100, "main", "main", event)
        for number, event in enumerate(EVENTS)
    ]
    store.log.append(1, entries)
    for entry in entries:
        state.apply(entry, touched)
    write_changes(store, state, touched, versions)
    store.create_stem(1, SCHEMA)
    store.create_composite(2, 2)
    for name in SCHEMAS:
        append(store, name, 1)
    mark = CompositeMark(1, 1, 1, 0, (5, 5), ((1,), (2,)))
    store.epochs.append(1, replace(epoch_of(state, versions), composites={2: mark}))
    return store


def append(store: Store, name: str, version: int) -> None:
    folder, schema = store.table(name), SCHEMAS[name]
    rows = pa.table({field.name: pa.array([version], field.type) for field in schema})
    folder.commit(version, [write_data_file(folder.root, rows, sync=False)], operation="TEST")


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_no_epoch_names_is_taken_back(store: Store, name: str) -> None:
    append(store, name, 2)
    ledger = open_ledger(store)
    assert ledger.epoch.kind == "restore"
    assert len(ledger.tables[name].files) == 1 and ledger.tables[name].version == 3
    mark = ledger.epoch.composites[2]
    assert ledger.composites == {2: mark} and (mark.high, mark.since) == (1, 0)
    versions = {"stems/2": mark.version, "joins/2": mark.joins_version}
    assert versions == {table: 3 if table == name else 1 for table in SCHEMAS}
    assert open_ledger(store).epoch == ledger.epoch, "there is nothing left to take back"


def test_a_mark_goes_with_its_composite(store: Store) -> None:
    ledger = open_ledger(store)
    assert ledger.is_live(1) and ledger.is_live(2) and (ledger.high(1), ledger.high(2)) == (0, 1)
    ledger.state.apply(Entry(Position(2, 0), 101, "main", "main", Unregister(HANDLE)))
    assert not ledger.is_live(2)
    ledger.publish("step")
    assert ledger.composites == store.epochs.latest()[1].composites == {}
    # What the epoch no longer names is empty for the next engine.
    after = open_ledger(store)
    assert not after.tables[stem_name(2)].files and not after.tables[joins_name(2)].files


@pytest.mark.parametrize("name", SCHEMAS)
def test_damage_is_found_and_no_rows_are_lost(store: Store, name: str) -> None:
    assert not list(damage(store))
    (path,) = store.table(name).snapshot().files
    file = store.root / name / path
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    (reported,) = damage(store)
    assert f"{name}/{path}" in reported.problem and reported.rows is None
