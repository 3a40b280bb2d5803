"""What readers hand over: pieces of good rows and bad ones, and where to go on after them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from psoup.source.readers import BadLine, FileChunk

# The place at which a reader goes on, as it wrote it itself. The keys below are added by the feed.
Mark = Mapping[str, Any]
# Records after the reader's own mark that are in the store already.
ROW = "row"
# Records after the mark whose bad rows are in the aside stream already.
ASIDE = "aside_done"
# The greatest event time of the publisher, in microseconds, for heartbeats.
REACHED = "reached"

# The part of a source's name under which rows of the aside stream are published.
REPLAY = "replay"

_SHOWN_CHARACTERS = 200
# How long the first records of a reader are waited for.
SAMPLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class BadRow:
    """A record that can't be a row. `record` is its place in its piece, good records included.

    `raw` is the record as it came, if it is a text. `metadata` is a JSON object of what it takes to
    make the same row of it later: `row` is an object of texts by columns of the stream; the rest is
    that of the connector. If `is_aside`, it is in the aside stream already.
    """

    record: int
    place: str
    reason: str
    message: str
    raw: str
    metadata: str = ""
    is_aside: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"

    @classmethod
    def of(cls, line: BadLine, where: str = "") -> BadRow:
        """Return a bad line as a bad row; `where` is put before its number."""
        place = f"{where}line {line.number}" + (f", {line.column}" if line.column else "")
        reason = "BAD_VALUE" if line.column else "BAD_ROW"
        message = f"{line.text[:_SHOWN_CHARACTERS]!r} {line.why}"
        raw, metadata = line.raw or line.fields or line.text, row_metadata(line.fields)
        return cls(line.record, place, reason, message, raw, metadata)


def row_metadata(fields: str) -> str:
    """Return the metadata of a record with these fields, a JSON object of texts."""
    return f'{{"row": {fields}}}' if fields else ""


@dataclass(frozen=True, slots=True)
class Piece:
    """Records in their order: the good ones as a table of the stream, the bad ones by place.

    `mark` is where to go on after it, None if the next such place comes later. `mark_before`
    returns where to go on at a record of the piece; without it records are counted. `is_last` says
    that nothing follows; `is_restart` that the reader begins again, so that what the store's mark
    counted are not the records that follow.
    """

    table: pa.Table
    bad: tuple[BadRow, ...] = ()
    mark: Mark | None = None
    mark_before: Callable[[int], Mark] | None = None
    is_last: bool = False
    is_restart: bool = False

    @property
    def records(self) -> int:
        return int(self.table.num_rows) + len(self.bad)

    @classmethod
    def of(
        cls, chunk: FileChunk, mark: Mark | None = None, where: str = "", is_last: bool = False
    ) -> Piece:
        bad = tuple(BadRow.of(line, where) for line in chunk.bad)
        return cls(chunk.table, bad, mark, is_last=is_last)


def good_before(bad: tuple[BadRow, ...], record: int) -> int:
    """Return how many good rows come before a record."""
    return record - sum(row.record < record for row in bad)


class Reader(Protocol):
    """A place to read from, opened at a mark. One thread polls it at a time."""

    # Whether it can be opened again at an earlier mark.
    can_seek: bool
    # Whether everything that is there was handed over; more may come.
    at_end: bool

    def poll(self, seconds: float) -> Piece | None:
        """Return the next piece; None if nothing comes within this time.

        Raises SourceAway if the same may succeed later, and SourceError if not.
        """

    def acknowledge(self, mark: Mark) -> None:
        """Note that everything before the mark is in the store. Does not wait; any thread."""

    def interrupt(self) -> None:
        """Let a poll that is under way end soon. Any thread; `close` follows."""

    def close(self) -> None:
        """Release what the reader holds."""


@runtime_checkable
class PushedReader(Reader, Protocol):
    """A reader whose records arrive by themselves, so that no thread waits for them."""

    async def arrival(self, seconds: float) -> None:
        """Wait until there is enough for a batch, or the first record is `seconds` old. May return
        without any.
        """


def first_piece(reader: Reader) -> Piece | None:
    """Return the first piece with records of a reader, which is closed; None if none comes."""
    deadline = time.monotonic() + SAMPLE_SECONDS
    try:
        while time.monotonic() < deadline:
            piece: Piece | None = reader.poll(0.2)
            if piece is not None and (piece.records or piece.is_last):
                return piece
    finally:
        reader.close()
    return None


def encode_mark(mark: Mark) -> bytes:
    return json.dumps(mark, separators=(",", ":"), ensure_ascii=False).encode()


def decode_mark(content: bytes) -> dict[str, Any]:
    """Return a mark. Raises ValueError if a source has not written it."""
    mark = json.loads(content)
    if not isinstance(mark, dict):
        raise ValueError("a mark of a source is a JSON object")
    return mark
