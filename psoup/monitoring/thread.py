"""The listener of a process that has no event loop: it runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading

from psoup.monitoring.listener import MonitoringListener


class ListenerThread:
    """A thread with an event loop for a listener that has its port."""

    def __init__(self, listener: MonitoringListener) -> None:
        self._listener = listener
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listener.open())
        self._loop.run_forever()
        self._loop.run_until_complete(self._listener.close())
        self._loop.close()
