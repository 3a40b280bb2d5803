"""Positions: each names a prefix of the log, everything up to and including one event."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from psoup.store.errors import ForeignPosition
from psoup.store.state.writers import NO_WRITERS, WriterMarks

ORDINAL_BITS = 20
MAX_EVENTS_PER_COMMIT = 1 << ORDINAL_BITS
IDENTITY_BYTES = 8
_WIRE = struct.Struct(f">{IDENTITY_BYTES}sqq")


class Position(NamedTuple):
    """The place of an event: `ordinal` in the log commit `version`. Positions are ordered as the
    log is."""

    version: int
    ordinal: int

    @property
    def packed(self) -> int:
        """The position as tables store it: one int64, in the order of positions."""
        return self.version << ORDINAL_BITS | self.ordinal

    @classmethod
    def unpack(cls, packed: int) -> Position:
        return cls(packed >> ORDINAL_BITS, packed & (MAX_EVENTS_PER_COMMIT - 1))


# The position before the first event: version 0 creates the log and holds no event.
START = Position(0, 0)


class MarkedPosition(NamedTuple):
    """A position as a client sends it: with the newest writer mark at or before it. The mark shows
    whether a restore has undone the position."""

    position: Position
    mark: int


class PositionCodec:
    """The codec between positions and opaque bytes. `identity` names the store and its
    incarnation; `writers` returns the marks up to the end of the log, which must include every
    encoded position."""

    def __init__(
        self, identity: bytes, writers: Callable[[], WriterMarks] = lambda: NO_WRITERS
    ) -> None:
        self._identity = identity
        self._writers = writers

    def encode(self, position: Position) -> bytes:
        mark = self._writers().at(position.version)
        return _WIRE.pack(self._identity, position.packed, mark)

    def decode(self, content: bytes) -> MarkedPosition:
        """Return the position in `content`; the caller checks whether the log holds it. Raise
        ForeignPosition for bytes that this store did not make."""
        if len(content) != _WIRE.size:
            raise ForeignPosition("malformed position: pass the bytes of an earlier answer")
        identity, packed, mark = _WIRE.unpack(content)
        if identity != self._identity or packed < 0:
            raise ForeignPosition("the position belongs to another store; leave it out")
        return MarkedPosition(Position.unpack(packed), mark)
