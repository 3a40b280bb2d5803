"""Servers seldom do this, or never: rows are garbled, digests wrong, transfers cut."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

from client_sdk import (
    Client,
    ConnectionFailed,
    Copies,
    ErrorDetail,
    MockTransport,
    NotFound,
    PsoupError,
    Retry,
    ServerError,
    Timeout,
)
from client_sdk._wire.values import Column, from_micros, timestamp
from client_sdk.copies._file.checksums import Checksums, digest, signed
from psoup.v1 import psoup_pb2 as pb

COLUMNS = (Column("t", "TEXT"),)
NOW = 1_700_000_000_000_000
HANDLE = bytes(range(16))

Script = Iterable[Any] | Callable[[pb.SyncRequest], Any]


def sync_row(row_id: int, text: str, until: int | None = None, **fields: Any) -> pb.SyncRow:
    stored = (row_id, None, until, b"", 0, text)
    message = pb.SyncRow(row_id=row_id, visible_until=until, values=[pb.Value(text=text)])
    message.checksum = fields.get("checksum", Checksums(COLUMNS).of([stored])[0])
    return message


def begin(whole: bool = True, **fields: Any) -> pb.SyncPart:
    columns = [pb.Column(name="t", type="TEXT")] if whole and not fields.get("continued") else []
    mode = pb.SYNC_MODE_WHOLE if whole else pb.SYNC_MODE_UNSPECIFIED
    return pb.SyncPart(begin=pb.SyncBegin(mode=mode, columns=columns, **fields))


def rows(*messages: pb.SyncRow) -> pb.SyncPart:
    return pb.SyncPart(rows=pb.SyncRows(rows=messages))


def end(*ids: int, token: bytes = b"token", **fields: Any) -> pb.SyncPart:
    fields = {"row_count": len(ids), "digest": digest(ids), **fields}
    now = timestamp(from_micros(NOW))
    return pb.SyncPart(end=pb.SyncEnd(token=token, position=b"p", now=now, **fields))


def connect(*script: Any, **handlers: Any) -> tuple[Client, MockTransport]:
    """Each item is what one Sync gives: parts, and errors where they come."""
    scripts = list(script)

    def sync(request: pb.SyncRequest) -> Iterable[pb.SyncPart]:
        for part in scripts.pop(0):
            if isinstance(part, Exception):
                raise part
            yield part

    transport = MockTransport(
        {"Register": lambda _: pb.RegisterResponse(handle=HANDLE), "Sync": sync, **handlers}
    )
    return Client(transport=transport, retry=Retry(attempts=3, first=0.0)), transport


@pytest.fixture
def copies():
    with Copies.in_memory(clock=lambda: from_micros(NOW)) as copies:
        copies.keep("c", "SELECT t FROM s", parameters={"a": 3, "b": None}, lease=timedelta(days=3))
        yield copies


def texts(copies: Copies) -> list[Any]:
    return [row["t"] for row in copies["c"]]


def test_registering_has_all_that_was_kept(copies: Copies) -> None:
    client, transport = connect([begin(), end()])
    copies.sync(client)
    request = transport.requests("Register")[0]
    assert request.sql == "SELECT t FROM s" and request.parameters["a"].bigint == 3
    assert request.parameters["b"] == pb.Value() and request.lease.seconds == 3 * 86400
    assert request.client_key.startswith("c@")
    item = transport.requests("Sync")[0].items[0]
    assert (item.handle, item.token) == (HANDLE, b"")


def test_a_registration_whose_answer_is_lost_is_asked_for_with_the_same_key(
    copies: Copies,
) -> None:
    answers: list[Any] = [ConnectionFailed("lost"), pb.RegisterResponse(handle=HANDLE)]
    client, transport = connect([begin(), end()], Register=answers)
    copies.sync(client)
    assert len({request.client_key for request in transport.requests("Register")}) == 1


def test_a_garbled_row_is_asked_for_again(copies: Copies) -> None:
    bad = sync_row(1, "x", checksum=7)
    client, transport = connect(
        [begin(), rows(bad), end(1)], [begin(), rows(sync_row(1, "x")), end(1)]
    )
    assert copies.sync(client).complete and texts(copies) == ["x"]
    assert len(transport.requests("Sync")) == 2


@pytest.mark.parametrize(
    "part",
    [
        rows(pb.SyncRow(row_id=1, values=[])),
        rows(pb.SyncRow(row_id=1, values=[pb.Value(double=1.5)])),
        pb.SyncPart(arrow=b"no stream"),
    ],
)
def test_rows_that_can_t_be_read(copies: Copies, part: pb.SyncPart) -> None:
    client, _ = connect(*[[begin(), part, end(1)]] * 3)
    with pytest.raises(ServerError):
        copies.sync(client)
    assert not copies["c"].synced


def test_a_digest_that_is_never_right(copies: Copies) -> None:
    """The store compares, then sends all, and then it is an error; the old copy stays."""
    first = [begin(), rows(sync_row(1, "x")), end(1)]
    wrong = [begin(), rows(sync_row(1, "y")), end(1, digest=bytes(16), token=b"other")]
    client, transport = connect(first, wrong, wrong, wrong)
    copies.sync(client)
    synced = copies.sync(client)
    assert synced["c"].status == "refused" and isinstance(synced["c"].error, ServerError)
    requests = [request.items[0] for request in transport.requests("Sync")[1:]]
    assert [item.HasField("have") for item in requests] == [False, True, False]
    assert [item.whole for item in requests] == [False, False, True]
    assert {item.token for item in requests} == {b"token"}
    assert texts(copies) == ["x"]


def test_a_difference_that_is_cut_goes_on(copies: Copies) -> None:
    removed = pb.SyncPart(removed=pb.Removed(runs=[1, 1]))
    client, transport = connect(
        [begin(), rows(sync_row(1, "x"), sync_row(2, "y")), end(1, 2)],
        [begin(False), removed, rows(sync_row(3, "z")), pb.SyncPart(resume=b"r"), CUT],
        [begin(False, continued=True), rows(sync_row(4, "w")), end(2, 3, 4, token=b"t2")],
    )
    copies.sync(client)
    assert copies.sync(client)["c"].rows == 2
    assert transport.requests("Sync")[2].items[0].token == b"r"
    assert texts(copies) == ["y", "z", "w"]


CUT = ConnectionFailed("cut")


def test_a_transfer_that_is_continued_though_nothing_is_staged(copies: Copies) -> None:
    client, _ = connect([begin(continued=True), end(1)], [begin(), rows(sync_row(1, "x")), end(1)])
    assert copies.sync(client).complete and texts(copies) == ["x"]


def test_a_deadline_that_passes_while_rows_come_is_no_failure(copies: Copies) -> None:
    late = Timeout("no answer within 60 s")
    script: list[Any] = [[begin(), rows(sync_row(0, "0")), pb.SyncPart(resume=b"r0"), late]]
    for turn in range(1, 9):
        part = rows(sync_row(turn, str(turn)))
        resume = pb.SyncPart(resume=b"r%d" % turn)
        script.append([begin(continued=True), part, resume, late])
    script.append([begin(continued=True), end(*range(9))])
    client, _ = connect(*script)
    assert copies.sync(client)["c"].rows == 9
    client, _ = connect([late])
    with pytest.raises(Timeout):
        copies.sync(client)


def test_a_server_that_says_nothing(copies: Copies) -> None:
    client, _ = connect([], [], [])
    with pytest.raises(ServerError, match="nothing in it"):
        copies.sync(client)


def test_more_copies_than_a_call_takes() -> None:
    def sync(request: pb.SyncRequest) -> Iterable[pb.SyncPart]:
        for number in range(len(request.items)):
            for part in (begin(), end()):
                part.item = number
                yield part

    with Copies.in_memory() as copies:
        for number in range(1003):
            copies.keep(f"c{number}", handle=HANDLE, priority=number % 3)
        client, transport = connect(Sync=sync)
        assert copies.sync(client).complete
        assert [len(request.items) for request in transport.requests("Sync")] == [1000, 3]
        with pytest.raises(ValueError, match="one position"):
            copies.sync(client, one_position=True)


def test_priority_changed_while_it_is_registered(copies: Copies) -> None:
    def register(request: pb.RegisterRequest) -> pb.RegisterResponse:
        copies.keep("c", "SELECT t FROM s", parameters={"a": 3, "b": None}, priority=7)
        return pb.RegisterResponse(handle=HANDLE)

    client, transport = connect([begin(), end()], Register=register)
    copies.sync(client)
    assert transport.requests("Sync")[0].items[0].priority == 7


def test_text_that_is_none_any_more(copies: Copies) -> None:
    """SQLite gives back bytes that no text can have; the row is asked for again."""
    first = [begin(), rows(sync_row(1, "one"), sync_row(2, "two"), sync_row(3, "3")), end(1, 2, 3)]
    client, transport = connect(
        first, [begin(False), rows(sync_row(2, "two")), end(1, 2, 3, token=b"t2")]
    )
    copies.sync(client)
    with copies._file.writing() as connection:
        table = "_psoup_rows_1_1"
        connection.execute(f"UPDATE {table} SET c0 = CAST(x'74ff6f' AS TEXT) WHERE row_id = 2")
    with pytest.raises(PsoupError, match="damaged"):
        copies["c"].rows()
    assert copies.sync(client)["c"].repaired == 1
    assert list(transport.requests("Sync")[1].items[0].resend.runs) == [2, 1]
    assert texts(copies) == ["one", "two", "3"]


def test_values_that_are_none_of_their_type() -> None:
    with Copies.in_memory(clock=lambda: from_micros(NOW)) as copies:
        copies.keep("c", handle=HANDLE)
        number = Checksums((Column("n", "BIGINT"),)).of([(1, None, None, b"", 0, 5)])[0]
        part = begin()
        part.begin.columns[0].type = "BIGINT"
        message = pb.SyncRow(row_id=1, checksum=number, values=[pb.Value(bigint=5)])
        client, _ = connect([part, rows(message), end(1)])
        copies.sync(client)
        with copies._file.writing() as connection:
            connection.execute("UPDATE _psoup_rows_1_1 SET c0 = 'five'")
        with pytest.raises(PsoupError, match="next sync repairs"):
            copies["c"].rows()


def test_a_watch_tells_what_is_refused_and_ends() -> None:
    detail = pb.ErrorDetail(reason="UNKNOWN_HANDLE", hint="register again")
    refused = pb.SyncPart(refused=pb.SyncRefused(code=5, message="no such", detail=detail))
    beat = pb.SyncPart(beat=pb.SyncBeat())

    def watch(request: pb.WatchRequest) -> Iterable[pb.SyncPart]:
        assert request.every.seconds == 2
        yield from (beat, begin(), rows(sync_row(1, "x")), end(1), beat, refused)

    with Copies.in_memory() as copies:
        copies.keep("c", handle=HANDLE)
        client, _ = connect(Watch=watch)
        rounds = list(copies.watch(client, every=timedelta(seconds=2)))
        assert [synced["c"].status for synced in rounds] == ["changed", "refused"]
        error = rounds[1]["c"].error
        assert isinstance(error, NotFound) and error.detail == ErrorDetail(
            reason="UNKNOWN_HANDLE", hint="register again", row=0
        )


def test_a_watch_that_can_t_begin(copies: Copies) -> None:
    client, transport = connect(Watch=[ConnectionFailed("away")] * 3)
    with pytest.raises(ConnectionFailed):
        next(copies.watch(client))
    assert len(transport.requests("Watch")) == 3


def test_a_watch_that_was_told_wrong_asks_again(copies: Copies) -> None:
    script = [
        [begin(), rows(sync_row(1, "x")), end(1, digest=bytes(16))],
        [begin(), rows(sync_row(1, "x")), end(1)],
    ]
    client, transport = connect(Watch=script)
    watching = copies.watch(client)
    assert next(watching)["c"].rows == 1
    watching.close()
    assert [r.sync.items[0].whole for r in transport.requests("Watch")] == [False, True]


def test_a_wrong_text_in_a_watch(copies: Copies) -> None:
    client, _ = connect(Register=[NotFound("no such stream")])
    rounds = list(copies.watch(client))
    assert [synced["c"].status for synced in rounds] == ["refused"]


def test_signed_numbers() -> None:
    connection = sqlite3.connect(":memory:")
    for number in (0, 2**63 - 1, 2**63, 2**64 - 1):
        back = connection.execute("SELECT ?", (signed(number),)).fetchone()[0]
        assert back % 2**64 == number
    connection.close()
