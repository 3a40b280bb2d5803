"""The queue: whatever breaks, each batch is in the store once, in order, or is named as refused."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk import (
    AsyncClient,
    Client,
    Conflict,
    ConnectionFailed,
    Copies,
    ErrorDetail,
    ForeignAnswer,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    OtherStore,
    PsoupError,
    Retry,
    RowProblem,
    Timeout,
)
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._queue.outbox import Outbox
from psoup.v1 import psoup_pb2 as pb
from tests.client_sdk.fake_store import FakeStore

SQL = "CREATE STREAM s (a BIGINT, b TEXT)"
AT = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


class FlakyStore(FakeStore):
    """`faults` says, for each publish, whether it is lost on its way there or on its way back.

    One that `forgets` is as a server started anew: of each publisher it knows the last batch only.
    """

    def __init__(self) -> None:
        super().__init__()
        self.faults: Iterator[str] = iter(())
        self.forgets = False
        self.taken_rows: list[int] = []
        self.taken_bytes: list[int] = []

    def Publish(self, request: pb.PublishRequest) -> pb.PublishResponse:
        fault = next(self.faults, "")
        if self.forgets and (request.publisher, request.sequence + 1) in self._published:
            return pb.PublishResponse(
                position=b"last", first_row_id=-1, duplicate=True, unverified=True
            )
        if fault == "there":
            raise ConnectionFailed("cut")
        reply = super().Publish(request)
        self.taken_rows.append(reply.row_count)
        self.taken_bytes.append(request.ByteSize())
        if fault == "back":
            raise Timeout("cut")
        return reply

    def values(self, name: str = "s", column: str = "a") -> list[Any]:
        found: list[Any] = self._streams[name].rows.column(column).to_pylist()
        return found


def client_of(store: FakeStore) -> Client:
    return Client(transport=store.transport(), retry=Retry(attempts=1))


@pytest.fixture
def store() -> FlakyStore:
    store = FlakyStore()
    client_of(store).define(SQL)
    return store


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Outbox]]:
    """Opens the test's file, as often as it is called."""
    files: list[CopyFile] = []

    def one() -> Outbox:
        files.append(CopyFile(tmp_path / "phone.db"))
        return Outbox(files[-1])

    yield one
    for file in files:
        file.close()


def rows(*values: int) -> list[dict[str, Any]]:
    return [{"a": value, "b": str(value)} for value in values]


def test_what_is_queued_offline_is_sent_in_order(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    outbox = opened()
    assert not outbox.queued and outbox.publish("s", []) is None
    assert [outbox.publish("s", rows(n, n + 100)) for n in range(5)] == [1, 2, 3, 4, 5]
    found = opened().queued
    assert (found.batches, found.rows, list(found.streams)) == (5, 10, ["s"])
    assert found.bytes > 0 and found.streams["s"].oldest <= datetime.now(UTC)
    sent = outbox.send(client_of(store))
    assert (sent.batches, sent.rows, sent.duplicates, sent.rejected) == (5, 10, 0, ())
    assert store.values() == [0, 100, 1, 101, 2, 102, 3, 103, 4, 104]
    assert not outbox.queued and outbox.send(client_of(store)).batches == 0


async def test_async_sends_the_same_queue(store: FlakyStore, opened: Callable[[], Outbox]) -> None:
    outbox = opened()
    outbox.publish("s", rows(1, 2))
    async with AsyncClient(transport=store.transport()) as client:
        assert (await outbox.learn_async(client, "s")).name == "s"
        assert (await outbox.send_async(client)).rows == 2
    assert store.values() == [1, 2]


def test_rows_are_checked_at_once_where_the_stream_is_known(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    outbox = opened()
    assert outbox.known_stream("s") is None
    assert outbox.learn(client_of(store), "s") is not None
    again = opened().known_stream("s")
    assert again is not None and [column.type for column in again.columns] == ["BIGINT", "TEXT"]
    with pytest.raises(RowProblem, match="row 1: missing b"):
        outbox.publish("s", [{"a": 1, "b": "x"}, {"a": 2}])
    assert not outbox.queued


def test_rows_for_an_unknown_stream_keep_what_they_are(opened: Callable[[], Outbox]) -> None:
    """Every type, and which columns each row has; they are checked when they are sent."""
    store, outbox = FlakyStore(), opened()
    client = client_of(store)
    row = {
        "i": 2**53 + 1, "d": 0.1, "t": "é\x00", "p": Decimal("1.50"), "k": True, "n": None,
        "m": AT, "y": date(2024, 2, 29),
    }  # fmt: skip
    outbox.publish("every", [row, {**row, "n": 7}])
    outbox.publish("every", pa.Table.from_pylist([row], schema=None))
    outbox.publish("every", [row, {"i": 1}])
    outbox.publish("every", [{**row, "n": 8}])
    client.define(
        "CREATE STREAM every (i BIGINT, d DOUBLE, t TEXT, p DECIMAL(10,2), k BOOLEAN, n BIGINT, "
        "m TIMESTAMP, y DATE)"
    )
    sent = outbox.send(client)
    assert (sent.batches, sent.rows) == (3, 4)
    assert store.values("every", "n") == [None, 7, None, 8]
    assert store._streams["every"].rows.slice(0, 1).select(list(row)).to_pylist() == [row]
    [refused] = outbox.rejected
    assert sent.rejected == (refused,) and "row 1: missing" in refused.message
    assert refused.content == [row, {"i": 1}]
    assert (refused.batch, refused.stream, refused.row_count) == (3, "every", 2)
    with pytest.raises(TypeError, match="has no type"):
        outbox.publish("other", [{"a": object()}])


def test_what_the_store_refuses_for_good_is_put_aside(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    """It blocks nothing, is not lost, and leaves no gap in the sequences."""
    outbox, client = opened(), client_of(store)
    outbox.publish("s", rows(1))
    outbox.heartbeat("gone", AT)
    outbox.publish("gone", rows(2))
    outbox.publish("s", rows(3))
    sent = outbox.send(client)
    assert (sent.batches, store.values()) == (2, [1, 3])
    assert [one.reason for one in sent.rejected] == ["UNKNOWN_STREAM"] * 2
    assert (outbox.queued.batches, outbox.queued.rejected) == (0, 2)
    client.define("CREATE STREAM gone (a BIGINT, b TEXT)")
    assert outbox.requeue(sent.rejected[1].batch) == 1
    assert outbox.send(client).rows == 1 and store.values("gone") == [2]
    with pytest.raises(ValueError, match="no batch 3 was refused; those that were: 2"):
        outbox.requeue(3)
    assert outbox.rejected[0].content == AT
    assert outbox.discard() == 1 and not outbox.rejected


def test_deletes_and_heartbeats_are_queued_too(opened: Callable[[], Outbox]) -> None:
    store, outbox = FlakyStore(), opened()
    client = client_of(store)
    client.define("CREATE STREAM k (a BIGINT, b TEXT, at TIMESTAMP) KEY (b) ORDERED BY at")
    outbox.publish("k", [{"a": 1, "b": "x", "at": AT}])
    outbox.delete("k", [{"b": "x", "at": AT + timedelta(hours=1)}])
    outbox.heartbeat("k", AT + timedelta(hours=2))
    assert outbox.send(client).batches == 3
    assert store.values("k", "_op") == ["row", "delete"]
    assert store._streams["k"].now == AT + timedelta(hours=2)


def test_large_batches_are_cut(store: FlakyStore, opened: Callable[[], Outbox]) -> None:
    outbox, client = opened(), client_of(store)
    outbox.learn(client, "s")
    outbox.publish("s", pa.table({"a": range(9), "b": ["x" * 1_000_000] * 9}))
    assert outbox.queued.batches > 1
    assert outbox.send(client).rows == 9
    assert store.values() == list(range(9))


def test_a_full_queue_says_so(opened: Callable[[], Outbox]) -> None:
    outbox = opened()
    small = Outbox(outbox._file, queue_bytes=100)
    small.publish("s", rows(1))
    with pytest.raises(LimitExceeded, match="may hold 100; .* queue_bytes"):
        small.publish("s", rows(*range(50)))
    assert outbox.queued.rows == 1


# ---- what breaks


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["put", "put", "bad", "reopen"]),
            st.tuples(st.integers(0, 1), st.lists(st.sampled_from(["", "there", "back"]))),
        ),
        max_size=25,
    )
)
@settings(max_examples=40, deadline=None)
def test_oracle_exactly_once_and_in_order(steps: list[Any]) -> None:
    """Two processes on one file, requests and acknowledgements lost, files closed and opened."""
    store, expected, refused = FlakyStore(), [], 0
    client = client_of(store)
    client.define(SQL)
    path = Path(tempfile.mkdtemp()) / "phone.db"
    files = [CopyFile(path), CopyFile(path)]
    for number, step in enumerate([*steps, (0, []), (1, [])]):
        if step == "put":
            Outbox(files[number % 2]).publish("s", rows(number))
            expected.append(number)
        elif step == "bad":
            Outbox(files[number % 2]).publish("nowhere", rows(number))
            refused += 1
        elif step == "reopen":
            files[number % 2].close()
            files[number % 2] = CopyFile(path)
        else:
            who, faults = step
            store.faults = iter(faults)
            try:
                Outbox(files[who]).send(client)
            except (ConnectionFailed, Timeout):
                assert faults
    assert store.values() == expected
    assert Outbox(files[0]).queued.batches == 0 and len(Outbox(files[1]).rejected) == refused
    for file in files:
        file.close()
    shutil.rmtree(path.parent)


def test_a_batch_that_was_taken_and_then_refused_uses_up_its_sequence(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    """The acknowledgement was lost, and then the stream was dropped: the next goes on."""
    outbox, client = opened(), client_of(store)
    client.define("CREATE STREAM other (a BIGINT, b TEXT)")
    outbox.learn(client, "s")
    outbox.publish("s", rows(1))
    store.faults = iter(["back"])
    with pytest.raises(Timeout):
        outbox.send(client)
    client.define("DROP STREAM s")
    outbox.publish("other", rows(2))
    outbox.publish("other", rows(3))
    sent = outbox.send(client)
    assert [one.reason for one in sent.rejected] == ["UNKNOWN_STREAM"]
    assert store.values("other") == [2, 3]


def test_another_store_gets_what_waits_only_when_told(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    outbox = opened()
    outbox.publish("s", rows(1))
    outbox.send(client_of(store))
    other = FlakyStore()
    client_of(other).define(SQL)
    outbox.publish("s", rows(2))
    with pytest.raises(OtherStore, match=f"belongs to store {store.store_id}"):
        outbox.send(client_of(other))
    assert outbox.queued.rows == 1 and outbox.store_id == store.store_id
    assert outbox.move(client_of(other)) == other.store_id == outbox.store_id
    assert outbox.send(client_of(other)).rows == 1
    assert (store.values(), other.values()) == ([1], [2])


# ---- whose word counts


def refusals() -> list[PsoupError]:
    """What a proxy, a captive portal or another store may answer to any call."""
    said = ErrorDetail("UNKNOWN_STREAM", store_id="another")
    return [
        ForeignAnswer("this is not a PSoup store", code="UNIMPLEMENTED"),
        InvalidRequest("no", code="UNIMPLEMENTED"),
        InvalidRequest("no"),
        InvalidRequest("no", code="OUT_OF_RANGE"),
        LimitExceeded("no"),
        NotFound("no"),
        NotFound("no such stream", detail=said),
        RowProblem("no such row", detail=ErrorDetail("WRONG_TYPE", store_id="another")),
        Conflict("not these rows", detail=ErrorDetail("SEQUENCE_REUSED", store_id="another")),
    ]


@pytest.mark.parametrize("error", refusals(), ids=lambda error: f"{error.code}-{error.reason}")
@pytest.mark.parametrize("call", ["Status", "DescribeStream", "Publish"])
def test_only_the_store_s_own_word_rejects(
    store: FlakyStore, opened: Callable[[], Outbox], error: PsoupError, call: str
) -> None:
    outbox = opened()
    outbox.publish("s", rows(1))
    transport = store.transport()
    usual = transport._handlers[call]
    transport._handlers[call] = lambda request: raise_(error)
    client = Client(transport=transport, retry=Retry(attempts=1))
    with pytest.raises(PsoupError):
        outbox.send(client)
    assert (outbox.queued.rows, outbox.rejected, outbox.doubtful) == (1, [], [])
    transport._handlers[call] = usual
    assert outbox.send(client).rows == 1 and store.values() == [1]


def raise_(error: PsoupError) -> Any:
    raise error


def test_a_batch_is_tried_only_when_it_may_have_left(
    store: FlakyStore, tmp_path: Path, opened: Callable[[], Outbox]
) -> None:
    outbox = opened()
    outbox.publish("s", rows(1))
    transport = store.transport()
    transport._handlers["Status"] = lambda request: raise_(ConnectionFailed("cut"))
    with pytest.raises(ConnectionFailed):
        outbox.send(Client(transport=transport, retry=Retry(attempts=1)))
    assert _tried(tmp_path / "phone.db") == [None]
    store.faults = iter(["there"])
    with pytest.raises(ConnectionFailed):
        outbox.send(client_of(store))
    assert _tried(tmp_path / "phone.db") != [None]


def _tried(path: Path) -> list[Any]:
    raw = sqlite3.connect(path)
    found = [row[0] for row in raw.execute("SELECT tried FROM _psoup_queue")]
    raw.close()
    return found


# ---- limits


def test_batches_are_cut_to_what_the_store_takes_now(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    """Also pieces of a batch, in their order; one row past the limit is refused alone, and here."""
    outbox, client = opened(), client_of(store)
    outbox.learn(client, "s")
    long = [{"a": n, "b": "x" * (90_000 if n == 5 else 3_000)} for n in range(12)]
    outbox.publish("s", long)
    outbox.publish("s", rows(100))
    store.limits = pb.Limits(message_bytes=20_000, batch_rows=3, batch_bytes=50_000)
    sent = outbox.send(client)
    assert store.values() == [n for n in range(12) if n != 5] + [100]
    assert max(store.taken_rows) == 3 and max(store.taken_bytes) <= 20_000
    [refused] = sent.rejected
    assert (refused.reason, refused.content.column("a").to_pylist()) == ("ROW_TOO_LARGE", [5])
    assert not outbox.queued


def test_rows_are_checked_against_the_limits_of_the_last_contact(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    outbox, client = opened(), client_of(store)
    store.limits = pb.Limits(message_bytes=20_000, batch_rows=3)
    outbox.learn(client, "s")
    outbox.publish("s", rows(0))
    outbox.send(client)
    with pytest.raises(LimitExceeded, match="one row takes") as caught:
        opened().publish("s", [{"a": 1, "b": "x" * 30_000}])
    assert caught.value.reason == "ROW_TOO_LARGE" and not outbox.queued
    outbox.publish("s", rows(1, 2, 3, 4))
    assert outbox.queued.batches == 2


def test_what_may_have_left_is_not_cut_otherwise(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    """It was taken whole, and the store that takes less now can't be asked: nobody guesses."""
    outbox, client = opened(), client_of(store)
    outbox.learn(client, "s")
    outbox.publish("s", rows(1, 2, 3))
    outbox.publish("s", rows(4))
    store.faults = iter(["back"])
    with pytest.raises(Timeout):
        outbox.send(client)
    store.limits = pb.Limits(batch_rows=2)
    sent = outbox.send(client)
    assert store.values() == [1, 2, 3, 4]
    assert [one.reason for one in sent.doubtful] == ["TOO_LARGE_NOW"]


# ---- files that were copied


@pytest.mark.parametrize("forgets", [False, True])
def test_a_file_from_a_backup_loses_nothing_new(
    store: FlakyStore, tmp_path: Path, opened: Callable[[], Outbox], forgets: bool
) -> None:
    """Where the store has forgotten what a sequence held, the batch waits for a decision."""
    outbox, client = opened(), client_of(store)
    outbox.publish("s", rows(1))
    outbox.send(client)
    _back_up(tmp_path / "phone.db", tmp_path / "backup.db")
    outbox.publish("s", rows(2))
    outbox.publish("s", rows(3))
    outbox.send(client)
    store.forgets = forgets
    file = CopyFile(tmp_path / "backup.db")
    restored = Outbox(file)
    restored.publish("s", rows(4))
    restored.publish("s", rows(5))
    sent = restored.send(client)
    assert (sent.batches, len(sent.doubtful)) == ((1, 1) if forgets else (2, 0))
    if forgets:
        assert (restored.queued.doubtful, restored.queued.batches) == (1, 0)
        [doubtful] = restored.doubtful
        assert (doubtful.reason, doubtful.content.to_pylist()) == ("UNVERIFIED", rows(4))
        assert restored.resend(doubtful.batch) == 1
        assert restored.send(client).batches == 1
    file.close()
    assert sorted(store.values()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("taken", range(4))
def test_two_clones_send_what_waited_once(
    store: FlakyStore, tmp_path: Path, opened: Callable[[], Outbox], forgets: bool, taken: int
) -> None:
    """Both files have the same batches, and each has some of its own; the first is anywhere."""
    outbox, client = opened(), client_of(store)
    for number in range(3):
        outbox.publish("s", rows(number))
    _back_up(tmp_path / "phone.db", tmp_path / "clone.db")
    store.faults = iter([""] * taken + ["there"])
    outbox.publish("s", rows(10))
    with pytest.raises(ConnectionFailed):
        outbox.send(client)
    store.forgets = forgets
    file = CopyFile(tmp_path / "clone.db")
    clone = Outbox(file)
    clone.publish("s", rows(20))
    clone.publish("s", rows(21))
    clone.send(client)
    outbox.send(client)
    clone.publish("s", rows(22))
    clone.send(client)
    undecided = [one for box in (outbox, clone) for one in box.doubtful]
    for box in (outbox, clone):
        for one in box.doubtful:
            there = one.content.column("a")[0].as_py() in store.values()
            assert (box.discard if there else box.resend)(one.batch) == 1
        box.send(client)
        assert not box.queued and not box.doubtful and not box.rejected
    file.close()
    assert sorted(store.values()) == [0, 1, 2, 10, 20, 21, 22]
    assert forgets or not undecided


def test_what_is_doubtful_is_discarded_only_by_its_number(
    store: FlakyStore, tmp_path: Path, opened: Callable[[], Outbox]
) -> None:
    outbox, client = opened(), client_of(store)
    _back_up(tmp_path / "phone.db", tmp_path / "backup.db")
    outbox.publish("s", rows(1))
    outbox.publish("nowhere", rows(1))
    _clone_identity(tmp_path / "phone.db", tmp_path / "backup.db")
    outbox.publish("s", rows(2))
    outbox.send(client)
    store.forgets = True
    file = CopyFile(tmp_path / "backup.db")
    restored = Outbox(file)
    restored.publish("s", rows(3))
    assert len(restored.send(client).doubtful) == 1
    with pytest.raises(ValueError, match="no batch 7 was put aside; those that were: "):
        restored.discard(7)
    assert restored.discard() == 0 and restored.queued.doubtful == 1
    with pytest.raises(ValueError, match="was refused"):
        restored.requeue(restored.doubtful[0].batch)
    assert restored.discard(restored.doubtful[0].batch) == 1 and not restored.doubtful
    file.close()


def _clone_identity(path: Path, target: Path) -> None:
    raw = sqlite3.connect(target)
    with raw:
        raw.execute("ATTACH ? AS original", (str(path),))
        raw.execute("INSERT INTO _psoup_publisher SELECT * FROM original._psoup_publisher")
    raw.close()


def _back_up(path: Path, target: Path) -> None:
    source, backup = sqlite3.connect(path), sqlite3.connect(target)
    source.backup(backup)
    source.close()
    backup.close()


def test_a_damaged_batch_is_not_published(
    store: FlakyStore, tmp_path: Path, opened: Callable[[], Outbox]
) -> None:
    outbox = opened()
    outbox.publish("s", rows(1))
    outbox.publish("s", rows(2))
    raw = sqlite3.connect(tmp_path / "phone.db")
    with raw:
        raw.execute("UPDATE _psoup_queue SET payload = zeroblob(40) WHERE batch = 1")
    raw.close()
    sent = outbox.send(client_of(store))
    assert store.values() == [2]
    assert [(one.batch, one.reason) for one in sent.rejected] == [(1, "DAMAGED")]


def test_what_waits_survives_a_recovery(store: FlakyStore, tmp_path: Path) -> None:
    path, client = tmp_path / "phone.db", client_of(store)
    with Copies(path) as copies:
        copies.publish("s", rows(1))
        store.faults = iter(["back"])
        with pytest.raises(Timeout):
            copies.send(client)
        copies.publish("s", rows(2))
    assert Copies.recover(path).rows == 5
    with Copies(path) as copies:
        sent = copies.send(client)
    assert (sent.batches, sent.duplicates, store.values()) == (2, 1, [1, 2])
