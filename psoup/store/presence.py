"""The processes at work on a store: servers, its one engine, or a repair.

Servers hold a shared lock on `servers.lock`, which the operating system frees when they end. A
repair that rewrites the store takes that lock exclusively, and the engine's. Before it changes
files it writes a note, `repair.json`, and removes it at its end. If it was killed, the store can't
be opened until the repair has been run again to its end.

Servers also detect servers of other machines: see `MachinePresence`.

The engine writes its pulse into the file it locks, `engine.lock`, every few seconds. Servers look
for a change of the pulse, not for an instant in it. That works over a network file system and
between machines whose clocks differ.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import socket
import struct
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from psoup.store.delta.durable import put_if_absent, remove, sync_folder
from psoup.store.errors import Repairing

log = logging.getLogger("psoup.store")

SERVERS_LOCK = "servers.lock"
ENGINE_LOCK = "engine.lock"
MACHINES_LOCK = "machines.lock"
NOTE_NAME = "repair.json"
RESTORE_NOTE = "restore.json"

# How often the engine writes its pulse, and how long the pulse may stand still before the engine
# counts as gone. A busy machine may delay the writer or the reader.
PULSE_SECONDS = 2.0
ENGINE_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ClockRepair:
    """A repair that sets stamps past `clock` to `clock`. The log is taken up to `log_version`, and
    the store goes on as `incarnation`."""

    clock: int
    log_version: int
    incarnation: str


def read_note(root: Path) -> ClockRepair | None:
    """Return the note of a repair that was begun and has not ended; None if there is none."""
    try:
        return ClockRepair(**json.loads((root / NOTE_NAME).read_bytes()))
    except FileNotFoundError:
        return None


def leave_note(root: Path, repair: ClockRepair) -> None:
    """Write the note of a repair durably. An existing note stays as it is."""
    with contextlib.suppress(FileExistsError):
        put_if_absent(root / NOTE_NAME, json.dumps(asdict(repair)).encode())


def remove_note(root: Path) -> None:
    remove([root / NOTE_NAME])
    sync_folder(root)


def refuse_unfinished(root: Path) -> None:
    """Raise Repairing if a repair or a restore has not ended."""
    if (root / RESTORE_NOTE).exists():
        raise Repairing(
            f"{root} is being restored, or that was interrupted; run `psoup restore` again"
        )
    if (root / NOTE_NAME).exists():
        raise Repairing(
            f"a repair of {root} was begun and has not ended; "
            "run `psoup repair STORE --clock` again, and wait for its end"
        )


class Occupancy:
    """A server's shared lock of a store, or a repair's exclusive one. An object holds at most
    one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._descriptor: int | None = None

    def enter(self) -> None:
        """Take the shared lock. Raise Repairing if the store is being repaired, or has to be."""
        if not self._lock(fcntl.LOCK_SH):
            raise Repairing(f"{self._root} is being repaired; start the server again after that")
        try:
            # Under the lock, so that no repair can begin between this look and the server's start.
            refuse_unfinished(self._root)
        except Repairing:
            self.leave()
            raise

    def take(self) -> bool:
        """Take the exclusive lock for a repair; return False if a server runs on the store."""
        return self._lock(fcntl.LOCK_EX)

    def leave(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lock(self, kind: int) -> bool:
        descriptor = os.open(self._root / SERVERS_LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True


class MachinePresence:
    """A server's mark that its machine is present at a store: a shared lock on one byte of
    `machines.lock`, whose place is a hash of the machine's name.

    The locks belong to the opened file, so that servers of one process have one each. They are not
    those of `servers.lock`: over NFS `flock` locks a whole file.
    """

    _PLACE_BYTES = 6
    # struct flock: type, whence, start, length (0 is up to the end), process id.
    _FLOCK = struct.Struct("@hhqqi0q")

    def __init__(self, root: Path, machine: str) -> None:
        self._path = root / MACHINES_LOCK
        digest = hashlib.blake2b(machine.encode(), digest_size=self._PLACE_BYTES).digest()
        # At least 1: the bytes below it are a range of this length, and 0 would mean up to the end.
        self._place = 1 + int.from_bytes(digest)
        self._descriptor: int | None = None

    def enter(self) -> None:
        """Take the lock. On a system without such locks no other machine is ever detected."""
        if not hasattr(fcntl, "F_OFD_SETLK"):
            return
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._call(fcntl.F_OFD_SETLK, fcntl.F_RDLCK, self._place, 1)
        except OSError as error:
            log.warning("%s can't be locked (%s): other machines are not seen", self._path, error)
            self.leave()

    def leave(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def sees_others(self) -> bool:
        """Return True if a server of another machine is present. Raise OSError."""
        if self._descriptor is None:
            return False
        return any(
            self._call(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, start, length) != fcntl.F_UNLCK
            # All bytes below this machine's own, and all above it.
            for start, length in ((0, self._place), (self._place + 1, 0))
        )

    def _call(self, command: int, kind: int, start: int, length: int) -> int:
        """Make a call about a lock; return the kind of lock that it found."""
        assert self._descriptor is not None
        request = self._FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
        lock_kind, *_ = self._FLOCK.unpack(fcntl.fcntl(self._descriptor, command, request))
        return int(lock_kind)


@dataclass(frozen=True, slots=True)
class Pulse:
    """The `count`-th sign of life of one engine."""

    host: str
    pid: int
    count: int

    @classmethod
    def first(cls) -> Pulse:
        """Return the first pulse of this process."""
        return cls(socket.gethostname(), os.getpid(), 1)

    def write(self, descriptor: int) -> None:
        """Write the pulse in place: the file itself carries the engine's lock."""
        form = {"host": self.host, "pid": self.pid, "count": self.count}
        content = json.dumps(form).encode() + b"\n"
        # The rest of a longer old pulse goes last. A reader in between finds a text that is not
        # JSON.
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))

    @classmethod
    def read(cls, root: Path) -> Pulse | None:
        """Return the pulse; None if no engine has run, the last one ended in order, or the file is
        being written.
        """
        try:
            form = json.loads((root / ENGINE_LOCK).read_bytes())
            return cls(str(form["host"]), int(form["pid"]), int(form["count"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None


class PulseWatch:
    """A server's view of the engine, which `look` updates every second or so."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: Pulse | None = None
        self._changed_at: float | None = None

    def look(self) -> None:
        """Read the pulse. The first call has nothing to compare it with, and uses the age of the
        file."""
        pulse, now = Pulse.read(self._root), time.monotonic()
        if pulse is None:
            self._seen = self._changed_at = None
        elif self._seen is None:
            self._changed_at = now - self._age()
        elif pulse != self._seen:
            self._changed_at = now
        self._seen = pulse

    def _age(self) -> float:
        try:
            return max(0.0, time.time() - (self._root / ENGINE_LOCK).stat().st_mtime)
        except FileNotFoundError:
            return ENGINE_TIMEOUT_SECONDS

    @property
    def engine(self) -> tuple[Pulse, float] | None:
        """The engine that wrote last and how many seconds ago; None if it ended in order."""
        if self._seen is None or self._changed_at is None:
            return None
        return self._seen, time.monotonic() - self._changed_at
