"""Durable writes: every byte is on the disk before a reader can see it.

No other module writes to the disk, so tests inject faults only here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# Many syncs at once cost little more than one: a hundred files took 400 ms one after the other and
# 90 ms in eight threads.
MAX_WRITER_THREADS = 8

# A file that no commit names is not removed before this age, whatever the engine's `--grace`: its
# commit may be about to be linked. A commit never names a file older than half of this.
MIN_GRACE_SECONDS = 60.0

# Files are copied in pieces of this size.
_COPY_BYTES = 1 << 20

# This clock goes on while the machine sleeps.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds() -> float:
    """Return the time of a clock that never steps, and goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


def sync_file(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, levels: int, *, sync: bool = True) -> None:
    """Make `folder` and its parents; durably if `sync` is True.

    A folder's name is durable once its parent is synced. So `levels` parents are synced even if
    they exist: the process that made them may have been killed before it synced them.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    unsynced = folder.parents[: max(levels, len(missing))] if sync else ()
    for parent in reversed(unsynced):
        # A process that may enter a folder but not list it can't sync it, and did not make it.
        with contextlib.suppress(PermissionError):
            sync_folder(parent)


def put_if_absent(
    target: Path,
    content: bytes,
    *,
    sync: bool = True,
    mode: int = 0o666,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Create `target` with all of `content`, or raise FileExistsError and change nothing.

    A hard link makes both true at once, on local disks and on NFS. What `check` raises, just before
    the link, stops it. Raise FileNotFoundError if another process has removed the draft. After any
    other OSError `target` may be there or not.
    """
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        # Open until the link is checked: the inode number of a closed and removed file may be
        # reused.
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as handle:
                handle.write(content)
                handle.flush()
                if sync:
                    os.fsync(handle.fileno())
            check()
            _link(draft, target, os.fstat(descriptor))
        finally:
            os.close(descriptor)
    finally:
        draft.unlink(missing_ok=True)
    if sync:
        sync_folder(target.parent)


def _link(draft: Path, target: Path, identity: os.stat_result) -> None:
    """Link `draft`, the file of this `identity`, to `target`. Raise OSError if it is not there.

    NFS repeats a request whose reply was lost and reports the outcome of the repetition: the link
    of this very process may come back as FileExistsError. Files are compared instead of counting
    links, because a back-up may link the draft, too.
    """
    try:
        os.link(draft, target)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(identity, os.stat(target)):
                return
        raise


def replace_file(target: Path, content: bytes, *, sync_name: bool = True) -> None:
    """Replace `target` by a file with this content, durably; with `sync_name` False the caller
    syncs the folder."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        draft.write_bytes(content)
        # Before the rename, so that after a power cut the name has all of the old content or of the
        # new.
        sync_file(draft)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    if sync_name:
        sync_folder(target.parent)


def copy_file(source: Path, target: Path) -> tuple[int, int]:
    """Copy a file that does not change, as `write_pieces` does. The copy has no rights that the
    original lacks."""
    return write_pieces(target, pieces_of(source), source.stat().st_mode & 0o777)


def pieces_of(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file. Raise FileNotFoundError."""
    with path.open("rb") as reading:
        while piece := reading.read(_COPY_BYTES):
            yield piece


def write_pieces(target: Path, pieces: Iterable[bytes | memoryview], mode: int) -> tuple[int, int]:
    """Write a file of these bytes; return its size and CRC-32.

    The file is synced before it has its name, so a file of this name is always whole. The caller
    syncs the folder.
    """
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    size = crc = 0
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as writing:
            for piece in pieces:
                writing.write(piece)
                size, crc = size + len(piece), zlib.crc32(piece, crc)
            writing.flush()
            os.fsync(writing.fileno())
            _drop_cached(writing.fileno())
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    return size, crc


def _drop_cached(descriptor: int) -> None:
    """Free the page cache of a file that was synced and is not read soon: it would evict pages that
    servers use."""
    # Not every system has the call.
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def crc_of(path: Path) -> tuple[int, int]:
    """Return the size and the CRC-32 of a file."""
    size = crc = 0
    for piece in pieces_of(path):
        size, crc = size + len(piece), zlib.crc32(piece, crc)
    return size, crc


def remove(paths: Iterable[Path]) -> None:
    """Remove files; a power cut may bring any of them back."""
    for path in paths:
        path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder and all that is in it; a power cut may bring any of it back."""
    shutil.rmtree(folder, ignore_errors=True)


def together(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Run the writes in threads, so that their syncs overlap. Return their results, or raise the
    first failure; either way all of them have ended."""
    waiting = list(calls)
    if len(waiting) < 2:
        return [call() for call in waiting]
    # The end of the block waits for all of them, even if one has failed.
    with ThreadPoolExecutor(min(len(waiting), MAX_WRITER_THREADS)) as pool:
        futures = [pool.submit(call) for call in waiting]
    return [future.result() for future in futures]


def write_durably(
    path: Path, write: Callable[[Path], None], *, top: Path | None = None, sync: bool = True
) -> None:
    """Run `write(path)`, then sync the file and its folders up to `top`, which are made if missing.

    If writing fails no file remains.
    """
    _settle_folder(path.parent, top or path.parent, sync)
    try:
        write(path)
        if sync:
            sync_file(path)
            sync_folder(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


# Folders that this process knows to be durable. A store never removes one.
_settled: set[Path] = set()


def _settle_folder(folder: Path, top: Path, sync: bool) -> None:
    """Make the folder under `top`, which is durable already, and sync it.

    Another process may have made it and been killed before the sync, so every process syncs it
    once.
    """
    if not folder.exists() or (sync and folder not in _settled):
        make_folder(folder, len(folder.relative_to(top).parts), sync=sync)
        if sync:
            _settled.add(folder)
