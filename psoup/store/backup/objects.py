"""Back-ups in a bucket.

`<number>-<instant>/manifest.jsonl` has the sizes and checksums of a generation's files. The files
of all generations are in `files/`, under their paths with checksum and size: an object of that name
is whole and needs no upload, whichever generation it is from.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from psoup.store.backup.address import BucketAddress
from psoup.store.backup.bucket import Bucket, ObjectMissing, ObjectTaken
from psoup.store.backup.copying import FileMark
from psoup.store.backup.generations import (
    MANIFEST,
    Generation,
    Header,
    check_store,
    is_name,
    next_name,
    number_of,
    read_header,
    write_manifest,
)
from psoup.store.backup.lease import Lease, LeaseTimes
from psoup.store.errors import BackupFailed

_FILES = "files/"
_HEADER_BYTES = 4096
_READERS = 8


class BucketFiles:
    """The files of a generation. `names` are the objects that are known to exist."""

    # Objects take a round trip each, and large ones have several parts in flight.
    threads = 4

    def __init__(self, bucket: Bucket, names: set[str] | None = None) -> None:
        self._bucket = bucket
        self._names = set() if names is None else names

    def has(self, path: str, mark: FileMark, *, read: bool = False) -> bool:
        # The checksum is in the name.
        return object_name(path, mark) in self._names

    def take(self, source: Path, path: str, mark: FileMark) -> None:
        self._bucket.upload(object_name(path, mark), source, mark)

    def put(self, path: str, content: bytes) -> None:
        self._bucket.put(object_name(path, FileMark.of(content)), content)

    def give(self, path: str, mark: FileMark, target: Path) -> None:
        place = f"{self._bucket.address}/{object_name(path, mark)}"
        # At the top there are secrets only: token.key.
        rights = 0o666 if "/" in path else 0o600
        try:
            copied = self._bucket.download(object_name(path, mark), target, rights)
        except ObjectMissing:
            raise BackupFailed(f"{place} is gone; was the back-up removed?") from None
        if copied != mark:
            target.unlink(missing_ok=True)
            raise BackupFailed(f"{place} is damaged: its checksum is wrong")

    def is_whole(self, path: str, mark: FileMark) -> bool:
        try:
            return self._bucket.mark_of(object_name(path, mark)) == mark
        except ObjectMissing:
            return False

    @contextmanager
    def local(self, marks: Mapping[str, FileMark]) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="psoup-restore-") as folder:
            for path, mark in marks.items():
                target = Path(folder) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                self.give(path, mark, target)
            yield Path(folder)


def object_name(path: str, mark: FileMark) -> str:
    """Return the name of the object of a file."""
    return f"{_FILES}{path}.{mark.crc:08x}-{mark.size}"


class BucketTarget:
    """A target in a bucket that this process has leased, for back-ups of one store."""

    def __init__(self, bucket: Bucket, store: str, lease: Lease) -> None:
        self._bucket = bucket
        self._lease = lease
        self._folders = [name for name in bucket.folders() if is_name(name)]
        self.generations = _generations(bucket, self._folders)
        check_store(self.generations, store, str(bucket.address))
        # Also those of an interrupted back-up: an object is there at once or not at all.
        self._names = set(bucket.names(_FILES))

    def begin(self) -> BucketFiles:
        return BucketFiles(self._bucket, self._names)

    def check(self) -> None:
        self._lease.check()

    def settle(self, marks: Mapping[str, FileMark]) -> None:
        # A put that has returned is durable, and others of these files may be of use.
        self._names |= {object_name(path, mark) for path, mark in marks.items()}

    def finish(self, header: Header, marks: Mapping[str, FileMark]) -> Generation:
        name = next_name(self._folders, header.begun)
        self._lease.check()
        try:
            self._bucket.create(f"{name}/{MANIFEST}", write_manifest(header, marks).encode())
        except ObjectTaken:
            raise BackupFailed(f"{name} is there already; run the command again") from None
        return _generation(self._bucket, name, header)

    def drop_before(self, instant: int) -> int:
        old = [copy for copy in self.generations[:-1] if copy.header.begun < instant]
        self._lease.check()
        self._bucket.remove([f"{generation.name}/{MANIFEST}" for generation in old])
        remaining = [copy for copy in self.generations if copy not in old]
        used = {
            object_name(path, mark) for copy in remaining for path, mark in copy.marks().items()
        }
        self._lease.check()
        self._bucket.remove(sorted(self._names - used))
        return len(old)


def _generations(bucket: Bucket, folders: list[str]) -> list[Generation]:
    """Return the finished back-ups, oldest first."""
    with ThreadPoolExecutor(_READERS) as pool:
        copies = pool.map(partial(_read_generation, bucket), sorted(folders, key=number_of))
        return [copy for copy in copies if copy is not None]


def _read_generation(bucket: Bucket, name: str) -> Generation | None:
    try:
        content, _ = bucket.get(f"{name}/{MANIFEST}", _HEADER_BYTES)
    except ObjectMissing:
        return None
    place = f"{bucket.address}/{name}"
    return _generation(bucket, name, read_header(content.decode(errors="replace"), place))


def _generation(bucket: Bucket, name: str, header: Header) -> Generation:
    def read() -> str:
        return bucket.get(f"{name}/{MANIFEST}")[0].decode(errors="replace")

    return Generation(name, f"{bucket.address}/{name}", header, BucketFiles(bucket), read)


@contextmanager
def leased_bucket(
    address: BucketAddress, store: str, times: LeaseTimes | None = None
) -> Iterator[BucketTarget]:
    """Open a prefix of a bucket for back-ups of a store, and keep other back-ups out of it. Raise
    BackupFailed."""
    bucket = Bucket(address)
    with Lease(bucket, times or LeaseTimes()) as lease:
        yield BucketTarget(bucket, store, lease)


def read_bucket(address: BucketAddress) -> list[Generation]:
    """Return the back-ups below an address, oldest first. Raise BackupFailed."""
    bucket = Bucket(address)
    return _generations(bucket, [name for name in bucket.folders() if is_name(name)])
