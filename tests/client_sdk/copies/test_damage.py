"""A bit that flips anywhere is found by `verify`, and put right by a sync as cheaply as can be."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Copies, CopyError, FileDamaged
from client_sdk.copies._file.records import Declaration
from tests.support.client_sdk.damage import (
    columns_of,
    flip_in_rows,
    flip_in_state,
    lose_row,
    rows_table,
    staged_table,
)
from tests.support.client_sdk.inside import InsideStore

STREAM = (
    "CREATE STREAM s (b BOOLEAN, i BIGINT, x DOUBLE, d DECIMAL(10,2), t TEXT, at TIMESTAMP, "
    "day DATE) RETAIN 1 DAY"
)
QUERIES = {
    "rows": "SELECT * FROM s ORDER BY i RANGE 10 MINUTES",
    "groups": "SELECT i % 20 AS k, count(*) AS n, max(t) AS t FROM s GROUP BY i % 20 "
    "RANGE 10 MINUTES",
}
COLUMNS = [
    *("row_id", "visible_from", "visible_until", "sort_key", "checksum"),
    *("c0", "c1", "c2", "c3", "c4", "c5", "c6"),
]


def row(number: int) -> dict[str, Any]:
    return {
        "b": number % 2 == 0,
        "i": number,
        "x": number / 7,
        "d": Decimal(number),
        "t": f"text {number}",
        "at": datetime(2024, 1, 1, tzinfo=UTC),
        "day": None if number % 5 == 0 else date(2024, 1, 1),
    }


@pytest.fixture
def synced_copies(store: InsideStore, filed: Copies) -> Copies:
    store.client.define(STREAM)
    store.client.publish("s", [row(number) for number in range(60)])
    for name, sql in QUERIES.items():
        filed.keep(name, sql)
    assert filed.sync(store.client).complete
    return filed


def check(store: InsideStore, copies: Copies) -> None:
    for name in copies:
        handle = copies[name].handle
        assert handle is not None
        assert copies[name].to_arrow().equals(store.client.invoke(handle).to_arrow())


@pytest.mark.parametrize("name", QUERIES)
def test_every_column_of_the_rows(store: InsideStore, synced_copies: Copies, name: str) -> None:
    """Also while there is something new."""
    table = rows_table(synced_copies, name)
    assert table is not None
    with synced_copies._file.reading() as connection:
        columns = columns_of(connection, table)
    assert columns == COLUMNS[: len(columns)]
    chance = random.Random(2003)
    for turn, column in enumerate(columns * 3):
        verified = flip_in_rows(synced_copies, name, chance, column)
        if turn % 2:
            store.client.publish("s", [row(100 + turn)])
        assert not synced_copies.verify()[name].sound, verified
        synced = synced_copies.sync(store.client)
        assert synced.complete, verified
        if column != "row_id":
            assert synced[name].repaired == 1 or synced[name].whole, verified
        check(store, synced_copies)
        assert synced_copies.sync(store.client)[name].rows == 0


def test_a_damaged_row_alone_is_sent_again(store: InsideStore, synced_copies: Copies) -> None:
    chance = random.Random(1)
    flip_in_rows(synced_copies, "rows", chance, "c4")
    synced_copies.verify()
    change = synced_copies.sync(store.client)["rows"]
    assert (change.rows, change.repaired, change.whole) == (1, 1, False)
    lose_row(synced_copies, "rows", chance)
    change = synced_copies.sync(store.client)["rows"]
    assert (change.rows, change.whole) == (1, False)
    check(store, synced_copies)


def test_a_whole_answer_that_repairs_is_taken_up_where_it_was_cut(
    store: InsideStore, synced_copies: Copies
) -> None:
    table = rows_table(synced_copies, "rows")
    with synced_copies._file.writing() as connection:
        connection.execute(f"UPDATE {table} SET sort_key = x'00'")
    synced_copies.verify()
    store.line.cuts = [9, 9, 9]
    change = synced_copies.sync(store.client, only=["rows"])["rows"]
    assert (change.rows, change.whole, change.status) == (60, True, "changed")
    check(store, synced_copies)


def test_a_row_that_was_never_there(store: InsideStore, synced_copies: Copies) -> None:
    table = rows_table(synced_copies, "rows")
    with synced_copies._file.writing() as connection:
        fake = list(connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchone())
        fake[0] = 5000
        places = ", ".join("?" * len(fake))
        connection.execute(f"INSERT INTO {table} VALUES ({places})", fake)
    change = synced_copies.sync(store.client)["rows"]
    assert change.rows == 0 and not change.whole
    check(store, synced_copies)


def test_all_rows_damaged_are_sent_whole(store: InsideStore, synced_copies: Copies) -> None:
    with synced_copies._file.writing() as connection:
        connection.execute(f"UPDATE {rows_table(synced_copies, 'rows')} SET c1 = c1 + 1")
    synced_copies.verify()
    change = synced_copies.sync(store.client)["rows"]
    assert change.whole and change.reason == "ASKED"
    check(store, synced_copies)


@pytest.mark.parametrize("column", ["state", "declaration", "spare", "shown"])
def test_what_is_remembered_of_a_copy(
    store: InsideStore, synced_copies: Copies, column: str
) -> None:
    chance = random.Random(7)
    for _ in range(4):
        synced_copies["rows"].rows()
        assert flip_in_state(synced_copies, "rows", chance, column)
        assert synced_copies.sync(store.client).complete
        check(store, synced_copies)


def test_both_declarations_damaged(store: InsideStore, synced_copies: Copies) -> None:
    for column in ("declaration", "spare"):
        flip_in_state(synced_copies, "rows", random.Random(3), column)
    with pytest.raises(FileDamaged, match="keep it again"):
        synced_copies.sync(store.client)
    synced_copies.forget("rows")
    synced_copies.keep("rows", QUERIES["rows"])
    assert synced_copies.sync(store.client).complete
    check(store, synced_copies)


def test_a_staged_row_damaged(store: InsideStore, synced_copies: Copies) -> None:
    """Found when the transfer is to become the copy."""
    store.client.publish("s", [row(number) for number in range(200, 260)])
    assert not synced_copies.sync(store.client, only=["rows"], byte_budget=700).complete
    staged = staged_table(synced_copies, "rows")
    with synced_copies._file.writing() as connection:
        update = (
            f"UPDATE {staged} SET c1 = c1 + 1 WHERE row_id = (SELECT min(row_id) FROM {staged})"
        )
        assert connection.execute(update).rowcount == 1
    assert synced_copies.sync(store.client).complete
    check(store, synced_copies)


def test_the_state_damaged_while_a_transfer_is_staged(
    store: InsideStore, synced_copies: Copies
) -> None:
    """The staged changes have no answer to change, so the whole answer is sent."""
    store.client.publish("s", [row(number) for number in range(200, 260)])
    assert not synced_copies.sync(store.client, only=["rows"], byte_budget=700).complete
    flip_in_state(synced_copies, "rows", random.Random(4), "state")
    synced = synced_copies.sync(store.client)
    assert synced.complete and synced["rows"].whole
    check(store, synced_copies)


def test_a_row_broken_while_a_transfer_is_staged(store: InsideStore, synced_copies: Copies) -> None:
    store.client.publish("s", [row(number) for number in range(200, 260)])
    assert not synced_copies.sync(store.client, only=["rows"], byte_budget=700).complete
    flip_in_rows(synced_copies, "rows", random.Random(4), "c1")
    synced_copies.verify()
    calls = 0
    while not synced_copies.sync(store.client, byte_budget=900).complete:
        calls += 1
        assert calls < 50
    check(store, synced_copies)


def test_bytes_of_the_file(store: InsideStore, synced_copies: Copies, tmp_path: Path) -> None:
    """Any byte: a sync repairs it, or the file says that it is damaged and is recovered."""
    path = tmp_path / "copies.db"
    synced_copies.close()
    whole = path.read_bytes()
    chance = random.Random(11)
    outcomes = {"repaired": 0, "recovered": 0}
    for _ in range(40):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        outcomes[_after(store, tmp_path / "flipped.db", bytes(content))] += 1
    assert min(outcomes.values()) > 0


def _after(store: InsideStore, path: Path, content: bytes) -> str:
    for leftover in path.parent.glob("flipped.db*"):
        leftover.unlink()
    path.write_bytes(content)
    try:
        with Copies(path, clock=store.now) as copies:
            assert set(copies.names) == set(QUERIES)
            copies.verify()
            assert copies.sync(store.client).complete
            check(store, copies)
        return "repaired"
    except CopyError:
        pass
    recovered = Copies.recover(path)
    with Copies(path, clock=store.now) as copies:
        for name in set(QUERIES) - set(recovered.kept):
            copies.keep(name, QUERIES[name])
        assert copies.sync(store.client).complete
        check(store, copies)
    return "recovered"


def test_declarations_are_sealed_with_all_they_have() -> None:
    declared = Declaration(3, "n", "SELECT 1", {"a": "00"}, 1.5, "w", 2, True, "k", b"h")
    content = {**declared.to_content(), "handle": declared.handle.hex()}
    assert Declaration.from_content(content) == declared
