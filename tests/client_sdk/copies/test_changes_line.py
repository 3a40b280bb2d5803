"""What changes are made of on the wire: keys, rows that ended, whole answers that replace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client_sdk import Client, Copies, MockTransport, Retry, ServerError
from client_sdk._wire.values import Column, from_micros, timestamp
from client_sdk.copies._changes.reported import RESETS
from client_sdk.copies._file.checksums import Checksums, digest
from client_sdk.copies._sync import transfer
from psoup.v1 import psoup_pb2 as pb

COLUMNS: tuple[Column, ...] = (Column("t", "TEXT"),)
KEYED = (*COLUMNS, Column("_key", "BIGINT"))
NOW = 1_700_000_000_000_000

# A reason that only a newer server has.
UNKNOWN_REASON = 4711


def row(row_id: int, text: str, key: int | None = None, until: int | None = None) -> pb.SyncRow:
    stored = (row_id, None, until, b"", 0, text, *([] if key is None else [key]))
    columns = COLUMNS if key is None else KEYED
    message = pb.SyncRow(row_id=row_id, visible_until=until, values=[pb.Value(text=text)], key=key)
    message.checksum = Checksums(columns).of([stored])[0]
    return message


def rows(*messages: pb.SyncRow) -> pb.SyncPart:
    return pb.SyncPart(rows=pb.SyncRows(rows=messages))


def whole(**fields: Any) -> pb.SyncPart:
    columns = [pb.Column(name="t", type="TEXT")]
    fields = {"keyed": True, **fields}
    return pb.SyncPart(begin=pb.SyncBegin(mode=pb.SYNC_MODE_WHOLE, columns=columns, **fields))


CHANGES = pb.SyncPart(begin=pb.SyncBegin())


def removed(*runs: int, ended: tuple[int, ...] = ()) -> pb.SyncPart:
    return pb.SyncPart(removed=pb.Removed(runs=runs, ended=ended))


def end(*ids: int, token: bytes = b"token") -> pb.SyncPart:
    now = timestamp(from_micros(NOW))
    ended = pb.SyncEnd(token=token, position=b"p", now=now, row_count=len(ids), digest=digest(ids))
    return pb.SyncPart(end=ended)


def connect(*calls: list[pb.SyncPart]) -> tuple[Client, MockTransport]:
    scripts = list(calls)
    register = pb.RegisterResponse(handle=bytes(16))
    transport = MockTransport(
        {"Register": lambda _: register, "Sync": lambda request: iter(scripts.pop(0))}
    )
    return Client(transport=transport, retry=Retry(attempts=3, first=0.0)), transport


@pytest.fixture
def copies(tmp_path: Path):
    with Copies(tmp_path / "phone.db", clock=lambda: from_micros(NOW)) as copies:
        copies.keep("c", "SELECT t FROM s", changes=True)
        yield copies


def tags(copies: Copies) -> list[str]:
    with copies.changes("c") as batch:
        assert not batch.reset
        return [
            f"{change.tag}{(change.row or change.old or {})['t']} {change.why}" for change in batch
        ]


def test_changes_are_asked_for(copies: Copies) -> None:
    client, transport = connect([whole(), end()])
    copies.keep("plain", "SELECT t FROM s")
    copies.sync(client, only=["c"])
    assert transport.requests("Sync")[0].items[0].changes


def test_a_key_makes_an_update(copies: Copies) -> None:
    client, _ = connect(
        [whole(), rows(row(1, "a", 7), row(2, "b", 8)), end(1, 2)],
        [CHANGES, removed(1, 1, ended=(1, 1)), rows(row(3, "c", 7)), end(2, 3)],
    )
    copies.sync(client)
    copies.sync(client)
    assert tags(copies) == ["uc changed"]
    assert copies["c"].rows() == [{"t": "b"}, {"t": "c"}]


def test_equal_keys_of_two_rows_name_none_of_them(copies: Copies) -> None:
    client, _ = connect(
        [whole(), rows(row(1, "a", 7), row(2, "b", 7)), end(1, 2)],
        [CHANGES, removed(1, 1, ended=(1, 1)), rows(row(3, "c", 7)), end(2, 3)],
        [CHANGES, removed(2, 2), rows(row(4, "d", 7), row(5, "e", 7)), end(4, 5)],
    )
    for expected in ([], ["-a ended", "+c new"], ["-b left", "-c left", "+d new", "+e new"]):
        copies.sync(client)
        assert tags(copies) == expected


def test_what_ended_is_told_apart_from_what_left(copies: Copies) -> None:
    """Also where it came in pieces, and the line was cut between them."""
    client, _ = connect(
        [whole(), rows(*(row(number, f"r{number}", number) for number in range(1, 6))), end(*R)],
        [CHANGES, removed(1, 2, ended=(2, 1)), pb.SyncPart(resume=b"r")],
        [
            pb.SyncPart(begin=pb.SyncBegin(continued=True)),
            removed(3, 2, ended=(3, 1)),
            end(5),
        ],
        [CHANGES, end(5)],
    )
    copies.sync(client)
    copies.sync(client, byte_budget=1)
    assert tags(copies) == []
    copies.sync(client)
    assert tags(copies) == ["-r1 left", "-r2 ended", "-r3 ended", "-r4 left"]


R = range(1, 6)


def test_keys_count_in_the_checksum(copies: Copies) -> None:
    altered = row(1, "a", 7)
    altered.key = 8
    client, _ = connect(*[[whole(), rows(altered), end(1)]] * 3)
    with pytest.raises(ServerError, match="checksum"):
        copies.sync(client)


def test_rows_without_the_key_that_was_told(copies: Copies) -> None:
    client, _ = connect(*[[whole(), rows(row(1, "a")), end(1)]] * 3)
    with pytest.raises(ServerError, match="key"):
        copies.sync(client)


def test_a_server_that_knows_no_changes(copies: Copies) -> None:
    """An older one sends no keys: rows come and go."""
    client, _ = connect(
        [whole(keyed=False), rows(row(1, "a")), end(1)],
        [CHANGES, removed(1, 1), rows(row(2, "b")), end(2)],
    )
    copies.sync(client)
    copies.sync(client)
    assert tags(copies) == ["-a left", "+b new"]


def test_other_ids_for_the_same_rows_are_no_change(copies: Copies) -> None:
    """As after two combinations had one id: all come whole with other ids."""
    client, _ = connect(
        [whole(keyed=False), rows(row(1, "a"), row(2, "a"), row(3, "b")), end(1, 2, 3)],
        [whole(keyed=False), rows(row(4, "a"), row(5, "b"), row(6, "c")), end(4, 5, 6)],
    )
    copies.sync(client)
    copies.sync(client)
    assert tags(copies) == ["-a left", "+c new"]


def test_a_reason_that_is_not_known(copies: Copies) -> None:
    client, _ = connect([whole(reason=UNKNOWN_REASON), rows(row(1, "a", 7)), end(1)])
    assert copies.sync(client)["c"].reason == f"REASON_{UNKNOWN_REASON}"


@pytest.fixture(params=sorted(RESETS))
def reason(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """No server withdraws permissions yet, so that reason has a number of its own."""
    named = {UNKNOWN_REASON: "PERMISSION"}
    usual = transfer.reason_name
    for module in ("transfer", "items"):
        monkeypatch.setattr(
            f"client_sdk.copies._sync.{module}.reason_name",
            lambda number: named.get(number) or usual(number),
        )
    batch: str = request.param
    return batch


def number_of(reason: str) -> int:
    return pb.SYNC_REASON_REPLACED if reason == "REPLACED" else UNKNOWN_REASON


@pytest.mark.parametrize("one_position", [False, True])
def test_an_answer_that_replaces_another(
    copies: Copies, tmp_path: Path, reason: str, one_position: bool
) -> None:
    """Nothing is compared, what was not read is dropped, and nothing of before is in the file."""
    client, _ = connect(
        [whole(), rows(row(1, "a secret", 7)), end(1)],
        [CHANGES, rows(row(2, "another secret", 8)), end(1, 2)],
        [whole(reason=number_of(reason)), rows(row(2, "open", 7)), end(2, token=b"new")],
        [CHANGES, rows(row(3, "later", 9)), end(2, 3)],
    )
    copies.sync(client)
    copies.sync(client)
    assert b"secret" in _content(tmp_path)
    copies.sync(client, one_position=one_position)
    assert b"secret" not in _content(tmp_path)
    with pytest.raises(RuntimeError), copies.changes("c") as batch:
        assert (batch.reset, list(batch), batch.answer) == (reason, [], ({"t": "open"},))
        raise RuntimeError
    copies.sync(client)
    with copies.changes("c") as batch:
        assert batch.reset == reason and [change.tag for change in batch] == ["+"]
        assert batch.answer == ({"t": "open"}, {"t": "later"})
    assert tags(copies) == []


def test_an_answer_that_replaces_another_and_is_cut(copies: Copies, reason: str) -> None:
    """What was staged is gone from the store by then: it is another answer all the same."""
    client, _ = connect(
        [whole(), rows(row(1, "a", 7)), end(1)],
        [whole(reason=number_of(reason)), rows(row(1, "b", 7)), pb.SyncPart(resume=b"r")],
        [whole(reason=pb.SYNC_REASON_TARGET_GONE), rows(row(1, "c", 7)), end(1)],
    )
    copies.sync(client)
    copies.sync(client, byte_budget=1)
    assert tags(copies) == []
    copies.sync(client)
    with copies.changes("c") as batch:
        assert (batch.reset, list(batch), batch.answer) == (reason, [], ({"t": "c"},))


def _content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
