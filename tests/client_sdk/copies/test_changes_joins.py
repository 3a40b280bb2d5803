"""Changes of joins, unions and results over several streams, of random rows: what is read comes to
what the copy is, and rows of joins only come and go.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from client_sdk import AnswerChange, Copies
from tests.support.client_sdk.change_reader import ChangeReader
from tests.support.client_sdk.damage import flip_in_rows, flip_in_state, lose_row
from tests.support.client_sdk.inside import InsideStore
from tests.support.lengths import short_first

STREAMS = (
    "CREATE STREAM s (a BIGINT, b TEXT) RETAIN 1 HOUR",
    "CREATE STREAM t (a BIGINT, b TEXT)",
    "CREATE STREAM k (a BIGINT, b TEXT) KEY (b)",
)
JOINS = {
    "join": "SELECT s.a, s.row_id AS one, t.row_id AS other FROM s WINDOW(RANGE 30 SECONDS), "
    "t WINDOW(ROWS 5) WHERE s.a = t.a",
    "names": "SELECT s.row_id AS one, k.row_id AS other, k.a FROM s WINDOW(RANGE 20 SECONDS), k "
    "WHERE s.b = k.b",
    "union": "SELECT row_id, 's' AS which FROM s UNION ALL SELECT row_id, 't' AS which FROM t "
    "RANGE 15 SECONDS",
}
RESULTS = {
    "groups": "SELECT t.b, count(*) AS n FROM s, t WHERE s.a = t.a GROUP BY t.b RANGE 30 SECONDS",
    "left": "SELECT s.row_id, k.a FROM s WINDOW(RANGE 20 SECONDS) LEFT JOIN k ON s.b = k.b",
}


def reader_of(name: str) -> ChangeReader:
    if name in JOINS:
        return ChangeReader(name, lambda row: tuple(row.values()))
    return ChangeReader(name, (lambda row: row["b"]) if name == "groups" else None)


@pytest.mark.parametrize("seed", short_first(range(6)))
def test_what_is_read_comes_to_what_the_copy_is(
    store: InsideStore, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    for sql in STREAMS:
        store.client.define(sql)
    path = tmp_path / "phone.db" if seed % 2 else None
    copies = _open(path, store)
    readers = [reader_of(name) for name in (*JOINS, *RESULTS)]
    for name, sql in (JOINS | RESULTS).items():
        copies.keep(name, sql, changes=True)
    whys: set[str] = set()
    for _ in range(25):
        for _ in range(chance.randrange(3)):
            _publish(store, chance)
        store.wait(chance.choice((0, 1, 4, 12)))
        if chance.random() < 0.2:
            _damage(copies, chance)
        store.line.cuts = [chance.randrange(8)] if chance.random() < 0.2 else []
        one_position = chance.random() < 0.2
        assert copies.sync(store.client, one_position=one_position).complete
        for reader in readers:
            read = reader.read(copies, syncs=1)
            whys |= {change.why for change in read}
            _check(reader.name, read)
        store.wait(chance.choice((0, 0, 6)))
        for reader in readers:
            reader.read(copies, syncs=1)
        if path is not None and chance.random() < 0.2:
            copies.close()
            copies = _open(path, store)
    copies.close()
    assert not any(reader.resets for reader in readers)
    assert {"new", "left"} <= whys


def _open(path: Path | None, store: InsideStore) -> Copies:
    if path is None:
        return Copies.in_memory(clock=store.now)
    return Copies(path, clock=store.now)


def _check(name: str, changes: list[AnswerChange]) -> None:
    if name in JOINS:
        assert all(change.tag != "u" and change.why != "gone" for change in changes)


def _publish(store: InsideStore, chance: random.Random) -> None:
    rows: list[dict[str, Any]] = [
        {"a": chance.randrange(4), "b": chance.choice("xyz")} for _ in range(chance.randrange(1, 4))
    ]
    stream = chance.choice("stk")
    if stream == "k" and chance.random() < 0.3:
        store.client.delete("k", [{"b": rows[0]["b"]}])
    else:
        store.client.publish(stream, rows)


def _damage(copies: Copies, chance: random.Random) -> None:
    name = chance.choice(list(JOINS | RESULTS))
    match chance.choice(("row", "lost", "state")):
        case "row":
            flip_in_rows(copies, name, chance)
            copies.verify([name])
        case "lost":
            lose_row(copies, name, chance)
        case _:
            flip_in_state(copies, name, chance, "state")
