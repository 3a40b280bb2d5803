"""A watchdog for a member of a group: it reports to the parent as a unit reports to systemd."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

from psoup.service_manager import LIVES, READY, variables

_REPORT_BYTES = 4096


class MemberWatchdog:
    """The socket that one member reports to, and when it last did.

    A member that has not reported for `seconds` has hung. One that reads the log at its start has
    not reported yet, however long that takes.
    """

    def __init__(self, address: Path, seconds: float) -> None:
        """Raise OSError."""
        self._seconds = seconds
        self._reported_at: float | None = None
        self.environment: Mapping[str, str] = variables(str(address), seconds)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(address))

    def begin(self) -> None:
        """Watch a new process, and forget what the one before has reported."""
        self._receive()
        self._reported_at = None

    def has_hung(self) -> bool:
        # First what waits, since this process may have stood still itself.
        if self._receive() & {READY, LIVES}:
            self._reported_at = time.monotonic()
        last = self._reported_at
        return last is not None and time.monotonic() - last > self._seconds

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> set[str]:
        """Return the reports that wait."""
        reports = set[str]()
        try:
            while True:
                reports.add(self._socket.recv(_REPORT_BYTES).decode(errors="replace"))
        except BlockingIOError:
            return reports
