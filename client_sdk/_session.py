"""The session of a client: what it remembers between calls, and where its store is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from client_sdk._exceptions import PsoupError
from client_sdk._grpc.effects import Retry
from client_sdk._wire.models import Registered, Registration, Stream

# A handle as bytes, its 32 hexadecimal digits, a client key, or what a registration was given as.
HandleLike = bytes | str | Registered | Registration

MEBIBYTE = 1 << 20
FOREIGN_POSITION = "FOREIGN_POSITION"
# The reasons for which a handle is of no use any more; registering again gives another one.
HANDLE_GONE = frozenset({"UNKNOWN_HANDLE", "REGISTRATION_EXPIRED", "STREAM_DROPPED"})
# More looked up client keys than this are not remembered.
MOST_CACHED_HANDLES = 10_000


@dataclass(slots=True)
class Session:
    """What the calls of one client share, from any thread: each field is replaced as a whole.

    `position` is the newest position that the client has seen. Positions are opaque, so the newest
    one is known by construction: it is that of a fresh write, or of an answer that had to include
    the one before. `foreign` is the last position that the store did not know; calls of other
    threads may still ask for it. `acknowledged` is that of the last batch of a queue that this
    session has sent, if `position` includes it. `streams` and `handles` are caches.
    """

    tenant: str
    owner: str
    timeout: float | None
    retry: Retry
    max_message_bytes: int
    position: bytes | None = None
    foreign: bytes | None = None
    acknowledged: bytes | None = None
    streams: dict[str, Stream] = field(default_factory=dict)
    handles: dict[str, bytes] = field(default_factory=dict)

    def cache_handle(self, key: str, handle: bytes) -> None:
        """Remember the handle of a client key of this client's owner."""
        if len(self.handles) >= MOST_CACHED_HANDLES:
            # A full cache begins again, because a lost entry only costs one lookup.
            self.handles = {}
        self.handles[key] = handle

    def wrote(self, position: bytes, *, fresh: bool = True) -> None:
        """Note the position of a write. Without `fresh` the store did it earlier, and the position
        may be old.
        """
        if position and (fresh or self.position is None):
            self.position = position

    def saw(self, position: bytes, *, least_position: bytes | None) -> None:
        """Note the position of an answer that had to include `least_position`, unless another call
        has changed `position`.
        """
        if position and self.position == least_position:
            self.position = position

    def acknowledge(self, position: bytes) -> None:
        """Note that a batch of a queue was acknowledged at the position just written."""
        self.acknowledged = position if self.position == position else None

    def includes(self, position: bytes) -> bool:
        """Return whether an answer at `position` of this session includes what a queue has
        published up to the given one.

        A session that has seen no position yet takes this one.
        """
        if self.position is None:
            self.wrote(position)
            self.acknowledge(position)
        return self.acknowledged == position

    def forget(self, error: PsoupError, least_position: bytes) -> bool:
        """Forget the position that a call asked for, if the error says that the store never had it,
        as after a restore.

        Return whether the call is to be repeated without it. It is not if the position came from
        the caller.
        """
        if error.reason != FOREIGN_POSITION or least_position not in (self.position, self.foreign):
            return False
        if self.position == least_position:
            self.position, self.foreign, self.acknowledged = None, least_position, None
        return True


_HANDLE = re.compile("[0-9a-fA-F]{32}")


def client_key(query: HandleLike) -> str | None:
    """Return the client key that names a registration; None if a handle does.

    Raises ValueError for an empty text. A text of 32 hexadecimal digits is a handle.
    """
    if not isinstance(query, str) or _HANDLE.fullmatch(query):
        return None
    if not query:
        raise ValueError("give a handle, or the client key of a registration, not an empty text")
    return query


def handle_bytes(handle: HandleLike) -> bytes:
    """Return a handle as bytes. Raises ValueError or TypeError for anything else, client keys
    included.
    """
    if isinstance(handle, Registered | Registration):
        return handle.handle
    if isinstance(handle, str):
        try:
            handle = bytes.fromhex(handle)
        except ValueError:
            raise ValueError(f"{handle!r} is not a handle: 32 hexadecimal digits") from None
    if not isinstance(handle, bytes):
        raise TypeError(f"a handle is bytes or hex text, not {type(handle).__name__}")
    if len(handle) != 16:
        raise ValueError(f"a handle has 16 bytes, this one {len(handle)}")
    return handle


DEFAULT_PORT = 7181
DEFAULT_TARGET = f"localhost:{DEFAULT_PORT}"


# Schemes whose targets are left to gRPC, commas included.
_SCHEME = re.compile("(dns|ipv4|ipv6|unix|unix-abstract|vsock|xds):")


def targets_of(target: str | Sequence[str]) -> tuple[str, ...]:
    """Return the servers of a store, in the order in which a client tries them, with their ports.

    `target` is one of them, several with commas between, or a sequence. Raises ValueError if there
    is none.
    """
    if isinstance(target, str):
        target = [target] if _SCHEME.match(target) else target.split(",")
    targets = tuple(with_port(name.strip()) for name in target)
    if not targets or not all(targets):
        raise ValueError("a target is a host or host:port; several have commas between them")
    return tuple(dict.fromkeys(targets))


def with_port(target: str) -> str:
    """Return the target with a port. A host by itself, a name or an address, gets the default port.

    A target with a scheme, such as `unix:/run/psoup` or `dns:///host:1`, is left to gRPC.
    """
    host = f"[{target}]" if target.count(":") > 1 and _is_address(target) else target
    bare = ":" not in host or host.endswith("]")
    return f"{host}:{DEFAULT_PORT}" if host and bare else host


def _is_address(target: str) -> bool:
    """Return whether the target is an IPv6 address without a port."""
    return all(character in "0123456789abcdefABCDEF:." for character in target)


class Closing:
    """A base for classes that are closed at the end of `with`."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
