"""Tokens: what they hold and who may read them; and copies that can't be told any more."""

from __future__ import annotations

import asyncio
import hmac
import stat
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from hypothesis import given
from hypothesis import strategies as st

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT
from psoup.answers.difference import Claim, Cursor, LegMark, Mark, result_copy
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.calls.sync import sync
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.server.wire.copies import (
    KEY_BYTES,
    KEY_NAME,
    CopySubject,
    Tokens,
    Unusable,
    read_key,
)
from psoup.store import Position, Store, WriterMarks
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.identity import Identified, identified
from tests.oracle.copy import Copy
from tests.support.server.callers import new_call
from tests.support.server.process import rows_of

TOKENS = Tokens(b"store 01", bytes(KEY_BYTES))
SUBJECT = CopySubject(b"h" * 16, Position(7, 1), "window")
INSTANTS = st.one_of(st.none(), st.integers(-(2**62), 2**62))
HIGHS = st.integers(0, 2**62)
POSITIONS = st.builds(Position.unpack, st.integers(SUBJECT.text.packed, 2**50))
DIGESTS = st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16))
ONE_LEG = st.tuples(st.builds(LegMark, HIGHS))
LEGS = st.lists(st.builds(LegMark, HIGHS, INSTANTS, HIGHS), min_size=2, max_size=8).map(tuple)
IDS = st.integers(0, 2**63 - 1)
SALTS = st.integers(0, 255)
NOWS = st.lists(INSTANTS, max_size=3).map(tuple)


def _claims(marks: st.SearchStrategy[Mark], cursors: st.SearchStrategy[Cursor]) -> Any:
    copies = st.one_of(st.none(), marks)
    return st.one_of(st.builds(Claim, copies), st.builds(Claim, copies, marks, cursors))


CLAIMS = st.one_of(
    _claims(
        st.builds(Mark, POSITIONS, ONE_LEG, INSTANTS, INSTANTS, DIGESTS), st.builds(Cursor, IDS)
    ),
    _claims(
        st.builds(Mark, POSITIONS, LEGS, INSTANTS, INSTANTS, DIGESTS, HIGHS, SALTS, NOWS),
        st.one_of(
            st.builds(Cursor, st.integers(-(2**63), 0)),
            st.builds(Cursor, st.just(0), st.lists(IDS, max_size=9).map(tuple)),
        ),
    ),
)


@given(CLAIMS)
def test_there_and_back(claim: Claim) -> None:
    assert TOKENS.read(TOKENS.write(SUBJECT, claim)).claim == claim


def test_tokens_that_were_given_out_go_on_working() -> None:
    """The bytes of a token, written out; other versions are unreadable."""
    at = Position(9, 1)
    mark = Mark(at, (LegMark(5),), 6, None)
    target = replace(mark, legs=(LegMark(8),), horizon=9, digest=b"d" * 16)
    head = b"".join(SUBJECT.marks) + struct.pack(">q", -3)
    plain = struct.pack(">qqqq", at.packed, 5, 6, 2**63 - 1)
    pair = plain + bytes(16) + struct.pack(">qqqq", at.packed, 8, 6, 9) + b"d" * 16
    cases = [
        (Claim(mark), b"\1" + head + plain),
        (Claim(mark, target, Cursor(4)), b"\7" + head + pair + struct.pack(">q", 4)),
    ]
    tokens = Tokens(b"store 01", bytes(KEY_BYTES), lambda: WriterMarks([2, 10], [-3, 4]))
    for claim, content in cases:
        token = _sealed(b"\4", content)
        assert tokens.write(SUBJECT, claim) == token
        signed = tokens.read(token)
        assert signed.about(SUBJECT) == claim and signed.marked == (at, -3)
        with pytest.raises(Unusable, match="REPLACED"):
            signed.about(replace(SUBJECT, text=Position(9, 2)))
        with pytest.raises(Unusable, match="UNREADABLE"):
            tokens.read(_sealed(b"\3", content))


def _sealed(version: bytes, content: bytes) -> bytes:
    key = hmac.digest(bytes(KEY_BYTES), b"psoup tokens", "sha512")
    head = version + b"store 01"
    return head + AESSIV(key).encrypt(content, [head, b""])


def test_a_token_does_not_show_what_it_says() -> None:
    """How many rows a stream has is nothing for who reads a view of it."""
    mark = Mark(Position(9, 0), (LegMark(5, 6), LegMark(7, 8, 3)), 6, None, b"d" * 16, 2)
    token = TOKENS.write(SUBJECT, Claim(mark, mark, Cursor(3)))
    numbers = struct.pack(">qqqq", 5, 6, 0, -(2**63)), struct.pack(">q", 7), struct.pack(">q", 8)
    assert not any(secret in token for secret in (*numbers, *SUBJECT.marks, b"d" * 16))


@given(CLAIMS, st.data())
def test_no_bit_can_be_changed(claim: Claim, data: st.DataObject) -> None:
    token = bytearray(TOKENS.write(SUBJECT, claim))
    bit = data.draw(st.integers(0, 8 * len(token) - 1))
    token[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Unusable):
        TOKENS.read(bytes(token))


@given(st.binary(max_size=200))
def test_nothing_else_is_a_token(content: bytes) -> None:
    with pytest.raises(Unusable):
        TOKENS.read(content)


def test_of_another_store_or_key_or_copy() -> None:
    token = TOKENS.write(SUBJECT, Claim(Mark(Position(9, 0), (LegMark(5),), 6, None)))
    cases = [
        (Tokens(b"store 02", bytes(KEY_BYTES)), SUBJECT, "FOREIGN_TOKEN"),
        (Tokens(b"store 01", b"k" * KEY_BYTES), SUBJECT, "UNREADABLE_TOKEN"),
        (TOKENS, replace(SUBJECT, handle=b"i" * 16), "OTHER_REGISTRATION"),
        (TOKENS, replace(SUBJECT, shape="other"), "OTHER_WINDOW"),
        (TOKENS, replace(SUBJECT, text=Position(9, 1)), "REPLACED"),
        (TOKENS, replace(SUBJECT, text=Position(9, 1), shape="other"), "REPLACED"),
    ]
    for tokens, subject, reason in cases:
        with pytest.raises(Unusable, match=reason):
            tokens.read(token).about(subject)


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", create=True, sync=False)
    key = read_key(store, None)
    assert len(key) == KEY_BYTES and read_key(store, None) == key
    assert stat.S_IMODE((store.root / KEY_NAME).stat().st_mode) == 0o600
    short_key = tmp_path / "key"
    short_key.write_bytes(b"o" * 40)
    assert read_key(store, short_key) == b"o" * 40
    short_key.write_bytes(b"short")
    with pytest.raises(ValueError, match="holds 5 bytes"):
        read_key(store, short_key)
    with pytest.raises(FileNotFoundError):
        read_key(store, tmp_path / "missing")


# ---- results


async def _open(folder: Path) -> tuple[Core, bytes]:
    core = Core(Store.open(folder, create=True, sync=False), Settings(folder, sync_bytes=200))
    await core.start()
    schema = StreamSchema("s", (Column("a", BIGINT),), retain=10**9)
    await core.appender.submit(Define("main", "main", schema))
    sql = "SELECT a, count(*) AS n FROM s GROUP BY a"
    return core, (await register(core, new_call(), pb.RegisterRequest(sql=sql)))[0].handles[0]


async def _publish(core: Core, *values: int) -> None:
    rows = rows_of(["a"], *([pb.Value(bigint=value)] for value in values))
    await publish(core, new_call(), pb.PublishRequest(stream="s", rows=rows))


async def _sync(core: Core, handle: bytes, copy: Copy, budget: int = 0) -> pb.SyncBegin:
    item = pb.SyncItem(handle=handle, token=copy.resume or copy.token)
    request = pb.SyncRequest(items=[item], byte_budget=budget)
    parts = [part async for part in sync(core, new_call(), request)]
    for part in parts:
        copy.take(part)
    return parts[0].begin


def _spoiled(core: Core, handle: bytes, token: bytes, copy: bool) -> bytes:
    """The token of an answer that can't be computed any more."""
    claim = core.tokens.read(token).claim
    mark = claim.copy if copy else claim.target
    assert mark is not None
    spoiled = replace(mark, digest=bytes(15) + b"x")
    claim = replace(claim, copy=spoiled) if copy else replace(claim, target=spoiled)
    shape = '[{"kind":"time","begin":null,"end":null,"slide":null},false]'
    text = core.follower.state.registrations[handle].position
    return core.tokens.write(CopySubject(handle, text, shape), claim)


async def test_an_answer_that_can_t_be_told_is_replaced(tmp_path: Path) -> None:
    core, handle = await _open(tmp_path / "store")
    copy = Copy()
    await _publish(core, *range(50))
    await _sync(core, handle, copy)
    await _publish(core, 7)
    copy.token = _spoiled(core, handle, copy.token, True)
    begin = await _sync(core, handle, copy)
    assert (begin.mode, begin.reason) == (pb.SYNC_MODE_WHOLE, pb.SYNC_REASON_RETENTION)
    assert copy.sound() and (7, 2) in copy.answer(None)
    await core.stop()


async def test_a_target_that_can_t_be_reached_is_given_up(tmp_path: Path) -> None:
    core, handle = await _open(tmp_path / "store")
    copy = Copy()
    await _publish(core, *range(50))
    await _sync(core, handle, copy)
    await _publish(core, *range(50))
    await _sync(core, handle, copy, budget=1)
    copy.resume = _spoiled(core, handle, copy.resume, False)
    begin = await _sync(core, handle, copy)
    assert not begin.continued and begin.reason == pb.SYNC_REASON_TARGET_GONE
    assert begin.mode == pb.SYNC_MODE_UNSPECIFIED
    assert copy.sound() and copy.answer(None) == [(n, 2) for n in range(50)]
    await core.stop()


async def test_changes_to_a_copy_that_can_t_be_told_any_more_begin_anew(tmp_path: Path) -> None:
    core, handle = await _open(tmp_path / "store")
    copy = Copy()
    await _publish(core, *range(50))
    await _sync(core, handle, copy)
    await _publish(core, *range(40))
    await _sync(core, handle, copy, budget=1)
    copy.resume = _spoiled(core, handle, copy.resume, True)
    begin = await _sync(core, handle, copy)
    assert (begin.mode, begin.continued) == (pb.SYNC_MODE_WHOLE, False)
    assert copy.sound() and (49, 1) in copy.answer(None)
    await core.stop()


async def test_two_keys_with_one_number_are_sent_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def colliding(*arguments: object) -> Identified:
        rows = identified(*arguments)  # type: ignore[arg-type]
        return replace(rows, ids=np.zeros_like(rows.ids))

    monkeypatch.setattr(result_copy, "identified", colliding)
    core, handle = await _open(tmp_path / "store")
    copy = Copy()
    for number in range(3):
        await _publish(core, number, 7)
        begin = await _sync(core, handle, copy)
        assert begin.mode == pb.SYNC_MODE_WHOLE and copy.sound()
    assert copy.answer(None) == [(0, 1), (1, 1), (2, 1), (7, 3)]
    await core.stop()


async def test_many_clients_at_once(tmp_path: Path) -> None:
    core, handle = await _open(tmp_path / "store")
    await _publish(core, *range(200))
    copies = [Copy() for _ in range(50)]
    await asyncio.gather(*(_sync(core, handle, copy) for copy in copies))
    assert all(copy.sound() and len(copy.rows) == 200 for copy in copies)
    await core.stop()
