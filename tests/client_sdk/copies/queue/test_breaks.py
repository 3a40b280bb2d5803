"""Whatever breaks on the way, each batch is in the store once, in order; only the store rejects."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk import (
    Client,
    Conflict,
    ConnectionFailed,
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
from tests.support.client_sdk.flaky_store import SQL, FlakyStore, client_of, rows


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
    assert [rejected.reason for rejected in sent.rejected] == ["UNKNOWN_STREAM"]
    assert store.values("other") == [2, 3]


def test_another_store_gets_what_waits_only_when_told(
    store: FlakyStore, opened: Callable[[], Outbox]
) -> None:
    outbox = opened()
    outbox.publish("s", rows(1))
    outbox.send(client_of(store))
    second = FlakyStore()
    client_of(second).define(SQL)
    outbox.publish("s", rows(2))
    with pytest.raises(OtherStore, match=f"belongs to store {store.store_id}"):
        outbox.send(client_of(second))
    assert outbox.queued.rows == 1 and outbox.store_id == store.store_id
    assert outbox.move(client_of(second)) == second.store_id == outbox.store_id
    assert outbox.send(client_of(second)).rows == 1
    assert (store.values(), second.values()) == ([1], [2])


def refusals() -> list[PsoupError]:
    """What a proxy, a captive portal or another store may answer to any call."""
    message = ErrorDetail("UNKNOWN_STREAM", store_id="another")
    return [
        ForeignAnswer("this is not a PSoup store", code="UNIMPLEMENTED"),
        InvalidRequest("no", code="UNIMPLEMENTED"),
        InvalidRequest("no"),
        InvalidRequest("no", code="OUT_OF_RANGE"),
        LimitExceeded("no"),
        NotFound("no"),
        NotFound("no such stream", detail=message),
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
    rows = [row[0] for row in raw.execute("SELECT tried FROM _psoup_queue")]
    raw.close()
    return rows
