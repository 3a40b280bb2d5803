"""A lease of a target in a bucket, so that one back-up at a time uses it.

The owner raises a counter in the object `lease` every ten seconds. Who wants it and sees the
counter stand still for a minute of its own clock takes it over, by a conditional put. An owner that
could not raise it for half of that ends, so a late one does nothing. If the owner ends in order,
the object is removed.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from psoup.store.backup.bucket import Bucket, ObjectMissing, ObjectTaken
from psoup.store.errors import BackupFailed

_NAME = "lease"


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds: how often a lease is renewed, and after which time without that it ends."""

    renewal: float = 10.0
    end: float = 60.0


class Lease:
    """A lease of this process. Use it as a context manager; a thread renews it inside."""

    def __init__(self, bucket: Bucket, times: LeaseTimes) -> None:
        self._bucket = bucket
        self._times = times
        self._owner = uuid.uuid4().hex
        self._counter = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._renewed = time.monotonic()
        self._version = self._acquire()
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
        # If it is not removed, it ends by itself. That of another owner is not removed.
        with contextlib.suppress(BackupFailed, ObjectMissing, ObjectTaken):
            self.check()
            self._bucket.remove([_NAME])

    def check(self) -> None:
        """Raise BackupFailed if another process may have the lease."""
        if time.monotonic() - self._renewed > self._times.end / 2:
            raise BackupFailed(
                f"the lease of {self._bucket.address} could not be renewed; nothing was finished, "
                "run the command again"
            )

    def _acquire(self) -> str:
        first, since = None, time.monotonic()
        while True:
            self._renewed = time.monotonic()
            try:
                return self._bucket.create(_NAME, self._content())
            except ObjectTaken:
                pass
            try:
                content, version = self._bucket.get(_NAME)
            except ObjectMissing:
                continue
            if first is None:
                first = content
            elif content != first:
                raise BackupFailed(f"{self._bucket.address} is in use by another back-up")
            if time.monotonic() - since >= self._times.end:
                with contextlib.suppress(ObjectTaken):
                    return self._bucket.replace(_NAME, self._content(), version)
            time.sleep(self._times.renewal / 10)

    def _renew(self) -> None:
        while not self._ending.wait(self._times.renewal):
            begun = time.monotonic()
            try:
                self._version = self._bucket.replace(_NAME, self._content(), self._version)
                self._renewed = begun
            except (ObjectTaken, ObjectMissing):
                self._renewed = float("-inf")
                return
            except BackupFailed:
                # The service may be back in time.
                continue

    def _content(self) -> bytes:
        self._counter += 1
        return json.dumps({"owner": self._owner, "counter": self._counter}).encode()
