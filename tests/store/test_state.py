"""The fold of the log, and the tables that store it, agree."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.schema import Column, FormerLabel, StreamSchema
from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, decimal_type
from psoup.store import (
    Data,
    Entry,
    Epoch,
    Event,
    ForeignPosition,
    LegPredicate,
    NotAStore,
    Position,
    Register,
    RegisterMany,
    Replace,
    State,
    Store,
    StreamAltered,
    StreamCreated,
    StreamEnded,
    Touched,
    Trigger,
    Unregister,
    WriterMarks,
)
from psoup.store.log.access_events import AccessEnded, AccessPut
from psoup.store.log.events import MANY, Denied, PublishersForgotten
from psoup.store.log.position import PositionCodec
from psoup.store.state.access import Grant, Hook, Key
from tests.support.tables import epoch_of, write_changes

SCHEMA = StreamSchema("readings", (Column("speed", BIGINT),), retain=5)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store", create=True)


def data(stream_id: int, first: int, rows: int, publisher: str = "", sequence: int = 0) -> Data:
    return Data(
        stream_id, publisher, sequence, rows, first, first, first + rows, None, first + rows,
        b"d" * 16, b"r" * 16, b"p",
    )  # fmt: skip


def register(number: int, stream_id: int, predicate_id: int, key: str, client_key: str) -> Register:
    leg = LegPredicate(stream_id, predicate_id, key)
    return Register(number.to_bytes(16), client_key, (leg,), "SELECT", "{}", "{}", 60)


def many(*rows: tuple[int, int, str, str], stream_id: int = 1) -> RegisterMany:
    """Return an event for rows (handle, predicate id, predicate key, client key)."""
    columns = {
        "handle": [number.to_bytes(16) for number, *_ in rows],
        "client_key": [client_key for *_, client_key in rows],
        "predicate_id": [predicate_id for _, predicate_id, *_ in rows],
        "key": [key for _, _, key, _ in rows],
        "parameters": ["{}"] * len(rows),
    }
    return RegisterMany(stream_id, "SELECT", "{}", 60, pa.table(columns, schema=MANY))


def swap(number: int, *legs: tuple[int, int, str], triggers: tuple[Trigger, ...] = ()) -> Replace:
    """Return an event for legs (stream id, predicate id, predicate key)."""
    parts = tuple(LegPredicate(*leg) for leg in legs)
    return Replace(number.to_bytes(16), parts, "SELECT 2", '{"x": 1}', "{2}", triggers)


def entries(events: list[Event], version: int = 1) -> list[Entry]:
    return [
        Entry(Position(version, n), 100 + n, "main", "main", event)
        for n, event in enumerate(events)
    ]


KEPT_GRANT, ENDED_GRANT = (Grant("main", "role", name, "read", 1) for name in ("kept", "ended"))

# Columns of every type that were added with a default, and the fields that only later versions use.
ALTERED = replace(
    SCHEMA,
    columns=(
        *SCHEMA.columns,
        Column("venue", TEXT, since=9),
        Column(
            "fee",
            DOUBLE,
            since=9,
            default=-0.0,
            renamed="charge",
            former=(FormerLabel("cost", 10, 11),),
        ),
        Column("open", BOOLEAN, since=9, default=False),
        Column("count", BIGINT, since=9, default=0),
        Column("price", decimal_type(9, 2), since=9, default=Decimal("1.50")),
        Column("at", TIMESTAMP, since=9, default=datetime(2026, 1, 2, 3, 4, 5, 6, UTC)),
        Column("day", DATE, since=9, default=date(2026, 1, 2)),
        Column("note", TEXT, since=9, default=""),
    ),
    retain=7,
    ahead=8,
    whole_from=-6,
    source="kafka",
    source_owner="ann",
    dropped=(Column("old", TEXT, former=(FormerLabel("old", 10, 12),)),),
)
HOOK = Hook("main", "ann", "orders", 1, '{"a": "b"}', "hmac-sha256", "00ff", "header=X", 5)

EVENTS: list[Event] = [
    StreamCreated(1, SCHEMA),
    register(1, 1, 1, "a", "mine"),
    data(1, 0, 3, "p", 1),
    register(2, 1, 1, "a", ""),
    register(3, 1, 2, "b", "other"),
    data(1, 3, 0),
    Unregister((1).to_bytes(16)),
    Unregister((3).to_bytes(16)),
    StreamCreated(2, StreamSchema("gone", (Column("x", BIGINT),))),
    StreamEnded(2),
    data(1, 3, 2, "p", 2),
    many((10, 1, "a", ""), (11, 3, "c", "k1"), (12, 4, "d", "k2"), (13, 3, "c", "")),
    Unregister((12).to_bytes(16)),
    Unregister((11).to_bytes(16)),
    many((14, 5, "d", "k1"), (15, 3, "c", "")),
    replace(register(20, 1, 6, "e", ""), triggers=(Trigger(1, 7, "f"),)),
    replace(register(21, 1, 7, "f", ""), triggers=(Trigger(1, 7, "f"),)),
    replace(register(22, 1, 1, "a", ""), triggers=(Trigger(1, 7, "f"),)),
    Unregister((20).to_bytes(16)),
    Unregister((21).to_bytes(16)),
    swap(2, (1, 8, "g"), (1, 5, "d")),
    swap(14, (1, 5, "d"), triggers=(Trigger(1, 8, "g"),)),
    data(1, 5, 1, "q", 1),
    data(1, 6, 1, "r", 1),
    PublishersForgotten("main", ("q", "r")),
    replace(data(1, 7, 1, "r", 1), mark=b"\x00m", lease=60),
    AccessPut((Key("k", "main", "ann", (), "{}", "0", 1), KEPT_GRANT, ENDED_GRANT)),
    AccessPut((KEPT_GRANT,)),
    AccessEnded((("grant", ENDED_GRANT.id),)),
    Denied("key 1", "you may not", 3),
    StreamAltered(1, 2, ALTERED),
    AccessPut((HOOK, replace(HOOK, name="gone"))),
    AccessEnded((("hook", replace(HOOK, name="gone").id),)),
    StreamAltered(1, 3, replace(ALTERED, ahead=9)),
]


def folded(events: list[Event]) -> State:
    state = State()
    for entry in entries(events):
        state.apply(entry)
    return state


def test_the_log_gives_back_what_was_appended(store: Store) -> None:
    written = entries(EVENTS)
    appended, _ = store.log.append(1, written)
    assert store.log.read(1) == appended and appended[:-1] == written
    headers = store.log.read(1, payloads=False)
    assert [entry.position for entry in headers] == [entry.position for entry in appended]
    assert all(entry.event.payload is None for entry in headers if isinstance(entry.event, Data))


def test_fold() -> None:
    state = folded(EVENTS)
    assert state.streams[1].high == 8
    assert state.streams[1].reached == 8
    assert state.streams[1].registrations == 6
    assert (state.streams[1].schema, state.streams[1].version) == (replace(ALTERED, ahead=9), 3)
    # AHEAD is not the retention.
    assert state.streams[1].retained_since == Position(1, 30)
    assert state.find_stream("main", "gone") is None
    assert state.streams[2].dropped
    assert list(state.registrations) == [n.to_bytes(16) for n in (10, 13, 15, 22, 2, 14)]
    assert state.registrations.find("main", "main", "k1") == (14).to_bytes(16)
    assert state.registrations.find("main", "main", "k2") is None
    assert state.registrations.find("main", "main", "mine") is None
    shared = {predicate.id: predicate.registrations for predicate in state.predicates.values()}
    assert shared == {1: 2, 3: 2, 5: 2, 7: 1, 8: 2}
    assert state.registrations[(14).to_bytes(16)].position == Position(1, 21)
    assert state.predicates.find(1, "d") == 5
    assert state.publishers["main", "main", "p"].sequence == 2
    assert [name for _, _, name in state.publishers] == ["p", "r"]
    assert [(last.mark, last.lease) for last in state.publishers.values()] == [
        (b"", None),
        (b"\x00m", 60),
    ]
    assert state.publishers["main", "main", "p"].total_rows == 5
    counts = {"registrations": 6, "streams": 1, "publishers": 2, "keys": 1, "grants": 1}
    assert {kind: state.owned_by(kind, "main") for kind in counts} == counts
    assert (state.owned_by("keys", "main", "ann"), state.owned_by("keys", "main", "main")) == (1, 0)
    assert state.next_predicate_id == 9 and state.has_id(2) and not state.has_id(3)


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    for cut, event in enumerate(EVENTS):
        if isinstance(event, RegisterMany):
            at_once, singly = folded(EVENTS[:cut]), folded(EVENTS[:cut])
            at_once.apply(entries(EVENTS)[cut])
            for row in event.rows.to_pylist():
                leg = LegPredicate(event.stream_id, row["predicate_id"], row["key"])
                single = Register(
                    row["handle"], row["client_key"], (leg,), event.text, row["parameters"],
                    event.query, event.lease,
                )  # fmt: skip
                singly.apply(replace(entries(EVENTS)[cut], event=single))
            assert at_once == singly


@given(st.integers(0, len(EVENTS)))
def test_a_draft_changes_only_itself(cut: int) -> None:
    state = folded(EVENTS[:cut])
    draft = state.draft()
    for entry in entries(EVENTS)[cut:]:
        draft.apply(entry)
    assert state == folded(EVENTS[:cut])
    whole = folded(EVENTS)
    for name in ("streams", "registrations", "predicates", "publishers", "owned"):
        assert dict(getattr(draft, name)) == getattr(whole, name)


@pytest.mark.parametrize(
    "cuts", [[34], [3, 11, 17, 21, 24, 25, 30, 31, 34], [12, 14, 34], [*range(1, 35)]]
)
def test_the_tables_give_the_fold_back(store: Store, cuts: list[int]) -> None:
    state = State()
    versions: dict[str, int] = {}
    begin = 0
    written = entries(EVENTS)
    for cut in cuts:
        touched = Touched()
        for entry in written[begin:cut]:
            state.apply(entry, touched)
        begin = cut
        write_changes(store, state, touched, versions)
    store.epochs.append(1, epoch_of(state, versions))
    version, epoch = store.epochs.latest()
    assert version == 1
    assert epoch == epoch_of(state, versions)
    loaded = store.state(epoch)
    assert loaded.registrations == state.registrations
    assert loaded.predicates == state.predicates
    for columns in loaded.columns:
        columns._check()
    assert loaded.publishers == state.publishers
    assert loaded.owned == state.owned
    assert loaded.access == state.access and list(loaded.access.hooks) == [HOOK.id]
    assert loaded.stream_names == state.stream_names
    assert _without_position(loaded) == _without_position(state)


def _without_position(state: State) -> list[Any]:
    return [
        (s.id, s.schema, s.high, s.reached, s.registrations, s.dropped, s.version)
        for _, s in sorted(state.streams.items())
    ]


def test_epochs_drop_old_files_and_stay_readable(store: Store) -> None:
    for number in range(1, 40):
        epoch = Epoch(number, "step", number, Position(number, 0), number, 0, 1, {"log": 1}, {})
        store.epochs.append(number, epoch)
    version, epoch = store.epochs.latest(12)
    assert (version, epoch.number) == (39, 39)
    assert len(store.table("epochs").snapshot().files) == 16
    store.table("epochs").checkpoint()
    for path in store.table("epochs").log.glob("*.json"):
        path.unlink()
    assert store.epochs.latest()[1].number == 39


def test_a_position_is_of_one_store(store: Store, tmp_path: Path) -> None:
    another = Store.open(tmp_path / "other", create=True)
    writers = WriterMarks([2, 5, 8], [-22, 55, 88])
    positions = PositionCodec(store.identity, lambda: writers)
    token = positions.encode(Position(7, 3))
    assert len(token) == 24
    assert positions.decode(token) == (Position(7, 3), 55)
    assert positions.decode(positions.encode(Position(1, 0))).mark == 0
    foreign = PositionCodec(another.identity).encode(Position(7, 3))
    for wrong in (b"", b"x" * 24, token[:-1], token[:16], foreign):
        with pytest.raises(ForeignPosition):
            positions.decode(wrong)


def test_opening(store: Store, tmp_path: Path) -> None:
    assert Store.open(store.root).id == store.id
    with pytest.raises(NotAStore):
        Store.open(tmp_path / "nothing")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(NotAStore):
        Store.open(tmp_path / "full", create=True)
