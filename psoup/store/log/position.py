"""A position names a prefix of the log: everything up to and including one event."""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from psoup.store.errors import ForeignPosition

ORDINAL_BITS = 20
MAX_EVENTS_PER_COMMIT = 1 << ORDINAL_BITS
_WIRE = struct.Struct(">8sq")


class Position(NamedTuple):
    """The place of an event: `ordinal` in the log commit `version`. Positions are ordered as the
    log is."""

    version: int
    ordinal: int

    @property
    def packed(self) -> int:
        """The position as tables keep it: one int64, in the order of positions."""
        return self.version << ORDINAL_BITS | self.ordinal

    @classmethod
    def unpack(cls, packed: int) -> Position:
        return cls(packed >> ORDINAL_BITS, packed & (MAX_EVENTS_PER_COMMIT - 1))


# Before the first event: the commit that makes the log is version 0 and holds none.
START = Position(0, 0)


class PositionCodec:
    """Writes positions as opaque bytes that only the store which made them accepts."""

    def __init__(self, identity: bytes) -> None:
        self.mark = hashlib.blake2b(identity, digest_size=8).digest()

    def encode(self, position: Position) -> bytes:
        return _WIRE.pack(self.mark, position.packed)

    def decode(self, token: bytes) -> Position:
        """Reads a position. Raises ForeignPosition for bytes that this store did not make."""
        if len(token) != _WIRE.size:
            raise ForeignPosition("that is no position: pass on the bytes of an earlier answer")
        mark, packed = _WIRE.unpack(token)
        if mark != self.mark or packed < 0:
            raise ForeignPosition("that position belongs to another store; leave it out")
        return Position.unpack(packed)
