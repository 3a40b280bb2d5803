"""Who may use a store while it is being repaired: nobody.

Servers hold a shared lock on `servers.lock`, which the operating system frees when they are gone; a
repair that rewrites the store takes it for itself, beside the engine's. Before it changes what
others would read it leaves a note, `repair.json`, and takes it away when it is done: where it was
killed, nobody opens the store until the repair has been run again to its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from psoup.store.durable import put_if_absent, remove, sync_folder
from psoup.store.errors import Repairing

LOCK_NAME = "servers.lock"
NOTE_NAME = "repair.json"


@dataclass(frozen=True, slots=True)
class ClockRepair:
    """Stamps past `clock` become `clock`; the log is taken up to `log_version`, and the store goes
    on as `incarnation`."""

    clock: int
    log_version: int
    incarnation: str


def read_note(root: Path) -> ClockRepair | None:
    """The repair that was begun and has not ended."""
    try:
        return ClockRepair(**json.loads((root / NOTE_NAME).read_bytes()))
    except FileNotFoundError:
        return None


def leave_note(root: Path, repair: ClockRepair) -> None:
    """Durably. The same note may be there already."""
    with contextlib.suppress(FileExistsError):
        put_if_absent(root / NOTE_NAME, json.dumps(asdict(repair)).encode())


def take_note_away(root: Path) -> None:
    remove([root / NOTE_NAME])
    sync_folder(root)


def refuse_unfinished(root: Path) -> None:
    """Raises Repairing where a repair has not ended."""
    if (root / NOTE_NAME).exists():
        raise Repairing(
            f"a repair of {root} was begun and has not ended; "
            "run `psoup repair STORE --clock` again, and wait for its end"
        )


class Occupancy:
    """A server's share of a store, or the whole of it. One object holds at most one of them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._descriptor: int | None = None

    def enter(self) -> None:
        """For a server. Raises Repairing where the store is being repaired, or has to be."""
        if not self._lock(fcntl.LOCK_SH):
            raise Repairing(f"{self._root} is being repaired; start the server again after that")
        try:
            refuse_unfinished(self._root)
        except Repairing:
            self.leave()
            raise

    def take(self) -> bool:
        """For a repair: the whole store. False where a server runs on it."""
        return self._lock(fcntl.LOCK_EX)

    def leave(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lock(self, kind: int) -> bool:
        descriptor = os.open(self._root / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True
