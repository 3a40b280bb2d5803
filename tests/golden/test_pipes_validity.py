"""PIPES (2009), tables VI to VIII: rows with a validity, joined and added up at every instant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Copies
from datastem.instants import SECOND, from_micros
from tests.support.client_sdk.inside import START, InsideStore

STATEMENT = (
    "CREATE STREAM {} (value TEXT, worth BIGINT, starts TIMESTAMP, ends TIMESTAMP)"
    " VALID FROM starts UNTIL ends"
)
WORTH = {"a": 1, "b": 10, "c": 100, "d": 1000, "e": 10_000}
TABLE_VI = {
    "s1": [("c", 1, 8), ("a", 5, 11), ("d", 6, 14), ("a", 9, 10), ("b", 12, 17)],
    "s2": [("b", 1, 7), ("d", 3, 9), ("a", 4, 5), ("b", 7, 15), ("e", 10, 18)],
}
TABLE_VII = [("d", 6, 9), ("b", 12, 15)]
TABLE_VIII = [
    *((1, 5, 100), (5, 6, 101), (6, 8, 1101), (8, 9, 1001), (9, 10, 1002)),
    *((10, 11, 1001), (11, 12, 1000), (12, 14, 1010), (14, 17, 10)),
]
JOIN = "SELECT a.value FROM s1 AS a, s2 AS b WHERE a.value = b.value"
SUM = "SELECT sum(worth) AS total FROM s1"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InsideStore]:
    inside = InsideStore(tmp_path)
    for stream in TABLE_VI:
        inside.client.define(STATEMENT.format(stream))
    yield inside
    inside.close()


def row(value: str, starts: int, ends: int) -> dict[str, Any]:
    first, until = (from_micros(START + second * SECOND) for second in (starts, ends))
    return {"value": value, "worth": WORTH[value], "starts": first, "ends": until}


def publish(store: InsideStore, second: int | None = None) -> None:
    """Publish the rows that begin at a second; all without one."""
    for stream, rows in TABLE_VI.items():
        beginning = [row(*entry) for entry in rows if second is None or entry[1] == second]
        if beginning:
            store.client.publish(stream, beginning)


def joined(second: int) -> list[str]:
    return [value for value, starts, ends in TABLE_VII if starts <= second < ends]


def total(second: int) -> int | None:
    return next((sum_ for starts, ends, sum_ in TABLE_VIII if starts <= second < ends), None)


@pytest.mark.parametrize("ahead", [True, False], ids=["all ahead", "as they begin"])
def test_tables_vii_and_viii_at_every_instant(store: InsideStore, ahead: bool) -> None:
    handles = [store.client.register(sql).handle for sql in (JOIN, SUM)]
    if ahead:
        publish(store)
    for second in range(20):
        store.clock = START + second * SECOND
        if not ahead:
            publish(store, second)
        for later in (0, SECOND - 1):
            store.clock = START + second * SECOND + later
            combinations, sums = (store.client.invoke(handle).rows for handle in handles)
            assert [row["value"] for row in combinations] == joined(second)
            assert sums == [{"total": total(second)}]


def test_table_vii_in_windows(store: InsideStore) -> None:
    """A window has the combinations whose common validity meets it, wherever it ends."""
    publish(store)
    store.clock = START + 10 * SECOND
    for begin in range(-11, 9):
        for end in range(begin, 9):
            window = f"BEGIN NOW {begin:+} SECONDS END NOW {end:+} SECONDS".replace("+", "+ ")
            answer = store.client.ask(f"{JOIN} {window.replace('-', '- ')}").rows
            assert [row["value"] for row in answer] == [
                value
                for value, starts, ends in TABLE_VII
                if starts <= 10 + end and 10 + begin < ends
            ]


def test_a_copy_offline_has_every_instant_of_the_tables(store: InsideStore, tmp_path: Path) -> None:
    publish(store)
    with Copies(tmp_path / "phone.db", clock=store.now) as copies:
        copies.keep("sum", SUM)
        copies.keep("rows", "SELECT value, worth FROM s1")
        copies.keep("join", JOIN)
        copies.sync(store.client)
        for second in range(20):
            store.clock = START + second * SECOND
            valid = [row["worth"] for row in copies["rows"]]
            assert (sum(valid) if valid else None) == total(second)
            for name, expected in (
                ("sum", [{"total": total(second)}]),
                ("join", [{"value": value} for value in joined(second)]),
            ):
                if not copies[name].state.fresh(store.now()):
                    copies.sync(store.client, only=[name])
                assert copies[name].rows() == expected
