"""A file that grows, followed as `tail -F` does. Its mark is an inode and a byte offset."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO

from client_sdk import Stream
from psoup.source.errors import BadInput, PlaceLost
from psoup.source.feeding.piece import Mark, Piece
from psoup.source.readers import FileChunk, LineParser, Options, line_parser
from psoup.source.readers.csv_reader import CsvParser
from psoup.source.readers.encoding import codec_name, is_ascii_based

READ_BYTES = 1 << 20
_LOOK_SECONDS = 0.1
# How long a file that was replaced may still be written to.
_GRACE_SECONDS = 1.0
_HEAD_BYTES = 256
_ROTATED = re.compile(r"[.-]\d[\d.T:_-]*")


class TailReader:
    """A reader of the lines of a file, of those that are still to be written, and of the file that
    takes its place.

    A line is read when its end is there. If the name belongs to another file, the lines of the old
    one come first. A file that was cut while it is followed is read from its beginning. Raises
    PlaceLost if the file of the mark is neither there nor beside it under another name.
    """

    can_seek = True
    at_end = False

    def __init__(self, path: Path, form: str, stream: Stream, options: Options, mark: Mark) -> None:
        codec_name(options.encoding)
        if not is_ascii_based(options.encoding):
            raise BadInput(f"--follow can't read {options.encoding}; convert the file first")
        self._path, self._form, self._stream, self._options = path, form, stream, options
        self._file: BinaryIO | None = None
        self._inode = self._offset = 0
        # When the file that was read before was written last.
        self._finished_ns = 0
        self._replaced_at = 0.0
        self._parser: LineParser | None = None
        self._chunks: deque[FileChunk] = deque()
        # The first bytes of the file: inodes are used again.
        self._head = b""
        if mark:
            self._open_at(mark)

    def poll(self, seconds: float) -> Piece | None:
        deadline = time.monotonic() + seconds
        while True:
            if not self._chunks:
                self._chunks.extend(self._read())
            if self._chunks:
                chunk = self._chunks.popleft()
                self._offset += chunk.size
                return Piece.of(chunk, self._mark())
            if time.monotonic() >= deadline:
                return None
            time.sleep(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))

    def _mark(self) -> Mark:
        head = self._head[: self._offset]
        return {
            "inode": self._inode,
            "offset": self._offset,
            "head": [len(head), _digest(head)],
        }

    def acknowledge(self, mark: Mark) -> None:
        """The file stays as it is."""

    def interrupt(self) -> None:
        """A poll does not wait for long."""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _read(self) -> list[FileChunk]:
        """Return the chunks of the bytes that came since; move to the next file at the end."""
        if self._file is None and not self._open(self._next_path()):
            return []
        assert self._file is not None and self._parser is not None
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._begin(self._file)  # it was cut, and written again
        if data := self._file.read(READ_BYTES):
            self._replaced_at = 0.0
            if len(self._head) < _HEAD_BYTES:
                self._head = os.pread(self._file.fileno(), _HEAD_BYTES, 0)
            return list(self._parser.feed(data))
        if self._is_replaced():
            remaining = list(self._parser.finish()) if self._has_header() else []
            self._finished_ns = os.fstat(self._file.fileno()).st_mtime_ns
            self._file.close()
            self._file = None
            return remaining
        return []

    def _has_header(self) -> bool:
        return not isinstance(self._parser, CsvParser) or bool(self._parser.header)

    def _is_replaced(self) -> bool:
        """Return whether another file has the name, for long enough that the old one is done."""
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            inode = self._inode
        if inode == self._inode:
            self._replaced_at = 0.0
            return False
        self._replaced_at = self._replaced_at or time.monotonic()
        return time.monotonic() - self._replaced_at >= _GRACE_SECONDS

    def _next_path(self) -> Path:
        """Return the file that follows the one that is done: it may have been rotated by now."""
        if not self._finished_ns:
            return self._path
        later = [
            (stamp, path)
            for path in (self._path, *self._rotated())
            if (stamp := _mtime_ns(path)) > self._finished_ns
        ]
        return min(later)[1] if later else self._path

    def _rotated(self) -> list[Path]:
        """Return the files that rotation has given a number or a date."""
        beside = self._path.parent.glob(f"{glob.escape(self._path.name)}*")
        begin = len(self._path.name)
        return sorted(path for path in beside if _ROTATED.fullmatch(path.name[begin:]))

    def _open(self, path: Path) -> bool:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return False
        self._begin(file)
        return True

    def _begin(self, file: BinaryIO) -> None:
        """Read a file from its beginning."""
        self._file = file
        file.seek(0)
        self._inode, self._offset, self._head = os.fstat(file.fileno()).st_ino, 0, b""
        self._parser = line_parser(self._form, self._stream, self._options)

    def _open_at(self, mark: Mark) -> None:
        """Go on in the file of the mark, which may have another name by now."""
        inode, offset = int(mark["inode"]), int(mark["offset"])
        path = self._find(inode, *mark["head"])
        if path is None:
            raise PlaceLost(
                f"{self._path} is another file than the one of the mark (inode {inode}), which is "
                f"not in {self._path.parent} any more; what it had after byte {offset:,} is lost. "
                "Begin with another --publisher"
            )
        self._open(path)
        assert self._file is not None
        if self._form in ("csv", "tsv") and offset:
            self._parser = line_parser(self._form, self._stream, self._options, self._header())
        self._file.seek(offset)
        self._offset = offset
        self._head = os.pread(self._file.fileno(), _HEAD_BYTES, 0)

    def _header(self) -> list[str]:
        parser = line_parser(self._form, self._stream, self._options)
        assert self._file is not None and isinstance(parser, CsvParser)
        while not parser.header and (data := self._file.read(READ_BYTES)):
            list(parser.feed(data))
        if not parser.header:
            raise BadInput(f"{self._path.name} has no line of names any more")
        return parser.header

    def _find(self, inode: int, length: int, digest: str) -> Path | None:
        """Return the file of a mark: by the name, or beside it, as rotation renames it."""
        for path in (self._path, *self._rotated()):
            try:
                with path.open("rb") as file:
                    is_same = os.fstat(file.fileno()).st_ino == inode
                    if is_same and _digest(file.read(length)) == digest:
                        return path
            except OSError:
                continue
        return None


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
