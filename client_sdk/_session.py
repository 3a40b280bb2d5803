"""A session: what a client knows between two calls, and where its store is."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from client_sdk._exceptions import PsoupError
from client_sdk._grpc.effects import Retry
from client_sdk._wire.models import Registered, Registration, Stream

HandleLike = bytes | str | Registered | Registration

MEBIBYTE = 1 << 20
FOREIGN_POSITION = "FOREIGN_POSITION"


@dataclass(slots=True)
class Session:
    """A session is shared by the calls of one client, from any thread: each field is replaced
    whole.

    `position` is the newest the client has seen. Positions are opaque, so "newest" is kept by
    construction: a fresh write, or an answer that was asked to include the one before. `foreign` is
    the last one forgotten, which calls of other threads may still ask for.
    """

    tenant: str
    owner: str
    timeout: float | None
    retry: Retry
    max_message_bytes: int
    position: bytes | None = None
    foreign: bytes | None = None
    streams: dict[str, Stream] = field(default_factory=dict)

    def wrote(self, position: bytes, *, fresh: bool = True) -> None:
        """Notes the position of a write. Without `fresh` the store did it long ago, and the
        position may be old.
        """
        if position and (fresh or self.position is None):
            self.position = position

    def saw(self, position: bytes, *, asked: bytes | None) -> None:
        """Notes the position of an answer that had to include `asked`, unless another call has
        moved on.
        """
        if position and self.position == asked:
            self.position = position

    def forget(self, error: PsoupError, asked: bytes) -> bool:
        """Forget the position that a call asked for if the store says that it never had it, as
        after a restore. Return whether the call is to be repeated without it: not if the position
        is the caller's own."""
        if error.reason != FOREIGN_POSITION or asked not in (self.position, self.foreign):
            return False
        if self.position == asked:
            self.position, self.foreign = None, asked
        return True


def handle_bytes(handle: HandleLike) -> bytes:
    """Gives a handle as bytes. Raises ValueError or TypeError for what can't be one."""
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


def with_port(target: str) -> str:
    """Gives the target with a port: a host by itself, a name or an address, gets a store's default.

    A target that names a scheme, as `unix:/run/psoup` or `dns:///host:1`, is left to gRPC.
    """
    host = f"[{target}]" if target.count(":") > 1 and _is_address(target) else target
    bare = ":" not in host or host.endswith("]")
    return f"{host}:{DEFAULT_PORT}" if host and bare else host


def _is_address(target: str) -> bool:
    """Tells whether the target is an IPv6 address by itself."""
    return all(character in "0123456789abcdefABCDEF:." for character in target)


class Closing:
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
