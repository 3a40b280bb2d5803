"""What leaves a device: clearing copies, evicting them, and logging out."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from client_sdk import ConnectionFailed, Copies, NotSynced, UnknownCopy, Unsent
from tests.client_sdk.copies.rooms import HOT, ROOMS, read
from tests.support.client_sdk.file_kills import Killed, KillingConnection, kill
from tests.support.client_sdk.inside import InsideStore

SECRET = "a text that must not stay on the device"
BIG = "SELECT a, b FROM big"


def _rooms(store: InsideStore, copies: Copies, **options: Any) -> None:
    store.client.define(ROOMS)
    store.client.publish("rooms", [{"room": SECRET, "temp": 99}])
    copies.keep("hot", HOT, **options)
    copies.sync(store.client)


def _content(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "phone.db"


def test_clearing_removes_rows_and_keeps_declarations(store: InsideStore, path: Path) -> None:
    with Copies(path, clock=store.now) as copies:
        _rooms(store, copies, changes=True)
        assert SECRET.encode() in _content(path)
        cleared = copies.clear()
        assert (cleared.copies, cleared.discarded_rows, cleared.scrubbed) == (("hot",), 0, True)
        assert SECRET.encode() not in _content(path)
        with pytest.raises(NotSynced) as raised:
            copies["hot"].rows()
        assert raised.value.evicted_at is None
        copies.sync(store.client)
        assert [row["room"] for row in copies["hot"].rows()] == [SECRET]
        with copies.changes("hot") as batch:
            assert batch.reset == "CLEARED"


def test_clearing_some_and_forgetting(store: InsideStore, path: Path) -> None:
    with Copies(path, clock=store.now) as copies:
        _rooms(store, copies)
        copies.keep("all", "SELECT room FROM rooms")
        copies.sync(store.client)
        assert copies.clear(["hot"], forget=True).copies == ("hot",)
        assert copies.names == ["all"] and copies["all"].rows()
        with pytest.raises(UnknownCopy):
            copies.clear(["all", "nothing"])
        assert copies["all"].rows()


def test_the_queue_stays_unless_it_is_discarded(store: InsideStore, path: Path) -> None:
    with Copies(path, clock=store.now) as copies:
        _rooms(store, copies, edits=True)
        copies.publish("rooms", [{"room": "b", "temp": 90}, {"room": "c", "temp": 91}])
        copies.clear()
        assert copies.queued.rows == 2
        with pytest.raises(Unsent) as raised:
            copies.clear(keep_queue=False)
        assert raised.value.rows == 2 and copies.queued.rows == 2
        # What waits is shown again after the next sync, and is sent by it.
        assert copies.sync(store.client, send=False).complete
        assert {row["room"] for row in copies["hot"].rows()} == {SECRET, "b", "c"}
        assert copies.clear(keep_queue=False, discard_queue=True).discarded_rows == 2
        assert copies.queued.rows == 0
        copies.sync(store.client)
        assert {row["room"] for row in copies["hot"].rows()} == {SECRET}
        with pytest.raises(ValueError, match="queue belongs to all copies"):
            copies.clear(["hot"], discard_queue=True)


# ---- eviction


@pytest.fixture
def limited(store: InsideStore, path: Path) -> Copies:
    """Three copies of about 200 kB each in a file that may have 500 kB."""
    store.client.define("CREATE STREAM big (a BIGINT, b TEXT) KEY (a)")
    store.client.publish("big", [{"a": number, "b": "x" * 150} for number in range(1000)])
    return Copies(path, clock=store.now, most_bytes=500_000)


def test_the_least_recently_read_copies_are_evicted(store: InsideStore, limited: Copies) -> None:
    with limited as copies:
        for name in ("first", "second"):
            copies.keep(name, BIG)
            assert copies.sync(store.client).evicted == ()
        assert len(copies["second"]) == 1000
        store.wait(1)
        assert len(copies["first"]) == 1000
        copies.keep("third", BIG)
        store.wait(1)
        synced = copies.sync(store.client)
        assert synced.evicted == ("third",), "it was never read"
        copies.sync(store.client, only=["third"])
        assert len(copies["third"]) == 1000 and not copies["second"].synced
        assert copies["second"].evicted_at == store.now()
        with pytest.raises(NotSynced, match="was evicted") as raised:
            copies["second"].rows()
        assert raised.value.evicted_at == store.now()
        # A sync of all copies does not receive it again.
        assert "second" not in copies.sync(store.client)
        assert copies["first"].synced and copies["third"].synced


def test_reads_are_remembered_when_the_file_is_opened_again(
    store: InsideStore, path: Path, limited: Copies
) -> None:
    with limited as copies:
        for name in ("first", "second"):
            copies.keep(name, BIG)
        copies.sync(store.client)
        copies["second"].rows()
        store.wait(1)
        copies.query("SELECT count(*) FROM FIRST")
    with Copies(path, clock=store.now, most_bytes=300_000) as copies:
        assert copies.sync(store.client).evicted == ("second",)
    assert path.stat().st_size <= 300_000


def test_pinned_copies_and_the_queue_are_never_evicted(
    store: InsideStore, path: Path, limited: Copies
) -> None:
    limited.close()
    with Copies(path, clock=store.now, most_bytes=1) as copies:
        copies.keep("pinned", BIG, pinned=True)
        copies.keep("edited", BIG, edits=True, changes=True)
        copies.keep("other", BIG)
        copies.publish("big", [{"a": 1, "b": SECRET}])
        synced = copies.sync(store.client, send=False)
        assert set(synced.evicted) == {"edited", "other"} and copies["pinned"].pinned
        assert copies.queued.rows == 1 and SECRET.encode() in _content(path)
        assert len(copies["pinned"]) == 1000
        # The edit is sent, and nothing of it stays for a copy that shows nothing.
        assert copies.sync(store.client).sent.rows == 1
        assert {"a": 1, "b": SECRET} in copies["pinned"].rows()
        with copies._file.reading() as connection:
            assert connection.execute("SELECT count(*) FROM _psoup_queue").fetchone() == (0,)
    with Copies(path, clock=store.now) as copies:
        copies.sync(store.client, only=["edited"])
        assert {"a": 1, "b": SECRET} in copies["edited"].rows()
        with copies.changes("edited") as batch:
            assert batch.reset == "EVICTED"
        copies.keep("pinned", BIG)
        assert not copies["pinned"].pinned and copies["pinned"].synced


# ---- logging out


def test_logging_out_sends_unregisters_and_leaves_nothing(store: InsideStore, path: Path) -> None:
    with Copies(path, clock=store.now) as copies:
        _rooms(store, copies, edits=True)
        handmade = store.client.register("SELECT room FROM rooms", key="mine")
        copies.keep("by handle", handle=handmade.handle)
        copies.sync(store.client)
        copies.publish("rooms", [{"room": "b", "temp": 95}])
        out = copies.log_out(store.client)
        assert out.sent.rows == 1 and out.unregistered == ("hot",) and out.remaining == ()
        assert set(out.cleared.copies) == {"hot", "by handle"}
        assert copies.names == [] and copies.store_id is None
        assert copies.known_stream("rooms") is None
        assert SECRET.encode() not in _content(path)
        assert [entry.handle for entry in store.client.registrations()] == [handmade.handle]
        # The file may be used again.
        copies.keep("hot", HOT)
        copies.sync(store.client)
        assert {row["room"] for row in copies["hot"].rows()} == {SECRET, "b"}


def test_logging_out_with_a_full_queue_is_refused(store: InsideStore, path: Path) -> None:
    with Copies(path, clock=store.now) as copies:
        _rooms(store, copies, edits=True)
        copies.publish("rooms", [{"room": "b", "temp": 95}] * 3)
        with pytest.raises(Unsent, match="3 rows"):
            copies.log_out()
        assert copies.queued.rows == 3 and copies["hot"].rows()
        # A batch that the store refuses is not lost either.
        store.client.define("DROP STREAM rooms")
        with pytest.raises(Unsent, match="3 rows"):
            copies.log_out(store.client)
        assert copies.names == ["hot"]
        out = copies.log_out(discard_queue=True)
        assert out.cleared.discarded_rows == 3 and out.remaining == ("hot",)
        assert copies.names == [] and not copies.rejected and read_nothing(copies)


def read_nothing(copies: Copies) -> bool:
    return copies.queued.rows == 0 and copies.queued.rejected == 0


def test_changes_go_on_after_some_copies_were_cleared(store: InsideStore, path: Path) -> None:
    with Copies(path, clock=store.now) as copies:
        _rooms(store, copies, changes=True)
        copies.keep("all", "SELECT room FROM rooms")
        copies.sync(store.client)
        copies.clear(["all"])
        store.client.publish("rooms", [{"room": SECRET, "temp": 98}])
        copies.sync(store.client)
        assert [change.tag for change in read(copies, "hot")] == ["u"]


# ---- a log-out that is interrupted


def _device(store: InsideStore, path: Path) -> Copies:
    """A device with a queued row, and a copy with an own registration."""
    copies = Copies(path, clock=store.now)
    copies.keep("hot", HOT, edits=True)
    copies.keep("all", "SELECT room FROM rooms", changes=True)
    copies.sync(store.client)
    copies.publish("rooms", [{"room": path.stem, "temp": 95}])
    return copies


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_in_a_log_out(store: InsideStore, tmp_path: Path, after: bool) -> None:
    """Killed at every transaction, a device has all copies, which go on, or none."""
    store.client.define(ROOMS)
    store.client.publish("rooms", [{"room": SECRET, "temp": 99}])
    ends: set[str] = set()
    for commit in itertools.count(1):
        copies = _device(store, tmp_path / f"{commit}.db")
        file = copies._file
        file._connection = KillingConnection(file._connection, commit, after)  # type: ignore[assignment]
        try:
            copies.log_out(store.client)
        except Killed:
            kill(copies)
        else:
            copies.close()
            break
        with Copies(tmp_path / f"{commit}.db", clock=store.now) as copies:
            ends.add(_goes_on(store, copies, tmp_path / f"{commit}.db"))
    assert commit > 2 and ends == ({"all", "none"} if after else {"all"})
    sent = store.client.ask(f"SELECT room FROM rooms WHERE room <> '{SECRET}'").rows
    assert sorted(row["room"] for row in sent) == sorted(str(n + 1) for n in range(commit))


def _goes_on(store: InsideStore, copies: Copies, path: Path) -> str:
    """Check a device after a log-out that was cut off; return which copies it has."""
    if not copies.names:
        assert copies.store_id is None and read_nothing(copies)
        copies.log_out()
        assert SECRET.encode() not in _content(path)
        return "none"
    assert copies.names == ["hot", "all"]
    assert {row["room"] for row in copies["hot"].rows()} >= {SECRET, path.stem}
    registered = {entry.handle for entry in store.client.registrations()}
    assert {copies[name].handle for name in copies.names} <= registered, "nothing has ended"
    assert copies.sync(store.client).complete
    assert {row["room"] for row in copies["all"].rows()} >= {SECRET, path.stem}
    with copies.changes("all") as batch:
        assert not batch.reset, "its registration is the same"
    return "all"


@pytest.mark.parametrize("cut", range(8))
def test_a_line_that_breaks_in_a_log_out(store: InsideStore, path: Path, cut: int) -> None:
    """What was refused leaves everything as it was, registrations included."""
    store.client.define(ROOMS)
    store.client.publish("rooms", [{"room": SECRET, "temp": 99}])
    with _device(store, path) as copies:
        handles = {entry.handle for entry in store.client.registrations()}
        calls = len(store.line.calls)

        def broken(method: str, request: Any, timeout: float | None) -> Any:
            if len(store.line.calls) - calls >= cut:
                store.line.calls.append((method, request))
                raise ConnectionFailed("the line broke")
            return answer(method, request, timeout)

        answer, store.line.unary = store.line.unary, broken  # type: ignore[method-assign]
        try:
            out = copies.log_out(store.client)
        except Unsent:
            out = None
        finally:
            store.line.unary = answer  # type: ignore[method-assign]
        registered = {registration.handle for registration in store.client.registrations()}
        if out is None:
            assert registered == handles and copies.names == ["hot", "all"]
            assert copies.sync(store.client).complete and copies.queued.rows == 0
            assert {row["room"] for row in copies["hot"].rows()} == {SECRET, path.stem}
        else:
            assert copies.names == [] and SECRET.encode() not in _content(path)
            assert set(out.unregistered) | set(out.remaining) == {"hot", "all"}
            assert len(registered) == len(out.remaining)
