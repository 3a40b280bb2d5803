"""Bytes that arrive in pieces, as blocks of whole records.

At most one record of `MAX_RECORD_BYTES` is buffered beside a piece: the input may have no end, and
a line may have no end either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from psoup.source.readers.chunk import BadLine

# A row that is larger does not fit a message to the store.
MAX_RECORD_BYTES = 16 << 20
_SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Whole records. `first_line` is the number of its first line.

    `size` counts the bytes of the input that it covers. If `bad` is set, it is one record that is
    not to be parsed.
    """

    content: bytes
    first_line: int
    size: int
    bad: BadLine | None = None


class Splitter:
    """A splitter of bytes at the ends of records.

    Records end with a line. With `delimiter`, a line break inside a quoted value of CSV does not
    end a record: a quote opens a value at its first character only.
    """

    def __init__(self, delimiter: str = "", first_line: int = 1) -> None:
        self._buffer = bytearray()
        self._line = first_line
        # The bytes dropped of a record that is too long, and its beginning.
        self._dropped = 0
        self._dropped_head = b""
        self._quoted = _quoted_values(delimiter) if delimiter else None

    def feed(self, data: bytes) -> Iterator[RecordBlock]:
        """Yield the blocks that these bytes complete."""
        if self._dropped and not (data := self._drop(data)):
            return
        if self._dropped:
            yield self._take_dropped()
        self._buffer += data
        if end := self._boundary():
            yield self._take(end)
        while len(self._buffer) > MAX_RECORD_BYTES:
            yield from self._too_long()

    def finish(self) -> Iterator[RecordBlock]:
        """Yield what remains at the end of the input, whose last line may lack its end."""
        if self._dropped:
            yield self._take_dropped()
        if self._buffer:
            yield self._take(len(self._buffer))

    def _take(self, end: int, why: str = "") -> RecordBlock:
        content = bytes(self._buffer[:end])
        del self._buffer[:end]
        first, self._line = self._line, self._line + content.count(b"\n")
        bad = BadLine(first, "", _excerpt(content), why) if why else None
        return RecordBlock(content, first, end, bad)

    def _boundary(self) -> int:
        """Return the end of the last whole record in the buffer, or 0."""
        end = self._buffer.rfind(b"\n")
        if self._quoted is None or b'"' not in self._buffer:
            return end + 1
        values = [match.span() for match in self._quoted.finditer(self._buffer)]
        # From the last value on: a line break inside a value is not the end of a record, and
        # neither is one before it that lies inside an earlier value.
        for start, stop in reversed(values):
            closed = stop - start > 1 and self._buffer[stop - 1 : stop] == b'"'
            if start < end and (end < stop or not closed):
                end = self._buffer.rfind(b"\n", 0, start)
        return end + 1

    def _too_long(self) -> Iterator[RecordBlock]:
        why = f"has more than {MAX_RECORD_BYTES:,} bytes"
        if end := self._buffer.find(b"\n") + 1:
            # A quote that is not closed: only its line is bad.
            yield self._take(end, f'{why}: is a " not closed?')
            if end := self._boundary():
                yield self._take(end)
        else:
            self._dropped_head = bytes(self._buffer[:_SHOWN_BYTES])
            self._dropped = len(self._buffer)
            self._buffer.clear()

    def _drop(self, data: bytes) -> bytes:
        """Return what follows the line that is too long."""
        end = data.find(b"\n") + 1
        self._dropped += end or len(data)
        return data[end:] if end else b""

    def _take_dropped(self) -> RecordBlock:
        why = f"has {self._dropped:,} bytes, more than {MAX_RECORD_BYTES:,}"
        bad = BadLine(self._line, "", _excerpt(self._dropped_head), why)
        block = RecordBlock(b"", self._line, self._dropped, bad)
        self._dropped, self._line = 0, self._line + 1
        return block


def _quoted_values(delimiter: str) -> re.Pattern[bytes]:
    """Return a pattern of quoted values, the last of which may lack its end."""
    before = b"[" + re.escape(delimiter.encode()) + rb"\r\n]"
    return re.compile(rb"(?:\A|(?<=" + before + rb'))"(?:[^"]|"")*+(?:"|\Z)')


def _excerpt(content: bytes) -> str:
    return content[:_SHOWN_BYTES].decode("utf-8", "backslashreplace").strip()
