"""When every row of a copy is read, what a sync notices without that, and how damage ends."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from client_sdk import Copies, FileDamaged, UnknownCopy, Verified
from client_sdk.copies._file import catalog, tables
from client_sdk.copies._file.checksums import NO_ROWS, Sums, digest
from client_sdk.copies._sync import opening
from tests.support.client_sdk.damage import flip_in_rows, flip_in_state, lose_row, rows_table
from tests.support.client_sdk.inside import InsideStore

ROWS = 60
DAY = timedelta(days=1).total_seconds()
DAMAGED = Verified(rows=ROWS, damaged=1, complete=True)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables whose rows were all read and held against their checksums."""
    selects: list[str] = []
    damaged = tables.damaged

    def noted(connection, table, columns):
        selects.append(table)
        return damaged(connection, table, columns)

    monkeypatch.setattr(tables, "damaged", noted)
    return selects


@pytest.fixture
def synced_copies(store: InsideStore, filed: Copies) -> Copies:
    store.client.define("CREATE STREAM s (i BIGINT, t TEXT) RETAIN 30 DAYS")
    store.client.publish("s", [{"i": n, "t": f"text {n}"} for n in range(ROWS)])
    filed.keep("rows", "SELECT * FROM s RANGE 20 DAYS")
    assert filed.sync(store.client).complete
    return filed


def flip(copies: Copies, column: str = "c1") -> None:
    assert flip_in_rows(copies, "rows", random.Random(2), column)


def check(store: InsideStore, copies: Copies) -> None:
    handle = copies["rows"].handle
    assert handle and copies["rows"].to_arrow().equals(store.client.invoke(handle).to_arrow())


def test_sums_follow_from_those_before() -> None:
    chance = random.Random(5)
    present: list[int] = []
    sums = NO_ROWS
    for _ in range(50):
        came = [chance.randrange(-(2**63), 2**63) for _ in range(chance.randrange(9))]
        removed = chance.sample(present, chance.randrange(len(present) + 1))
        present = [number for number in [*present, *came] if number not in removed]
        sums = sums.plus(came).minus(removed)
        assert sums == Sums(len(present), digest(present)) == Sums.of(present)


# ---- what a sync looks at


def test_a_sync_reads_no_row_that_was_there(
    store: InsideStore, synced_copies: Copies, read: list[str]
) -> None:
    synced_copies.sync(store.client)
    store.client.publish("s", [{"i": 1000, "t": "new"}])
    change = synced_copies.sync(store.client)["rows"]
    assert (change.rows, read) == (1, [])
    check(store, synced_copies)


def test_a_value_that_changes_is_found_by_verify_and_repaired_by_the_next_sync(
    store: InsideStore, synced_copies: Copies
) -> None:
    flip(synced_copies)
    assert synced_copies.sync(store.client)["rows"].repaired == 0
    assert synced_copies.verify() == {"rows": DAMAGED}
    assert not DAMAGED.sound
    assert synced_copies.sync(store.client)["rows"].repaired == 1
    check(store, synced_copies)
    assert synced_copies.verify()["rows"].sound
    assert synced_copies.sync(store.client)["rows"].repaired == 0


def test_a_row_that_is_lost_is_noticed_by_its_sync(
    store: InsideStore, synced_copies: Copies
) -> None:
    assert lose_row(synced_copies, "rows", random.Random(1))
    change = synced_copies.sync(store.client)["rows"]
    assert (change.rows, change.whole) == (1, False)
    check(store, synced_copies)


def test_a_table_that_is_gone_comes_whole(store: InsideStore, synced_copies: Copies) -> None:
    with synced_copies._file.writing() as connection:
        connection.execute(f"DROP TABLE {rows_table(synced_copies, 'rows')}")
    assert synced_copies.sync(store.client)["rows"].whole
    check(store, synced_copies)


def test_a_sync_that_notices_reads_everything(store: InsideStore, synced_copies: Copies) -> None:
    """So what it could not have noticed is repaired with what it has."""
    flip(synced_copies)
    assert lose_row(synced_copies, "rows", random.Random(3))
    change = synced_copies.sync(store.client)["rows"]
    assert change.repaired == 1 and not change.whole
    check(store, synced_copies)


def test_what_was_noticed_is_not_forgotten_when_the_line_is_cut(
    store: InsideStore, synced_copies: Copies, read: list[str]
) -> None:
    flip(synced_copies)
    assert lose_row(synced_copies, "rows", random.Random(3))
    store.line.cuts = [None, 0, 0, 0]
    with pytest.raises(Exception, match="cut"):
        synced_copies.sync(store.client)
    read.clear()
    assert synced_copies.sync(store.client)["rows"].repaired == 1
    assert len(read) == 1
    check(store, synced_copies)


# ---- when it is due


def test_once_a_day(store: InsideStore, synced_copies: Copies, read: list[str]) -> None:
    store.wait(DAY - 60)
    synced_copies.sync(store.client)
    assert read == []
    flip(synced_copies)
    store.wait(120)
    assert synced_copies.sync(store.client)["rows"].repaired == 1
    assert len(read) == 1
    store.wait(DAY - 60)
    synced_copies.sync(store.client)
    assert len(read) == 1


def test_a_clock_that_was_ahead_does_not_put_it_off(
    store: InsideStore, synced_copies: Copies, tmp_path: Path
) -> None:
    synced_copies.close()
    ahead = store.now() + timedelta(days=900)
    with Copies(tmp_path / "copies.db", clock=lambda: ahead) as wrong:
        assert wrong.verify()["rows"].sound
        flip(wrong)
    with Copies(tmp_path / "copies.db", clock=store.now) as right:
        assert right.sync(store.client)["rows"].repaired == 1


def test_another_version_of_the_sdk(
    store: InsideStore, synced_copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(synced_copies)
    monkeypatch.setattr(catalog, "_sdk_version", lambda: "9.9")
    assert synced_copies.sync(store.client)["rows"].repaired == 1


@pytest.mark.parametrize("content", [None, 5, "text", b"", b"odd", bytes(16), bytes(40)])
def test_what_is_noted_may_be_anything(
    store: InsideStore, synced_copies: Copies, content: object
) -> None:
    """Also what versions before this one have written there."""
    for turn in range(2):
        with synced_copies._file.writing() as connection:
            connection.execute("UPDATE _psoup_copies SET sound = ?", (content,))
        if turn:
            flip(synced_copies, "c0")
        assert synced_copies.sync(store.client)["rows"].repaired == turn


def test_a_note_that_is_damaged_is_doubt(store: InsideStore, synced_copies: Copies) -> None:
    for turn in range(6):
        flip(synced_copies)
        assert flip_in_state(synced_copies, "rows", random.Random(turn), "sound")
        assert synced_copies.sync(store.client)["rows"].repaired == 1
        check(store, synced_copies)


def test_damage_that_a_reader_met(
    store: InsideStore, synced_copies: Copies, tmp_path: Path
) -> None:
    """The next sync repairs it, in this process or in another one."""
    for again in (False, True):
        table = rows_table(synced_copies, "rows")
        with synced_copies._file.writing() as connection:
            connection.execute(f"UPDATE {table} SET c0 = 'none' WHERE row_id = 7")
        with pytest.raises(FileDamaged, match="next sync repairs"):
            synced_copies["rows"].rows()
        if again:
            synced_copies.close()
            synced_copies = Copies(tmp_path / "copies.db", clock=store.now)
        assert synced_copies.sync(store.client)["rows"].repaired == 1
        check(store, synced_copies)
    synced_copies.close()


# ---- a file that was not closed in order


@pytest.fixture
def left_open(synced_copies: Copies, tmp_path: Path) -> Iterator[Path]:
    """A file as a process leaves it that is killed, with a value that was damaged."""
    flip(synced_copies)
    path = tmp_path / "left" / "copies.db"
    path.parent.mkdir()
    for name in ("copies.db", "copies.db-wal"):
        shutil.copy(tmp_path / name, path.parent / name)
    yield path


def test_a_file_left_open_is_verified(store: InsideStore, left_open: Path) -> None:
    with Copies(left_open, clock=store.now) as copies:
        assert copies.sync(store.client)["rows"].repaired == 1
        flip(copies)
        assert copies.sync(store.client)["rows"].repaired == 0


def test_a_file_left_open_is_verified_also_when_others_only_read_it_first(
    store: InsideStore, left_open: Path
) -> None:
    for _ in range(2):
        with Copies(left_open, clock=store.now) as copies:
            assert len(copies["rows"]) == ROWS
    with Copies(left_open, clock=store.now) as copies:
        assert copies.sync(store.client)["rows"].repaired == 1


def test_a_file_that_another_has_open_was_not_left_open(
    store: InsideStore, synced_copies: Copies, tmp_path: Path, read: list[str]
) -> None:
    with Copies(tmp_path / "copies.db", clock=store.now) as second:
        assert len(second["rows"]) == ROWS
    synced_copies.sync(store.client)
    assert read == []


def test_a_file_closed_in_order_is_not_read_again(
    store: InsideStore, synced_copies: Copies, tmp_path: Path, read: list[str]
) -> None:
    synced_copies.close()
    with Copies(tmp_path / "copies.db", clock=store.now) as copies:
        copies.sync(store.client)
    assert read == []


# ---- verify


def test_verify_asks_for_names(store: InsideStore, synced_copies: Copies) -> None:
    synced_copies.keep("never", "SELECT i FROM s RANGE 1 MINUTE")
    assert (
        synced_copies.verify()
        == {"rows": Verified(ROWS, 0, True)}
        == synced_copies.verify(["rows"])
    )
    assert synced_copies.verify(["never"]) == {}
    with pytest.raises(UnknownCopy):
        synced_copies.verify(["other"])
    with pytest.raises(TypeError):
        synced_copies.verify("rows")


def test_verify_tells_of_rows_that_are_missing(store: InsideStore, synced_copies: Copies) -> None:
    lose_row(synced_copies, "rows", random.Random(1))
    assert synced_copies.verify() == {"rows": Verified(ROWS - 1, 0, False)}
    with synced_copies._file.writing() as connection:
        connection.execute(f"DROP TABLE {rows_table(synced_copies, 'rows')}")
    assert synced_copies.verify() == {"rows": Verified(0, 0, False)}
    assert synced_copies.sync(store.client)["rows"].whole
    check(store, synced_copies)


def test_verify_finds_pages_that_are_broken(
    store: InsideStore, synced_copies: Copies, tmp_path: Path
) -> None:
    with synced_copies._file.reading() as connection:
        select = "SELECT rootpage FROM sqlite_master WHERE name = '_psoup_queue'"
        (page,) = connection.execute(select).fetchone()
    synced_copies.close()
    content = bytearray((tmp_path / "copies.db").read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    (tmp_path / "copies.db").write_bytes(content)
    with Copies(tmp_path / "copies.db") as damaged, pytest.raises(FileDamaged, match="recover"):
        damaged.verify()


def test_a_repair_that_takes_too_large_a_message_asks_for_all(
    store: InsideStore, synced_copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "MOST_TYPED_BYTES", 10)
    flip(synced_copies)
    synced_copies.verify()
    synced = synced_copies.sync(store.client)
    assert synced.complete and synced["rows"].whole
    (request,) = [sent for method, sent in store.line.calls if method == "Sync"][-1:]
    assert request.items[0].whole and not request.items[0].HasField("resend")
    check(store, synced_copies)
