"""Standard input, a FIFO or a socket: bytes that come once, and maybe never end."""

from __future__ import annotations

import io
import os
import select
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from client_sdk import Stream
from psoup.source.errors import BadInput
from psoup.source.feeding.piece import Mark, Piece
from psoup.source.readers import FileChunk, Options, line_parser
from psoup.source.readers.encoding import Utf8Input, codec_name, is_ascii_based
from psoup.source.readers.parquet_reader import read_arrow

READ_BYTES = 1 << 20
_WAKE_SECONDS = 0.25
_GZIP_MAGIC = b"\x1f\x8b"


class PipeReader:
    """A reader of lines or Arrow that arrive on a file descriptor. Its marks count records.

    Nothing waits for a full block: what has arrived is handed over. Not more than a block and a
    record is in memory.
    """

    can_seek = False
    at_end = False

    def __init__(self, descriptor: int, name: str, form: str, stream: Stream, options: Options):
        if form == "parquet":
            raise BadInput(f"{name}: Parquet can't be read from a pipe; use a file, or Arrow")
        codec_name(options.encoding)
        self._input = _PipeInput(descriptor)
        self._name = name
        self._stream = stream
        if form == "arrow":
            self._chunks = self._arrow_chunks(options)
        else:
            self._chunks = self._line_chunks(form, options)

    def poll(self, seconds: float) -> Piece | None:
        """Return what has arrived within this time."""
        self._input.deadline = time.monotonic() + seconds
        try:
            chunk = next(self._chunks)
        except StopIteration:
            empty = self._stream.schema.empty_table()
            return Piece(empty, is_last=True)
        except BadInput as error:
            raise BadInput(f"{self._name} {error}") from None
        return None if chunk is None else Piece.of(chunk)

    def acknowledge(self, mark: Mark) -> None:
        """Nothing is kept for a second reading."""

    def interrupt(self) -> None:
        self._input.is_closed = True

    def close(self) -> None:
        """The descriptor is the caller's."""

    def _line_chunks(self, form: str, options: Options) -> Iterator[FileChunk | None]:
        source: Any = self._input
        if not is_ascii_based(options.encoding):
            source = Utf8Input(source, options.encoding)
            options = replace(options, encoding="utf-8")
        parser = line_parser(form, self._stream, options)
        while True:
            data = source.read(READ_BYTES)
            if data is None:
                yield None
                continue
            if not data:
                break
            yield from parser.feed(data)
        yield from parser.finish()

    def _arrow_chunks(self, options: Options) -> Iterator[FileChunk | None]:
        # Arrow waits for whole messages, in the thread that polls.
        self._input.waits = True
        with self._input:
            yield from read_arrow(self._input, self._stream, options, lambda position: None)


class _PipeInput(io.RawIOBase):
    """Bytes of a descriptor, also if they are compressed with gzip.

    `read` returns None if none have arrived by `deadline`; if it `waits`, it does not return
    before there are as many as the caller wants.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._position = 0
        self._unpack: Any = None
        self._is_first = True
        self._is_ended = False
        self._buffer = bytearray()
        self._packed = b""
        self.deadline = 0.0
        self.waits = False
        self.is_closed = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes | None:
        if not self.waits:
            return self._read_some(READ_BYTES)
        needed_bytes = -1 if size is None else size
        while not self._is_ended and (needed_bytes < 0 or len(self._buffer) < needed_bytes):
            data = self._read_some(READ_BYTES)
            if data is None:
                if self.is_closed:
                    raise BadInput("ended while it was read")
                self.deadline = time.monotonic() + _WAKE_SECONDS
            else:
                self._is_ended = not data
                self._buffer += data
        end = len(self._buffer) if needed_bytes < 0 else needed_bytes
        content = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._position += len(content)
        return content

    def _read_some(self, size: int) -> bytes | None:
        while True:
            if self._packed and (content := self._unpacked(size)):
                return content
            wait = max(0.0, self.deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], wait)[0]:
                return None
            try:
                data = os.read(self._descriptor, size)
            except BlockingIOError:
                return None
            if self._is_first:
                self._is_first = False
                self._unpack = _unpacker() if data[:2] == _GZIP_MAGIC else None
            if self._unpack is None:
                return data
            if not data:
                if not self._unpack.eof:
                    raise BadInput("can't be unpacked: it is cut")
                return b""
            self._packed = data

    def _unpacked(self, size: int) -> bytes:
        """Return some of what is packed, at most `size` bytes: packed zeros are small."""
        try:
            if self._unpack.eof:  # several members, one after the other
                self._unpack = _unpacker()
            content: bytes = self._unpack.decompress(self._packed, size)
        except zlib.error as error:
            raise BadInput(f"can't be unpacked: {error}") from None
        self._packed = self._unpack.unconsumed_tail or self._unpack.unused_data
        return content


def _unpacker() -> Any:
    return zlib.decompressobj(zlib.MAX_WBITS | 16)
