"""What a process reports to the service manager that started it: the protocol of `sd_notify`.

A unit of systemd with `Type=notify` gives a socket by NOTIFY_SOCKET. With `WatchdogSec=` it ends a
process that has not reported for that long.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time

log = logging.getLogger(__name__)

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
READY, LIVES, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"


def variables(address: str, watchdog_seconds: float) -> dict[str, str]:
    """Return the environment of a process that is to report to a socket, and is watched."""
    return {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(round(watchdog_seconds * 10**6))}


class ServiceManager:
    """The socket of the service manager, and after how many seconds the watchdog expects a report;
    None if there is no watchdog. Without a socket nothing is sent."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        # An address that begins with @ is no file: it stands in the abstract namespace of Linux.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds
        # Twice as often as the watchdog looks, as systemd advises.
        self.beat_seconds = None if watchdog_seconds is None else watchdog_seconds / 2
        self._beaten_at = float("-inf")

    @classmethod
    def of_environment(cls) -> ServiceManager:
        """Take the variables out of the environment: children must not report for this process."""
        address, microseconds, pid = (os.environ.pop(name, "") for name in _VARIABLES)
        is_watched = microseconds.isdecimal() and pid in ("", str(os.getpid()))
        return cls(address, int(microseconds) / 10**6 if is_watched else None)

    def ready(self) -> None:
        self._send(READY)

    def stopping(self) -> None:
        self._send(STOPPING)

    def beat(self) -> None:
        """Report that this process lives, if that is due."""
        now = time.monotonic()
        if self.beat_seconds is not None and now - self._beaten_at >= self.beat_seconds:
            self._beaten_at = now
            self._send(LIVES)

    async def beat_by_loop(self) -> None:
        """Report for as long as the event loop comes here, until cancelled."""
        while self.beat_seconds is not None:
            self.beat()
            await asyncio.sleep(self.beat_seconds)

    def _send(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                # A full queue must not hold up the event loop.
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            log.warning("could not report %s to the service manager: %s", state, error)
