"""Tokens: what a client's copy holds, signed by the store, so that no server need remember it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from datastem.instants import FOR_EVER, SINCE_EVER
from psoup.store import Position, Store
from psoup.store.durable import put_if_absent
from psoup.v1 import psoup_pb2 as pb
from results.checksum import DIGEST_BYTES

KEY_NAME = "token.key"
KEY_BYTES = 32

_VERSION = 1
_HEAD = struct.Struct(">BB8s8s8s")
_MARK = struct.Struct(f">qqqq{DIGEST_BYTES}s")
_PLAIN_MARK = struct.Struct(">qqqq")
_NEXT = struct.Struct(">q")
_SIGNATURE = 16
_COPY, _TARGET, _DIGESTS = 1, 2, 4
_NO_DIGEST = bytes(DIGEST_BYTES)


class Unusable(Exception):
    """A token that can't be honoured. Carries a SyncReason; stays in this package."""

    def __init__(self, reason: pb.SyncReason) -> None:
        super().__init__(pb.SyncReason.Name(reason))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Mark:
    """An answer, and the rows ahead of it: those below `high` visible at some NOW in
    `[now, horizon]`.

    `now` None: the stream had no NOW yet. `horizon` None: all that will ever be. `digest` is zero
    where the answer consists of rows, which say themselves what they are.
    """

    position: Position
    high: int
    now: int | None
    horizon: int | None
    digest: bytes = _NO_DIGEST


@dataclass(frozen=True, slots=True)
class Claim:
    """What the client has: the copy, if any, and of `target` what has an id below `next_id`.

    Removals come before rows: while they do `next_id` is −n, and those of ids below n were sent.
    """

    copy: Mark | None = None
    target: Mark | None = None
    next_id: int = 0

    @property
    def position(self) -> Position | None:
        mark = self.target or self.copy
        return None if mark is None else mark.position


@dataclass(frozen=True, slots=True)
class Subject:
    """Which copy a token is about: a registration's, with a window or its base rows."""

    handle: bytes
    shape: str

    @property
    def marks(self) -> tuple[bytes, bytes]:
        return _short(self.handle), _short(self.shape.encode())


@dataclass(frozen=True, slots=True)
class Signed:
    """A token that this store has signed, about whatever copy."""

    claim: Claim
    handle: bytes
    shape: bytes

    def about(self, subject: Subject) -> Claim:
        """Raises Unusable where it is about another copy."""
        handle, shape = subject.marks
        if handle != self.handle:
            raise Unusable(pb.SYNC_REASON_OTHER_REGISTRATION)
        if shape != self.shape:
            raise Unusable(pb.SYNC_REASON_OTHER_WINDOW)
        return self.claim


class Tokens:
    """`identity` is that of the store and its incarnation: 8 bytes."""

    def __init__(self, identity: bytes, key: bytes) -> None:
        self._identity = identity
        self._key = key

    def write(self, subject: Subject, claim: Claim) -> bytes:
        marks = [mark for mark in (claim.copy, claim.target) if mark is not None]
        digests = any(mark.digest != _NO_DIGEST for mark in marks)
        flags = (
            (_COPY if claim.copy else 0)
            | (_TARGET if claim.target else 0)
            | (_DIGESTS if digests else 0)
        )
        content = _HEAD.pack(_VERSION, flags, self._identity, *subject.marks)
        content += b"".join(_pack(mark, digests) for mark in marks)
        if claim.target is not None:
            content += _NEXT.pack(claim.next_id)
        return content + self._sign(content)

    def read(self, token: bytes) -> Signed:
        """Raises Unusable for anything this store did not sign."""
        content, signature = token[:-_SIGNATURE], token[-_SIGNATURE:]
        if not hmac.compare_digest(signature, self._sign(content)):
            foreign = len(content) >= _HEAD.size and content[2:10] != self._identity
            raise Unusable(
                pb.SYNC_REASON_FOREIGN_TOKEN if foreign else pb.SYNC_REASON_UNREADABLE_TOKEN
            )
        version, flags, identity, handle, shape = _HEAD.unpack_from(content)
        if identity != self._identity:
            raise Unusable(pb.SYNC_REASON_FOREIGN_TOKEN)
        if version != _VERSION:
            raise Unusable(pb.SYNC_REASON_UNREADABLE_TOKEN)
        return Signed(_claim(content[_HEAD.size :], flags), handle, shape)

    def _sign(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256")[:_SIGNATURE]


def read_key(store: Store, path: Path | None) -> bytes:
    """The key in the file `path`, or the store's own, which is made where there is none.

    Raises OSError, or ValueError for a file that holds no key.
    """
    own = store.root / KEY_NAME
    if path is None and not own.exists():
        with contextlib.suppress(FileExistsError):
            put_if_absent(own, os.urandom(KEY_BYTES), sync=store.sync, mode=0o600)
    chosen = own if path is None else path
    key = chosen.read_bytes()
    if len(key) < KEY_BYTES:
        raise ValueError(f"{chosen} holds {len(key)} bytes; a key has {KEY_BYTES} or more")
    return key


def _pack(mark: Mark, digest: bool) -> bytes:
    now = SINCE_EVER if mark.now is None else mark.now
    horizon = FOR_EVER if mark.horizon is None else mark.horizon
    numbers = mark.position.packed, mark.high, now, horizon
    return _MARK.pack(*numbers, mark.digest) if digest else _PLAIN_MARK.pack(*numbers)


def _claim(content: bytes, flags: int) -> Claim:
    form = _MARK if flags & _DIGESTS else _PLAIN_MARK
    marks: dict[int, Mark] = {}
    for flag in (_COPY, _TARGET):
        if flags & flag:
            marks[flag] = _unpack(form.unpack_from(content))
            content = content[form.size :]
    next_id = _NEXT.unpack(content)[0] if flags & _TARGET else 0
    return Claim(marks.get(_COPY), marks.get(_TARGET), next_id)


def _unpack(fields: tuple[int, int, int, int, bytes] | tuple[int, int, int, int]) -> Mark:
    position, high, now, horizon, *digest = fields
    return Mark(
        Position.unpack(position),
        high,
        None if now == SINCE_EVER else now,
        None if horizon == FOR_EVER else horizon,
        *digest,
    )


def _short(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=8).digest()
