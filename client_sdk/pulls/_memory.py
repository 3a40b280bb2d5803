"""What a puller remembers of an output, in a small file beside it, which is also its lock.

The file says what was last written, so that an output that is missing or that somebody changed is
written again, and one that is as it should be is not. Losing it costs one needless write. It is
rewritten in place under the lock, because a lock belongs to a file and not to a name; one that was
cut by a crash does not parse, and then nothing is remembered.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from client_sdk.pulls._errors import OutputBusy, OutputFailed
from client_sdk.pulls._sinks import Sink, Stamp

_FORMAT = 1


@dataclass(frozen=True)
class Memory:
    """`content` is the digest of the answer, `stamp` and `fingerprint` the output's.

    `told` is False while the hook has yet to hear of it. `handle` is the registration that the key
    or handle in `source` stood for last, and `registration` its text as a RegisterRequest, in hex.
    """

    content: str = ""
    stamp: Stamp | None = None
    fingerprint: str | None = None
    told: bool = True
    source: str = ""
    handle: str = ""
    registration: str = ""

    def still_there(self, sink: Sink) -> bool:
        """The output is what was written; where its stamp has changed, by its content."""
        stamp = sink.stamp()
        if stamp is None or self.fingerprint is None:
            return False
        return stamp == self.stamp or sink.fingerprint() == self.fingerprint


class MemoryFile:
    """Held by one process at a time: OutputBusy where another has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> MemoryFile:
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OutputFailed(f"{self._path}: {error.strerror}") from error
        try:
            _lock(self._descriptor, self._path)
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def load(self) -> Memory:
        size = os.fstat(self._descriptor).st_size
        try:
            said = json.loads(os.pread(self._descriptor, size, 0))
            return _memory(said)
        except (ValueError, TypeError, KeyError):
            return Memory()

    def save(self, memory: Memory) -> None:
        """Raises OutputFailed; then nothing is remembered, and the next pull writes again."""
        text = json.dumps({"format": _FORMAT, **dataclasses.asdict(memory)}).encode()
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text, 0)
            os.fsync(self._descriptor)
        except OSError as error:
            raise OutputFailed(f"{self._path}: {error.strerror}") from error


def _memory(said: dict[str, Any]) -> Memory:
    if said.pop("format") != _FORMAT:
        raise ValueError("another format")
    return Memory(**said)


def _lock(descriptor: int, path: Path) -> None:
    # Here, so that the rest of the SDK runs where there are no such locks.
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputBusy(
            f"another pull is writing to this output; it holds {path.name}", code="ABORTED"
        ) from None
