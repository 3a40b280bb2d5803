"""Copies on the wire: sealed tokens that say what a client has, and parts with rows for it.

A token is a client's claim about its copy, sealed by the store, so that no server remembers it.
A few rows are typed values, many are Arrow.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import stat
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from datastem.arrays import Int64s
from datastem.codec import KEY_FIELD
from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.schema import Column
from datastem.types import TIMESTAMP
from psoup.answers import Question
from psoup.answers.difference import CopyChunk
from psoup.answers.difference.job import (
    NO_DIGEST,
    Claim,
    Cursor,
    LegMark,
    Mark,
    Skipped,
    WholeReason,
)
from psoup.answers.planning.policies import Permission
from psoup.server.wire.sync_rows import sync_rows
from psoup.store import START, Position, Store
from psoup.store.delta.durable import put_if_absent
from psoup.store.log.position import MarkedPosition
from psoup.store.state.writers import NO_MARK, NO_WRITERS, WriterMarks
from psoup.v1 import psoup_pb2 as pb
from results.checksum import DIGEST_BYTES
from results.id_sets import member, to_runs
from results.window import window_to_json

KEY_NAME = "token.key"
KEY_BYTES = 32

_VERSION = 4
# In the open: the version, and the identity of the store.
_OPEN = struct.Struct(">B8s")
# Encrypted: flags, handle, shape and writer mark.
_HEAD = struct.Struct(">B8s8sq")
_MARK = struct.Struct(f">qqqq{DIGEST_BYTES}s")
_PLAIN_MARK = struct.Struct(">qqqq")
_NEXT = struct.Struct(">q")
# Of marks over several legs: how many rows the copy has, their salt, how many legs; then each leg.
_LEG_COUNT = struct.Struct(">qBB")
_LEG = struct.Struct(">qqqq")
# Of the parts of a cursor, of the NOWs of queries inside a query, and of what a mark says of
# refresh points: why some were skipped, and the ids of triggers.
_PART_COUNT = struct.Struct(">B")
# AES-SIV takes two keys of 256 bits.
_CIPHER_KEY_BYTES = 64
_COPY, _TARGET, _DIGESTS, _LEGS, _NOWS, _PERMISSION, _POINTS = 1, 2, 4, 8, 16, 32, 64
# In the place of the shape of a copy that is empty because its caller may not read.
_WITHDRAWN = "withdrawn"
# Bytes of a hash that names something.
_SHORT = 8
# Up to here typed values are smaller than Arrow with its schema.
_FEW_ROWS = 32
# How many to skip, which may be anything, and how many to take.
_RUN_BYTES = 12


# ---- tokens


class Unusable(Exception):
    """A token that can't be honoured, and why."""

    def __init__(self, reason: WholeReason) -> None:
        super().__init__(reason.name)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class CopySubject:
    """The copy a token is about: a registration's, with a window or its base rows, with or without
    what changes.

    `text` is the position of the event that gave the registration its text, `permission` names the
    policies that bind the reader. RETAIN of its streams was last changed at `retained_since`,
    or rows of theirs wait since then.
    """

    handle: bytes
    text: Position
    shape: str
    permission: Permission = ()
    retained_since: Position = START

    @classmethod
    def of(
        cls, handle: bytes, text: Position, question: Question, retained_since: Position = START
    ) -> CopySubject:
        windows = [window_to_json(leg.window) for leg in question.query.legs]
        shape: list[Any] = [windows[0] if len(windows) == 1 else windows, question.base_rows]
        if question.changes:
            shape.append("changes")
        # Windows over views, which a caller may have brought.
        if opened := [view.over for view in question.query.opened]:
            shape.append([None if over is None else window_to_json(over) for over in opened])
        # Other rules of a time zone place other rows in its units.
        if question.prepared is not None and question.prepared.zones:
            shape.append([[rules.name, rules.version] for rules in question.prepared.zones])
        written = json.dumps(shape, separators=(",", ":"))
        return cls(handle, text, written, question.permission or (), retained_since)

    @classmethod
    def withdrawn(cls, handle: bytes, text: Position) -> CopySubject:
        """Return the copy of a caller who may not read what the registration's text names."""
        return cls(handle, text, _WITHDRAWN)

    @property
    def marks(self) -> tuple[bytes, bytes]:
        """The subject as a token names it."""
        return _short(self.handle), _short(f"{self.text.packed} {self.shape}".encode())

    @property
    def permission_mark(self) -> bytes:
        """The policies as a token names them; empty if none binds."""
        return _short(json.dumps(self.permission).encode()) if self.permission else b""


@dataclass(frozen=True, slots=True)
class Signed:
    """A token that this store has signed, about whatever copy. `mark` is the writer mark at the
    claim's position."""

    claim: Claim
    mark: int
    handle: bytes
    shape: bytes
    permission: bytes = b""

    @property
    def marked(self) -> MarkedPosition | None:
        """The position of the claim, for the store to hold against its history."""
        position = self.claim.position
        return None if position is None else MarkedPosition(position, self.mark)

    def about(self, subject: CopySubject) -> Claim:
        """Return the claim. Raise Unusable if the token is about another copy."""
        handle, shape = subject.marks
        if handle != self.handle:
            raise Unusable(WholeReason.OTHER_REGISTRATION)
        # An answer of a position is of the text that its registration had there.
        if self.claim.position is None or self.claim.position < subject.text:
            raise Unusable(WholeReason.REPLACED)
        if shape != self.shape:
            emptied = replace(subject, shape=_WITHDRAWN).marks[1] == self.shape
            raise Unusable(WholeReason.PERMISSION if emptied else WholeReason.OTHER_WINDOW)
        if subject.permission_mark != self.permission:
            raise Unusable(WholeReason.PERMISSION)
        # Which rows the copy has, and when they leave it, followed from the earlier RETAIN.
        if self.claim.position < subject.retained_since:
            raise Unusable(WholeReason.RETENTION)
        return self.claim


class Tokens:
    """Writes and reads tokens, encrypted and authenticated: a token says how many rows its streams
    have and which policies bind, which its owner need not know.

    `identity`, 8 bytes, is that of the store and its incarnation; `writers` gives the marks at the
    end of the log.
    """

    def __init__(
        self, identity: bytes, key: bytes, writers: Callable[[], WriterMarks] = lambda: NO_WRITERS
    ) -> None:
        self._open = _OPEN.pack(_VERSION, identity)
        self._key = key
        self._cipher = AESSIV(self.derived("tokens", _CIPHER_KEY_BYTES))
        self._writers = writers

    def write(self, subject: CopySubject, claim: Claim, binding: bytes = b"") -> bytes:
        """Return a token that is of use to the caller with that `binding` only; an empty one stands
        for all callers without authentication."""
        # Optional parts are written only if a mark needs them; the flags say which are there.
        marks = [mark for mark in (claim.copy, claim.target) if mark is not None]
        legs = any(mark.legs != (LegMark(mark.legs[0].high),) for mark in marks)
        digests = any(mark.digest != NO_DIGEST for mark in marks)
        nows = any(mark.nows for mark in marks)
        points = any(mark.trigger_highs or mark.skipped is not Skipped.NONE for mark in marks)
        flags = (
            (_COPY if claim.copy else 0)
            | (_TARGET if claim.target else 0)
            | (_DIGESTS if digests else 0)
            | (_LEGS if legs else 0)
            | (_NOWS if nows else 0)
            | (_PERMISSION if subject.permission else 0)
            | (_POINTS if points else 0)
        )
        writer = NO_MARK
        if claim.position is not None:
            writer = self._writers().at(claim.position.version)
        content = _HEAD.pack(flags, *subject.marks, writer)
        content += subject.permission_mark
        for mark in marks:
            content += _pack(mark, digests, legs) + (_pack_nows(mark.nows) if nows else b"")
            content += _pack_numbers((mark.skipped.value, *mark.trigger_highs)) if points else b""
        if claim.target is not None:
            content += _pack_cursor(claim.cursor, legs)
        # The open head and the binding are authenticated with it: neither can be exchanged.
        return self._open + self._cipher.encrypt(content, [self._open, binding])

    def read(self, token: bytes, binding: bytes = b"") -> Signed:
        """Raise Unusable for anything this store did not sign for the caller with that
        `binding`."""
        head, sealed = token[: _OPEN.size], token[_OPEN.size :]
        if head != self._open:
            # Another identity is another store; the same one with another version is an unknown
            # form.
            foreign = len(head) == _OPEN.size and head[1:] != self._open[1:]
            raise Unusable(WholeReason.FOREIGN_TOKEN if foreign else WholeReason.UNREADABLE_TOKEN)
        try:
            content = self._cipher.decrypt(sealed, [head, binding])
        except InvalidTag:
            raise Unusable(WholeReason.UNREADABLE_TOKEN) from None
        flags, handle, shape, mark = _HEAD.unpack_from(content)
        end = _HEAD.size + (_SHORT if flags & _PERMISSION else 0)
        claim = _TokenReader(content[end:], flags).claim()
        return Signed(claim, mark, handle, shape, content[_HEAD.size : end])

    def derived(self, purpose: str, size: int) -> bytes:
        """Return another key, made from that of the tokens: the same on every server of the
        store."""
        return hmac.digest(self._key, f"psoup {purpose}".encode(), "sha512")[:size]


def read_key(store: Store, path: Path | None) -> bytes:
    """Return the key in the file `path`, or the store's own, which is made if it is missing.

    Raise OSError, or ValueError for a file that holds no key.
    """
    path_of_store = store.root / KEY_NAME
    if path is None and not path_of_store.exists():
        # The group reads it only if servers of several users share the store.
        is_shared = (store.root / "log").stat().st_mode & stat.S_IWGRP
        mode = 0o660 if is_shared else 0o600
        # Another server may have made the key in the same moment; all of them read the one that is
        # there.
        with contextlib.suppress(FileExistsError):
            put_if_absent(path_of_store, os.urandom(KEY_BYTES), sync=store.sync, mode=mode)
    chosen = path_of_store if path is None else path
    key = chosen.read_bytes()
    if len(key) < KEY_BYTES:
        raise ValueError(f"{chosen} holds {len(key)} bytes; a key has {KEY_BYTES} or more")
    return key


def _pack(mark: Mark, digest: bool, legs: bool) -> bytes:
    now = SINCE_EVER if mark.now is None else mark.now
    horizon = FOR_EVER if mark.horizon is None else mark.horizon
    numbers = mark.position.packed, mark.legs[0].high, now, horizon
    content = _MARK.pack(*numbers, mark.digest) if digest else _PLAIN_MARK.pack(*numbers)
    if not legs:
        return content
    content += _LEG_COUNT.pack(mark.rows, mark.salt, len(mark.legs))
    return content + b"".join(map(_pack_leg, mark.legs))


def _pack_leg(leg: LegMark) -> bytes:
    current, now = (SINCE_EVER if ts is None else ts for ts in (leg.current, leg.now))
    return _LEG.pack(leg.high, current, leg.low, now)


def _pack_nows(nows: Sequence[int | None]) -> bytes:
    coded = [SINCE_EVER if now is None else now for now in nows]
    return _pack_numbers(coded)


def _pack_numbers(numbers: Sequence[int]) -> bytes:
    return _PART_COUNT.pack(len(numbers)) + b"".join(map(_NEXT.pack, numbers))


def _pack_cursor(cursor: Cursor, legs: bool) -> bytes:
    content = _NEXT.pack(cursor.next_id)
    if not legs:
        return content
    return content + _pack_numbers(cursor.parts)


class _TokenReader:
    """Reads what follows the head of a token, from its beginning on."""

    def __init__(self, content: bytes, flags: int) -> None:
        self._content = content
        self._flags = flags

    def claim(self) -> Claim:
        flags = self._flags
        copy = self._whole_mark() if flags & _COPY else None
        target = self._whole_mark() if flags & _TARGET else None
        return Claim(copy, target, self._cursor()) if target else Claim(copy)

    def _whole_mark(self) -> Mark:
        mark = self._mark()
        if self._flags & _NOWS:
            nows = tuple(_unless(now, SINCE_EVER) for now in self._numbers())
            mark = replace(mark, nows=nows)
        if not self._flags & _POINTS:
            return mark
        skipped, *highs = self._numbers()
        return replace(mark, trigger_highs=tuple(highs), skipped=Skipped(skipped))

    def _mark(self) -> Mark:
        form = _MARK if self._flags & _DIGESTS else _PLAIN_MARK
        position, high, now, horizon, *digest = self._take(form)
        mark = Mark(
            Position.unpack(position),
            (LegMark(high),),
            _unless(now, SINCE_EVER),
            _unless(horizon, FOR_EVER),
            *digest,
        )
        if not self._flags & _LEGS:
            return mark
        rows, salt, count = self._take(_LEG_COUNT)
        legs = [self._take(_LEG) for _ in range(count)]
        found = tuple(
            LegMark(high, _unless(current, SINCE_EVER), low, _unless(now, SINCE_EVER))
            for high, current, low, now in legs
        )
        return replace(mark, legs=found, rows=rows, salt=salt)

    def _cursor(self) -> Cursor:
        (next_id,) = self._take(_NEXT)
        if not self._flags & _LEGS:
            return Cursor(next_id)
        return Cursor(next_id, self._numbers())

    def _numbers(self) -> tuple[int, ...]:
        (count,) = self._take(_PART_COUNT)
        return tuple(self._take(_NEXT)[0] for _ in range(count))

    def _take(self, form: struct.Struct) -> tuple[Any, ...]:
        fields = form.unpack_from(self._content)
        self._content = self._content[form.size :]
        return fields


def _unless(instant: int, absent: int) -> int | None:
    return None if instant == absent else instant


def _short(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_SHORT).digest()


# ---- parts


def reason_message(reason: WholeReason) -> pb.SyncReason:
    if reason is WholeReason.NONE:
        return pb.SYNC_REASON_UNSPECIFIED
    return cast(pb.SyncReason, pb.SyncReason.Value(f"SYNC_REASON_{reason.name}"))


def skipped_message(skipped: Skipped) -> pb.SkippedPoints:
    if skipped is Skipped.NONE:
        return pb.SKIPPED_POINTS_UNSPECIFIED
    return cast(pb.SkippedPoints, pb.SkippedPoints.Value(f"SKIPPED_POINTS_{skipped.name}"))


def row_part(chunk: CopyChunk, columns: Sequence[Column], encoding: int) -> pb.SyncPart:
    if encoding == pb.ENCODING_ARROW and len(chunk.ids) > _FEW_ROWS:
        return pb.SyncPart(arrow=_arrow(chunk))
    return pb.SyncPart(rows=sync_rows(chunk, columns))


def removed_piece(ids: Int64s, ended: Int64s, limit: int) -> tuple[pb.SyncPart, int]:
    """Return the first of the ids, in a message of about `limit` bytes, and how many they are;
    those of them that are `ended` are named."""
    # The ids ascend. `breaks` has the index of the first id of each run but the first, so a cut at
    # one of them splits no run.
    fitting = max(1, limit // _RUN_BYTES)
    breaks = np.flatnonzero(np.diff(ids) != 1) + 1
    count = int(breaks[fitting - 1]) if fitting <= len(breaks) else len(ids)
    named_ids = ids[:count]
    named = to_runs(named_ids[member(named_ids, ended)]) if len(ended) else ()
    return pb.SyncPart(removed=pb.Removed(runs=to_runs(named_ids), ended=named)), count


def _arrow(chunk: CopyChunk) -> bytes:
    # One row for each id, in the order of the chunk: first what the copy needs, then the query's
    # columns.
    names = ["_row_id", "_visible_from", "_visible_until", "_checksum", "_sort_key"]
    columns = [
        pa.array(chunk.ids),
        _instants(chunk.visible_from, SINCE_EVER),
        _instants(chunk.visible_until, FOR_EVER),
        pa.array(chunk.checksums),
        chunk.sort_keys,
    ]
    if chunk.keys is not None:
        names.append(KEY_FIELD.name)
        columns.append(pa.array(chunk.keys))
    batch = pa.RecordBatch.from_arrays(
        [*columns, *chunk.rows.columns], names=[*names, *chunk.rows.schema.names]
    )
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _instants(numbers: Int64s, absent: int) -> pa.Array:
    return pa.array(numbers, mask=np.asarray(numbers == absent)).view(TIMESTAMP.arrow)
