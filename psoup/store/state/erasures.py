"""Erasures: the rows of a stream that were erased, and the keys that may not come back for a while.

An erasure names rows by their ids, and a stream key by a keyed digest: SipHash under a random salt
of the stream. So neither the log nor a table has the key's value. The ids are kept for ever, since
a client that was away must be told which rows to remove.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from datastem.arrays import Int64s
from datastem.instants import DAY
from psoup.store.log.position import START, Position
from results.id_sets import from_runs, member, to_runs
from results.masking import MASK_BYTES, masked

# For this long no row of an erased key is accepted, so that edits queued on devices end.
REFUSED_FOR = 90 * DAY
SALT_BYTES = MASK_BYTES
# The most rows of one erasure.
MAX_ERASED_ROWS = 50_000_000

NO_IDS: Int64s = np.empty(0, np.int64)
_VARINT_BITS = 7


def pack_ids(ids: Int64s) -> bytes:
    """Return ascending ids in a few bytes: their runs, each number in groups of 7 bits, the lowest
    first."""
    packed = bytearray()
    for number in to_runs(ids):
        while number >> _VARINT_BITS:
            packed.append(number & 0x7F | 0x80)
            number >>= _VARINT_BITS
        packed.append(number)
    return bytes(packed)


def unpack_ids(packed: bytes) -> Int64s:
    """Return the ids that `pack_ids` has packed. Raise ValueError for other bytes."""
    runs, number, shift = [], 0, 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += _VARINT_BITS
        if not byte & 0x80:
            runs.append(number)
            number, shift = 0, 0
    if shift:
        raise ValueError("the ids end too early")
    return from_runs(runs, MAX_ERASED_ROWS)


def ids_to_text(ids: Int64s) -> str:
    """Return packed ids as text."""
    return base64.b64encode(pack_ids(ids)).decode()


def ids_from_text(text: str) -> Int64s:
    """Return the ids of `ids_to_text`. Raise ValueError for another text."""
    return unpack_ids(base64.b64decode(text, validate=True))


@dataclass(frozen=True, eq=False)
class Erasure:
    """Rows that were erased at a position: their ascending `ids`, and the keyed digest of their
    stream key, None for rows of a stream without one."""

    stream_id: int
    position: Position
    stamp: int
    ids: Int64s
    digest: int | None


@dataclass(frozen=True, eq=False)
class StreamErasures:
    """The erasures of one stream, in log order, and the salt of its keyed digests. Immutable."""

    salt: bytes = b""
    records: tuple[Erasure, ...] = ()

    def add(self, erasure: Erasure, salt: bytes) -> StreamErasures:
        return StreamErasures(self.salt or salt, (*self.records, erasure))

    @cached_property
    def ids(self) -> Int64s:
        """The ids of all erased rows, ascending."""
        return _united(self.records)

    @property
    def last(self) -> Position:
        """The position of the last erasure of rows; START if there is none."""
        erased = (erasure.position for erasure in reversed(self.records) if len(erasure.ids))
        return next(erased, START)

    def since(self, position: Position) -> Int64s:
        """Return the ids of rows that were erased after a position, ascending."""
        return _united(erasure for erasure in self.records if erasure.position > position)

    def refused(self, keys: Int64s, now: int) -> Int64s:
        """Return the places of those digests of stream keys whose rows are not accepted."""
        digests, stamps = self._digests
        recent = digests[now - stamps < REFUSED_FOR]
        if not len(recent):
            return NO_IDS
        return np.flatnonzero(member(masked(keys, self.salt), recent))

    @cached_property
    def _digests(self) -> tuple[Int64s, Int64s]:
        """The digests of erased keys, ascending, and the stamp of each."""
        pairs = [
            (erasure.digest, erasure.stamp)
            for erasure in self.records
            if erasure.digest is not None
        ]
        digests, stamps = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
        return digests, stamps

    def _check(self) -> None:
        """Assert every invariant."""
        positions = [erasure.position for erasure in self.records]
        assert positions == sorted(set(positions))
        assert (np.diff(self.ids) > 0).all()
        assert not self.records or len(self.salt) == SALT_BYTES


NO_ERASURES = StreamErasures()


def _united(erasures: Iterable[Erasure]) -> Int64s:
    ids: Int64s = np.unique(np.concatenate([NO_IDS, *(erasure.ids for erasure in erasures)]))
    return ids
