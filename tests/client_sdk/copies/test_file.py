"""The file itself: what it is, who else has it, what happens when there is no room."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from client_sdk import (
    Copies,
    CopyError,
    FileBusy,
    FileDamaged,
    FileFull,
    UnknownCopy,
    WrongFile,
)
from client_sdk.copies._file import file
from client_sdk.copies._file.file import APPLICATION_ID, FORMAT
from tests.client_sdk.copies.trades import COUNTS, DEAR, TRADES, check, trade
from tests.support.client_sdk.inside import InsideStore


@pytest.fixture
def trade_copies(store: InsideStore, filed: Copies) -> Copies:
    store.client.define(TRADES)
    store.client.publish("trades", [trade("IBM", 184.5)] * 20)
    filed.keep("dear", DEAR)
    filed.keep("counts", COUNTS)
    filed.sync(store.client)
    return filed


def test_it_is_there_after_a_restart(
    store: InsideStore, trade_copies: Copies, tmp_path: Path
) -> None:
    store.wait(5)
    trade_copies["dear"].rows()
    trade_copies.close()
    store.wait(-100)
    with Copies(tmp_path / "copies.db", clock=store.now) as again:
        assert again.names == ["dear", "counts"] and len(again["dear"]) == 20
        assert {change.status for change in again.sync(store.client).values()} == {"unchanged"}


def test_now_does_not_run_back_over_a_restart(
    store: InsideStore, trade_copies: Copies, tmp_path: Path
) -> None:
    store.wait(700)
    assert len(trade_copies["dear"]) == 0
    trade_copies.close()
    store.wait(-300)
    with Copies(tmp_path / "copies.db", clock=store.now) as again:
        assert len(again["dear"]) == 0
        again.sync(store.client)
        assert again["dear"].state.now == store.now()


def test_its_marks(trade_copies: Copies, tmp_path: Path) -> None:
    trade_copies.close()
    with closing(sqlite3.connect(tmp_path / "copies.db")) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_newer_file(trade_copies: Copies, tmp_path: Path) -> None:
    trade_copies.close()
    with closing(sqlite3.connect(tmp_path / "copies.db")) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(WrongFile, match="newer version"):
        Copies(tmp_path / "copies.db")


def test_a_file_of_a_format_that_was_never_released_is_refused(tmp_path: Path) -> None:
    path, sample = tmp_path / "old.db", Path(__file__).parent / "samples" / "format-3.db"
    shutil.copy(sample, path)
    with pytest.raises(WrongFile, match=f"format 3, this one reads {FORMAT}.: keep a new file"):
        Copies(path)
    assert path.read_bytes() == sample.read_bytes(), "it is left as it was"


def test_an_upgrade_is_done_at_once_or_not_at_all(
    trade_copies: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place where upgrades are written is used, though no format has one yet."""
    trade_copies.close()
    path = tmp_path / "copies.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT - 1}")
    statements = {FORMAT - 1: "CREATE TABLE _psoup_new (a); INSERT INTO _psoup_new VALUES (1, 2)"}
    monkeypatch.setattr(file, "_UPGRADES", statements)
    with pytest.raises(FileDamaged, match="2 values"):
        Copies(path)
    statements[FORMAT - 1] = "CREATE TABLE _psoup_new (a); INSERT INTO _psoup_new VALUES (1)"
    for _ in range(2):
        with Copies(path) as copies:
            assert copies.names == ["dear", "counts"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
        assert connection.execute("SELECT a FROM _psoup_new").fetchall() == [(1,)]


def test_other_files(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE t (a)")
    with pytest.raises(WrongFile, match="another program"):
        Copies(tmp_path / "other.db")
    (tmp_path / "text").write_text("no database at all, but long enough to be taken for one" * 40)
    with pytest.raises(WrongFile, match="no SQLite file"):
        Copies(tmp_path / "text")
    with pytest.raises(CopyError, match="unable to open"):
        Copies(tmp_path / "no folder" / "copies.db")
    with pytest.raises(CopyError, match="unable to open"):
        Copies(tmp_path)


def test_no_room(store: InsideStore, trade_copies: Copies) -> None:
    """Nothing changes, and when there is room again it goes on."""
    store.client.publish("trades", [trade("x" * 500, 184.5)] * 400)
    with trade_copies._file.alone() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 8}")
    with pytest.raises(FileFull, match="as they were"):
        trade_copies.sync(store.client)
    with pytest.raises(FileFull):
        trade_copies.keep(
            "large", "SELECT price FROM trades WHERE symbol <> '" + "y" * 90_000 + "'"
        )
    assert len(trade_copies["dear"]) == 20
    with trade_copies._file.alone() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    assert trade_copies.sync(store.client).complete
    assert len(trade_copies["dear"]) == 420
    check(store, trade_copies)


def test_a_file_that_another_writes(
    store: InsideStore, trade_copies: Copies, tmp_path: Path
) -> None:
    """Reading goes on; writing waits, and says so when it has waited long enough."""
    with closing(sqlite3.connect(tmp_path / "copies.db", isolation_level=None)) as second:
        second.execute("BEGIN IMMEDIATE")
        store.wait(10)
        assert len(trade_copies["dear"]) == 20
        with trade_copies._file.alone() as connection:
            connection.execute("PRAGMA busy_timeout = 50")
        with pytest.raises(FileBusy, match="another process"):
            trade_copies.keep("more", DEAR)
        second.execute("ROLLBACK")
    trade_copies.keep("more", DEAR)


def test_one_sync_at_a_time(store: InsideStore, trade_copies: Copies, tmp_path: Path) -> None:
    store.client._session.timeout = 0.2
    with Copies(tmp_path / "copies.db", clock=store.now) as second:
        acquired = second._lock.acquire(1.0)
        assert next(acquired, "free") == "free"
        with pytest.raises(FileBusy, match="another sync"):
            trade_copies.sync(store.client)
        second._lock.release()
    assert trade_copies.sync(store.client).complete


def test_what_another_synced_meanwhile_is_not_overwritten(
    store: InsideStore, trade_copies: Copies, tmp_path: Path
) -> None:
    """The lock apart: a transfer is taken only on what it was begun from."""
    store.client.publish("trades", [trade("SUN", 184.5)] * 100)
    with Copies(tmp_path / "copies.db", clock=store.now) as second:
        parts = 0

        def sync_in_between(item: object, part: object) -> None:
            nonlocal parts
            parts += 1
            if parts == 5:
                store.line._note = lambda item, part: None
                second.sync(store.client)

        store.line._note = sync_in_between
        trade_copies._lock, second._lock = (
            second._lock,
            type(second._lock)(type(second._file)(None)),
        )
        assert trade_copies.sync(store.client).complete
    check(store, trade_copies)


def test_kept_anew_in_the_middle_of_a_sync(store: InsideStore, trade_copies: Copies) -> None:
    store.client.publish("trades", [trade("SUN", 184.5)] * 100)

    def keep_anew(item: object, part: object) -> None:
        store.line._note = lambda item, part: None
        trade_copies.keep("dear", "SELECT price FROM trades WHERE price > 100 RANGE 1 MINUTE")

    store.line._note = keep_anew
    synced = trade_copies.sync(store.client)
    assert isinstance(synced["dear"].error, UnknownCopy) and synced["counts"].status == "changed"
    assert trade_copies.sync(store.client).complete
    check(store, trade_copies)


def test_threads_take_turns(store: InsideStore, trade_copies: Copies) -> None:
    problems: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(30):
                assert len(trade_copies["dear"].rows()) in (20, 21)
                assert trade_copies.query("SELECT count(*) AS n FROM dear")[0]["n"] in (20, 21)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    store.client.publish("trades", [trade("SUN", 184.5)])
    trade_copies.sync(store.client)
    for thread in threads:
        thread.join()
    assert problems == []


def test_recovery(store: InsideStore, trade_copies: Copies, tmp_path: Path) -> None:
    path = tmp_path / "copies.db"
    trade_copies.close()
    content = bytearray(path.read_bytes())
    content[100:108] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(FileDamaged, match=r"Copies.recover"):
        Copies(path)
    lost = Copies.recover(path)
    assert lost.kept == () and lost.damaged.read_bytes() == bytes(content)
    with pytest.raises(CopyError, match="move it away"):
        Copies.recover(path)
    with pytest.raises(CopyError, match="no file"):
        Copies.recover(tmp_path / "nothing.db")


def test_recovery_keeps_what_was_kept(
    store: InsideStore, trade_copies: Copies, tmp_path: Path
) -> None:
    """A page of rows is gone; what was declared is not."""
    path = tmp_path / "copies.db"
    with trade_copies._file.reading() as connection:
        select = "SELECT rootpage FROM sqlite_master WHERE name LIKE '_psoup_rows%'"
        pages = [page for (page,) in connection.execute(select)]
    trade_copies.close()
    content = bytearray(path.read_bytes())
    for page in pages:
        content[(page - 1) * 4096 : page * 4096] = bytes(4096)
    path.write_bytes(content)
    with Copies(path) as damaged, pytest.raises(FileDamaged):
        damaged.sync(store.client)
    assert Copies.recover(path).kept == ("dear", "counts")
    with Copies(path, clock=store.now) as recovered:
        assert recovered.sync(store.client).complete
        check(store, recovered)
