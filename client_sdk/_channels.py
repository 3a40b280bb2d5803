"""The channel calls are made on, and when it is given up for a new one.

A channel that found no server waits longer and longer before it asks for the address again, and one
whose line is dead, or ends at a captive portal, may keep it for hours. So after a call to which no
store has answered the next one is made on a new channel, at most once a second. Calls under way on
the old one go on; it is closed when the last has ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from client_sdk._exceptions import ConnectionFailed, PsoupError, Timeout
from client_sdk._session import MEBIBYTE

# gRPC's own pauses between two connects grow to two minutes: a client that comes back would stay
# cut off. One connect may take the last of these, for slow links; then another is tried.
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_CONNECT = 100, 1000, 5000
_SHORTEST_LIFE = 1.0


def channel_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """For clients that come and go: they connect anew soon, and a new one at once.

    There is room for the largest message the server takes, and for the fields around its rows.
    Channels of a process share no connection, else a new one waits for the pauses of the others.
    """
    limit = max_message_bytes + MEBIBYTE
    return [
        ("grpc.max_send_message_length", limit),
        ("grpc.max_receive_message_length", limit),
        ("grpc.initial_reconnect_backoff_ms", _FIRST_PAUSE),
        ("grpc.max_reconnect_backoff_ms", _LONGEST_PAUSE),
        ("grpc.min_reconnect_backoff_ms", _LONGEST_CONNECT),
        ("grpc.use_local_subchannel_pool", 1),
    ]


@dataclass(eq=False, slots=True)
class HeldChannel:
    """A channel and its stub, with the count of calls that are under way on it."""

    channel: Any
    stub: Any
    made_at: float = field(default_factory=time.monotonic)
    calls: int = 0


class Channels:
    """Gives each call its channel. Usable from several threads; closing is the caller's."""

    def __init__(self, make: Callable[[], tuple[Any, Any]]) -> None:
        """`make` gives a channel and its stub."""
        self._make = make
        self._lock = threading.Lock()
        self._newest: HeldChannel | None = None
        self._held: set[HeldChannel] = set()
        self.closed = False

    def take(self) -> HeldChannel:
        """For one call, to be given back. Raises ValueError after `close`."""
        with self._lock:
            if self.closed:
                raise ValueError("the client was closed")
            if self._newest is None:
                self._newest = HeldChannel(*self._make())
                self._held.add(self._newest)
            self._newest.calls += 1
            return self._newest

    def give_back(self, held: HeldChannel, error: PsoupError | None = None) -> Any | None:
        """The call has ended, with that error if any. A channel to be closed, if there is one."""
        with self._lock:
            held.calls -= 1
            old = time.monotonic() - held.made_at >= _SHORTEST_LIFE
            if self._newest is held and old and _is_unheard(error):
                self._newest = None
            if self._newest is held or held.calls or held not in self._held:
                return None
            self._held.remove(held)
            return held.channel

    def close(self) -> list[Any]:
        """All that are to be closed, whatever is under way on them."""
        with self._lock:
            self.closed, self._newest = True, None
            channels = [held.channel for held in self._held]
            self._held.clear()
            return channels


def _is_unheard(error: PsoupError | None) -> bool:
    """Whether no store has answered."""
    return isinstance(error, ConnectionFailed | Timeout) and not error.detail.store_id
