"""Rows that were found right: known again as long as nothing has changed, and not a bit longer."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from client_sdk import Copies
from client_sdk._wire.values import Column
from client_sdk.copies._file.checksums import Checksums, StoredRow, signed
from client_sdk.copies._sync.verified import Sound, runs
from tests.client_sdk.copies.damage import flip_in_rows, flip_in_state, flipped
from tests.client_sdk.copies.inside import InsideStore

COLUMNS = [Column("n", "BIGINT"), Column("t", "TEXT"), Column("x", "DOUBLE")]


class Looking(Checksums):
    """Counts the rows it has looked at one by one."""

    looked = 0

    def wrong(self, rows: Sequence[StoredRow]) -> list[int]:
        self.looked += len(rows)
        return super().wrong(rows)


def stored(ids: Sequence[int]) -> list[StoredRow]:
    rows = [(n, None, 10 * n, b"k", 0, n, f"text {n}", n / 7) for n in ids]
    sums = Checksums(COLUMNS).of(rows)
    return [(*row[:4], signed(sum_), *row[5:]) for row, sum_ in zip(rows, sums, strict=True)]


def batches(rows: Sequence[StoredRow], size: int) -> list[Sequence[StoredRow]]:
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)]


def remembered(sound: Sound) -> Sound:
    return Sound(b"".join(sound._found))


@pytest.fixture(scope="module")
def many() -> list[StoredRow]:
    return stored(range(20_000))


def test_runs_are_the_rows_however_they_are_read(many: list[StoredRow]) -> None:
    whole = list(runs([many]))
    assert [row for run in whole for row in run] == many
    assert 10 < len(whole) < 40
    for size in (1, 999, 7000):
        assert list(runs(batches(many, size))) == whole


def test_a_run_without_an_end_is_cut() -> None:
    row = (1, None, None, b"", 1, 1, "a", 0.5)
    assert [len(run) for run in runs(batches([row] * 50_000, 10_000))] == [20_000, 20_000, 10_000]


def test_rows_that_come_and_go_leave_the_others_known(many: list[StoredRow]) -> None:
    sums, sound = Looking(COLUMNS), Sound()
    assert sound.wrong(batches(many, 10_000), sums) == [] and sums.looked == len(many)
    changed = many[3:8000] + many[8001:] + stored([20_000, 20_001])
    sums, later = Looking(COLUMNS), remembered(sound)
    assert later.wrong(batches(changed, 10_000), sums) == []
    assert later.changed and 0 < sums.looked < len(many) / 3
    sums, last = Looking(COLUMNS), remembered(later)
    assert last.wrong(batches(changed, 10_000), sums) == []
    assert not last.changed and sums.looked == 0


def test_a_value_that_changes_makes_its_run_unknown(many: list[StoredRow]) -> None:
    sound, chance = Sound(), random.Random(5)
    sound.wrong([many], Checksums(COLUMNS))
    for _ in range(40):
        place, column = chance.randrange(len(many)), chance.randrange(1, len(many[0]))
        row = list(many[place])
        row[column] = flipped(row[column], chance)
        damaged = [*many[:place], tuple(row), *many[place + 1 :]]
        assert remembered(sound).wrong([damaged], Checksums(COLUMNS)) == [row[0]]


def test_a_damaged_run_is_not_remembered(many: list[StoredRow]) -> None:
    damaged = [(*many[0][:4], 7, *many[0][5:]), *many[1:]]
    sound = Sound()
    for _ in range(2):
        assert sound.wrong([damaged], Checksums(COLUMNS)) == [0]
        sound = remembered(sound)


@pytest.mark.parametrize("content", [None, 5, "text", b"", b"odd", bytes(16), bytes(40)])
def test_what_is_remembered_may_be_anything(
    store: InsideStore, filed: Copies, content: object
) -> None:
    copies = kept(store, filed)
    with copies._file.writing() as connection:
        connection.execute("UPDATE _psoup_copies SET sound = ?", (content,))
    assert copies.sync(store.client)["rows"].repaired == 0
    assert flip_in_rows(copies, "rows", random.Random(2), "c0")
    assert copies.sync(store.client)["rows"].repaired == 1


def test_a_known_row_is_still_found_damaged(store: InsideStore, filed: Copies) -> None:
    copies = kept(store, filed)
    chance = random.Random(9)
    for turn in range(6):
        assert copies.sync(store.client)["rows"].rows == 0
        assert flip_in_rows(copies, "rows", chance)
        if turn % 2:
            assert flip_in_state(copies, "rows", chance, "sound")
        assert copies.sync(store.client).complete
        handle = copies["rows"].handle
        assert handle and copies["rows"].to_arrow().equals(store.client.invoke(handle).to_arrow())


def test_what_was_staged_is_known_at_once(store: InsideStore, filed: Copies) -> None:
    copies = kept(store, filed, rows=3000, syncs=1)
    with copies._file.reading() as connection:
        sound = Sound.read(connection, 1)
        assert sound.changed
        sums = Looking(COLUMNS[:2])
        assert sound.wrong([list(connection.execute("SELECT * FROM _psoup_rows_1_1"))], sums) == []
    assert 0 < sums.looked < 3000


def kept(store: InsideStore, copies: Copies, rows: int = 200, syncs: int = 2) -> Copies:
    store.client.define("CREATE STREAM s (i BIGINT, t TEXT) RETAIN 1 DAY")
    store.client.publish("s", [{"i": n, "t": f"text {n}"} for n in range(rows)])
    copies.keep("rows", "SELECT * FROM s RANGE 10 MINUTES")
    for _ in range(syncs):
        assert copies.sync(store.client).complete
    return copies
