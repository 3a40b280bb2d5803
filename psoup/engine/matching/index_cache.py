"""Built indexes in files of the machine, so that only one worker of it builds each.

A file is a cache and no state: the truth is the predicates table. Its name is its key, and its
checksum is verified before it is used. If anything is wrong with a file, the index is built again.
Files are in a folder of this user in the machine's temporary folder, never in the store's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import mmap
import os
import stat
import struct
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np

from datastem.arrays import Array
from querystem.index import QueryStem
from querystem.index.stored import INDEX_FORMAT, ArrayReader, ArrayWriter

log = logging.getLogger(__name__)

# An index of fewer predicates is built in a few milliseconds.
MIN_CACHED_PREDICATES = 4096
# Files of stores that are gone, and drafts of killed workers, are removed after this time. A worker
# that has mapped one keeps it.
_MAX_AGE_SECONDS = 7 * 86_400.0
_ALIGNMENT_BYTES = 64
# The length of the form, and the checksum of all that follows these twelve bytes.
_HEADER = struct.Struct("<QI")


class IndexCache:
    """The files of one store's indexes."""

    def __init__(self, root: Path, folder: Path | None = None) -> None:
        self._store = _digest(str(root.resolve()))
        self._folder = folder

    def load(self, stream_id: int, version: str) -> QueryStem | None:
        """Return the index of a stream at a version of its predicates; None if no file has it."""
        try:
            path = self.open_folder() / self._name(stream_id, version)
            with open(path, "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return _read(mapped)
        except FileNotFoundError:
            return None
        except Exception as error:
            log.warning("the cached index of stream %d is built again: %s", stream_id, error)
            return None

    def store(self, stream_id: int, version: str, index: QueryStem) -> None:
        """Write an index for other workers; remove the stream's earlier files, and old ones of
        any."""
        content = index.content()
        if content is None or len(index) < MIN_CACHED_PREDICATES:
            return
        writer = ArrayWriter()
        form = writer.write(content)
        try:
            folder, name = self.open_folder(), self._name(stream_id, version)
            with tempfile.NamedTemporaryFile(dir=folder, prefix="new-", delete=False) as file:
                try:
                    for octets in _octets(form, writer.arrays):
                        file.write(octets)
                    file.close()
                    os.replace(file.name, folder / name)
                except BaseException:
                    os.unlink(file.name)
                    raise
            prefix, oldest = self._prefix(stream_id), time.time() - _MAX_AGE_SECONDS
            for path in folder.iterdir():
                is_earlier = path.name.startswith(prefix) and path.name != name
                if is_earlier or path.stat().st_mtime < oldest:
                    path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the index of stream %d can't be cached: %s", stream_id, error)

    def remove_all(self) -> None:
        """Remove the files of the store's indexes. Workers that have mapped one keep it."""
        with contextlib.suppress(OSError):
            for path in self.open_folder().glob(f"{self._store}-*"):
                path.unlink(missing_ok=True)

    def open_folder(self) -> Path:
        """Return the folder. Raise PermissionError if it is another user's: a mapped file that
        somebody else truncates ends the process."""
        folder = self._folder or Path(tempfile.gettempdir()) / f"psoup-index-{os.getuid()}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        state = os.lstat(folder)
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
            raise PermissionError(f"{folder} is not a folder of this user alone")
        return folder

    def _prefix(self, stream_id: int) -> str:
        return f"{self._store}-{stream_id}-"

    def _name(self, stream_id: int, version: str) -> str:
        return f"{self._prefix(stream_id)}{_digest(f'{INDEX_FORMAT} {version}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _octets(form: object, arrays: list[Array]) -> list[bytes | memoryview]:
    """Return the bytes of a file: header, form and arrays, each array aligned."""
    places = [[array.dtype.str, list(array.shape)] for array in arrays]
    head = json.dumps([form, places]).encode()
    parts: list[bytes | memoryview] = [head, _padding(_HEADER.size + len(head))]
    for array in arrays:
        parts += [array.reshape(-1).view(np.uint8).data, _padding(array.nbytes)]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return [_HEADER.pack(len(head), checksum), *parts]


def _padding(size: int) -> bytes:
    return bytes(-size % _ALIGNMENT_BYTES)


def _read(mapped: mmap.mmap) -> QueryStem:
    """Return the index of a file. Raise ValueError, or anything else, if it is damaged."""
    view = memoryview(mapped)
    size, checksum = _HEADER.unpack_from(view)
    if zlib.crc32(view[_HEADER.size :]) != checksum:
        raise ValueError("its checksum is wrong")
    form, places = json.loads(bytes(view[_HEADER.size : _HEADER.size + size]))
    begin = _HEADER.size + size
    begin += -begin % _ALIGNMENT_BYTES
    arrays = []
    for dtype, shape in places:
        count = int(np.prod(shape))
        flat = np.frombuffer(view, dtype, count, begin) if count else np.empty(0, dtype)
        array = flat.reshape(shape)
        arrays.append(array)
        begin += array.nbytes + -array.nbytes % _ALIGNMENT_BYTES
    return ArrayReader(arrays).read(form)
