"""New files in folders, reported by the operating system, so that an idle process need not poll.

Linux reports them with inotify, but only what processes of this machine write. So it is used on
file systems that only one machine mounts, and by their kind: a folder of a network file system, of
a virtual machine's host, or of an unknown kind is polled.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import sys
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger("psoup.store")

# From linux/inotify.h. A commit is linked to its name, which counts as a creation.
_IN_MOVED_TO, _IN_CREATE, _IN_ONLYDIR = 0x80, 0x100, 0x01000000
_BUFFER_BYTES = 1 << 16
_STATFS_BYTES = 1 << 10
# From linux/magic.h, and of ZFS and bcachefs.
_LOCAL_KINDS = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # XFS
        0x9123683E,  # Btrfs
        0xF2F52010,  # F2FS
        0x2FC12FC1,  # ZFS
        0xCA451A4E,  # bcachefs
        0x01021994,  # tmpfs
        0x794C7630,  # overlayfs
    }
)


class Arrivals:
    """The new files of folders. `wait` may run in one thread, and `wake` in any."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waking = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        for each in (descriptor, self._waking):
            self._poll.register(each, select.POLLIN)

    @classmethod
    def open(cls, folders: Iterable[Path]) -> Arrivals | None:
        """Watch folders; return None if they must be polled."""
        folders = list(folders)
        if sys.platform != "linux" or not all(map(is_local, folders)):
            return None
        try:
            return cls(_watch(folders))
        except OSError as error:
            # A user may have only so many: fs.inotify.max_user_instances and max_user_watches.
            log.warning("no inotify, so the store is polled: %s", error)
            return None

    def fileno(self) -> int:
        """Return the descriptor, which can be read after an arrival until `clear`."""
        return self._descriptor

    def clear(self) -> None:
        """Forget the arrivals so far."""
        try:
            while os.read(self._descriptor, _BUFFER_BYTES):
                pass
        except BlockingIOError:
            pass

    def wait(self, seconds: float) -> None:
        """Return after an arrival since the last wait, or after `wake`, or when the time is up."""
        self._poll.poll(max(0.0, seconds) * 1e3)
        self.clear()

    def wake(self) -> None:
        """End this wait and all later ones."""
        os.eventfd_write(self._waking, 1)

    def close(self) -> None:
        os.close(self._descriptor)
        os.close(self._waking)


def _watch(folders: Iterable[Path]) -> int:
    """Return a descriptor of inotify for new files in folders. Raise OSError."""
    library = _library()
    descriptor = _checked(library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    try:
        for folder in folders:
            path = os.fsencode(folder)
            events = _IN_CREATE | _IN_MOVED_TO | _IN_ONLYDIR
            _checked(library.inotify_add_watch(descriptor, path, events))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(outcome: int) -> int:
    if outcome < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return outcome


def is_local(folder: Path) -> bool:
    """Return True if a folder is of a file system that only this machine writes to."""
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _library().statfs(os.fsencode(folder), buffer) != 0:
        return False
    # The first field of struct statfs is the kind of the file system, in a word.
    word = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ulong)).contents.value
    return word & 0xFFFFFFFF in _LOCAL_KINDS
