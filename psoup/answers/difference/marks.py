"""Marks: what a copy of an answer is, in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from psoup.store import Position
from results.checksum import DIGEST_BYTES

NO_DIGEST = bytes(DIGEST_BYTES)


class WholeReason(Enum):
    """Why a whole answer is sent although the client may have had something; NONE where it is not.

    The names are those of the wire's SyncReason.
    """

    NONE = auto()
    FIRST = auto()
    ASKED = auto()
    UNREADABLE_TOKEN = auto()
    FOREIGN_TOKEN = auto()
    OTHER_REGISTRATION = auto()
    OTHER_WINDOW = auto()
    RETENTION = auto()
    SMALLER = auto()
    TARGET_GONE = auto()


@dataclass(frozen=True, slots=True)
class Mark:
    """An answer and the rows ahead of it: the rows with ids below `high` that are visible at some
    NOW in `[now, horizon]`.

    `now` is None where the stream had no NOW yet. A `horizon` of None has all rows that will ever
    be visible. `digest` is zero where the answer consists of rows, which say themselves what they
    are.
    """

    position: Position
    high: int
    now: int | None
    horizon: int | None
    digest: bytes = NO_DIGEST


@dataclass(frozen=True, slots=True)
class Claim:
    """What the client has: the copy, if any, and of `target` what has an id below `next_id`.

    Removals come before rows: while they are sent, `next_id` is −n, and the removed ids below n
    have been sent.
    """

    copy: Mark | None = None
    target: Mark | None = None
    next_id: int = 0

    @property
    def position(self) -> Position | None:
        mark = self.target or self.copy
        return None if mark is None else mark.position
