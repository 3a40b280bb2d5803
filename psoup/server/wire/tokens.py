"""Tokens: a client's claim about its copy, signed by the store, so that no server remembers it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from psoup.answers import Question
from psoup.answers.difference.marks import NO_DIGEST, Claim, Mark, WholeReason
from psoup.store import Position, Store
from psoup.store.delta.durable import put_if_absent
from results.checksum import DIGEST_BYTES
from results.visibility import FOR_EVER, SINCE_EVER
from results.window import window_to_json

KEY_NAME = "token.key"
KEY_BYTES = 32

_VERSION = 1
_HEAD = struct.Struct(">BB8s8s8s")
_MARK = struct.Struct(f">qqqq{DIGEST_BYTES}s")
_PLAIN_MARK = struct.Struct(">qqqq")
_NEXT = struct.Struct(">q")
_SIGNATURE = 16
_COPY, _TARGET, _DIGESTS = 1, 2, 4


class Unusable(Exception):
    """A token that can't be honoured, and why."""

    def __init__(self, reason: WholeReason) -> None:
        super().__init__(reason.name)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class CopySubject:
    """The copy a token is about: a registration's, with a window or its base rows."""

    handle: bytes
    shape: str

    @classmethod
    def of(cls, handle: bytes, question: Question) -> CopySubject:
        shape = [window_to_json(question.window), question.base_rows]
        return cls(handle, json.dumps(shape, separators=(",", ":")))

    @property
    def marks(self) -> tuple[bytes, bytes]:
        return _short(self.handle), _short(self.shape.encode())


@dataclass(frozen=True, slots=True)
class Signed:
    """A token that this store has signed, about whatever copy."""

    claim: Claim
    handle: bytes
    shape: bytes

    def about(self, subject: CopySubject) -> Claim:
        """The claim. Raises Unusable where the token is about another copy."""
        handle, shape = subject.marks
        if handle != self.handle:
            raise Unusable(WholeReason.OTHER_REGISTRATION)
        if shape != self.shape:
            raise Unusable(WholeReason.OTHER_WINDOW)
        return self.claim


class Tokens:
    """Writes and reads tokens. `identity`, 8 bytes, is that of the store and its incarnation."""

    def __init__(self, identity: bytes, key: bytes) -> None:
        self._identity = identity
        self._key = key

    def write(self, subject: CopySubject, claim: Claim) -> bytes:
        marks = [mark for mark in (claim.copy, claim.target) if mark is not None]
        digests = any(mark.digest != NO_DIGEST for mark in marks)
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
            raise Unusable(WholeReason.FOREIGN_TOKEN if foreign else WholeReason.UNREADABLE_TOKEN)
        version, flags, identity, handle, shape = _HEAD.unpack_from(content)
        if identity != self._identity:
            raise Unusable(WholeReason.FOREIGN_TOKEN)
        if version != _VERSION:
            raise Unusable(WholeReason.UNREADABLE_TOKEN)
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
