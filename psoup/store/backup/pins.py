"""Pins: while a store has one, its engine deletes nothing that an epoch since then names.

A pin is a file `pins/<id>.json` with a counter that its owner raises every minute. The engine
removes a pin whose counter has stood still for ten minutes of the engine's own monotonic clock, and
only then ignores it. So an owner whose file is still there knows that it was honoured all the time,
whatever the clocks of both machines say. Every engine counts from its first look, so a new engine
honours every pin for ten minutes.

The owner reads the newest epoch after it has written the pin. What an engine deletes without having
seen the pin, no epoch since that look names.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from psoup.store.delta.durable import make_folder, remove
from psoup.store.errors import BackupFailed

PINS = "pins"
PIN_RENEWAL_SECONDS = 60.0
PIN_TIMEOUT_SECONDS = 600.0


class Pin:
    """A pin of this process. Use it as a context manager; a thread raises its counter inside."""

    def __init__(self, root: Path, renewal: float = PIN_RENEWAL_SECONDS) -> None:
        self._path = root / PINS / f"{uuid.uuid4().hex}.json"
        self._renewal = renewal
        self._counter = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="pin", daemon=True)

    def __enter__(self) -> Self:
        make_folder(self._path.parent, levels=1)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        self._descriptor = os.open(self._path, flags, 0o666)
        try:
            self._write()
        except OSError:
            os.close(self._descriptor)
            remove([self._path])
            raise
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()
        os.close(self._descriptor)
        remove([self._path])

    def check(self) -> None:
        """Raise BackupFailed if the engine has ignored this pin: files may be gone by now."""
        try:
            is_there = os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise BackupFailed(
                "the engine has ignored the pin of this back-up, because its counter stood still: "
                "was this process stopped? Nothing was finished; run the command again"
            )

    def _renew(self) -> None:
        while not self._ending.wait(self._renewal):
            # The disk may be full for a while. The pin is ignored if that lasts.
            with contextlib.suppress(OSError):
                self._write()

    def _write(self) -> None:
        """Raise the counter in place: a file that the engine has removed does not come back."""
        self._counter += 1
        form = {"counter": self._counter, "pid": os.getpid()}
        content = json.dumps(form).encode() + b"\n"
        os.pwrite(self._descriptor, content, 0)
        os.fsync(self._descriptor)


class PinWatch:
    """An engine's view of the pins of a store, for one thread."""

    def __init__(self, timeout: float = PIN_TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        # The content of each pin at the last look, and when it was first seen.
        self._seen: dict[Path, tuple[bytes, float]] = {}

    def are_held(self, root: Path, delete: Callable[[Iterable[Path]], None]) -> bool:
        """Look at all pins; return True if any is honoured. Those that are ignored from now on are
        removed by `delete` first."""
        now = time.monotonic()
        previous, self._seen = self._seen, {}
        for path, content in _contents(root / PINS):
            last_content, since = previous.get(path, (None, now))
            if content != last_content:
                since = now
            if now - since >= self._timeout:
                delete([path])
            else:
                self._seen[path] = content, since
        return bool(self._seen)


def _contents(folder: Path) -> Iterable[tuple[Path, bytes]]:
    """Yield the pins in a folder. Every file counts, even if it is damaged."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        path = folder / name
        # Its owner may remove it at the same time.
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            if name.endswith(".json"):
                yield path, path.read_bytes()
