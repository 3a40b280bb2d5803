"""Credentials: how a client knows its store, and shows who it is.

Files are read again when they change, so that a renewed token or certificate needs no new client.
"""

from __future__ import annotations

import inspect
import ipaddress
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from client_sdk._exceptions import ConnectionFailed, Unauthenticated

TokenSource: TypeAlias = Callable[[], str | Awaitable[str]]
Metadata: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Credentials:
    """Credentials say what a client shows, and whom it trusts.

    `token` is a key (`psk_…`) or a JWT, or a function that gives one, called before each call; for
    an AsyncClient it may be a coroutine function. `token_file` is a file with one, read again when
    it changes. `ca` has the certificates of the authorities that the store's certificate may be of;
    the system's own where only `tls` is given. `cert` and `key` are the client's own certificate
    and its private key. All are paths of PEM files. With `ca`, `cert` or `tls` the line is
    encrypted.

    A token goes over an unencrypted line only on the own machine, unless `plaintext_token` allows
    it: anyone on the way could use it. Raises ValueError where the parts don't fit together.
    """

    token: str | TokenSource | None = field(default=None, repr=False)
    token_file: Path | str | None = None
    ca: Path | str | None = None
    cert: Path | str | None = None
    key: Path | str | None = None
    tls: bool = False
    plaintext_token: bool = False

    def __post_init__(self) -> None:
        if self.token is not None and self.token_file is not None:
            raise ValueError("give token or token_file, and not both")
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together: a certificate and its private key")
        if isinstance(self.token, str):
            _checked(self.token)

    @property
    def encrypts(self) -> bool:
        return self.tls or self.ca is not None or self.cert is not None

    @property
    def has_token(self) -> bool:
        return self.token is not None or self.token_file is not None


class Shown:
    """Keeps what the calls of one transport show. Raises ValueError where a token would go to
    another machine in plain text."""

    def __init__(self, given: Credentials | None, target: str) -> None:
        self.given = given or Credentials()
        if (
            self.given.has_token
            and not (self.given.encrypts or self.given.plaintext_token)
            and not is_own_machine(target)
        ):
            raise ValueError(
                f"a token must not go to {target} unencrypted, where anyone on the way could take "
                "it; give ca or tls (--tls-ca, --tls), or allow plaintext_token (--plaintext-token)"
            )
        self._file: _TokenFile | None = None
        if self.given.token_file is not None:
            self._file = _TokenFile(Path(self.given.token_file))

    def token(self) -> str | None:
        """The token of the next call. Raises Unauthenticated where there should be one, or what
        the caller's own function does."""
        found = self._asked()
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise TypeError("a token of a coroutine function is for AsyncClient")
        return found if found is None else _checked(found)

    async def async_token(self) -> str | None:
        found = self._asked()
        if inspect.isawaitable(found):
            found = await found
        return found if found is None else _checked(found)

    def _asked(self) -> Any:
        if self._file is not None:
            return self._file.read()
        return self.given.token() if callable(self.given.token) else self.given.token

    def is_renewed(self, files: object, used: str | None, token: str | None) -> bool:
        """Tells whether a call would show something else than one that used a token, on a channel
        that was made of some files."""
        return token != used or files != self.files()

    def files(self) -> object:
        """A mark that changes when one of the files of certificates does."""
        paths = (self.given.ca, self.given.cert, self.given.key)
        return [None if path is None else _mark(Path(path)) for path in paths]

    def options(self) -> list[tuple[str, int]]:
        """For a new channel: a token in plain text does not take the way over a proxy."""
        given = self.given
        direct = given.has_token and not given.encrypts and not given.plaintext_token
        return [("grpc.enable_http_proxy", 0)] if direct else []

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """For a new channel; None for one without TLS. Raises ConnectionFailed where a file can't
        be read."""
        given = self.given
        if not given.encrypts:
            return None
        try:
            ca, cert, key = map(_content, (given.ca, given.cert, given.key))
        except OSError as error:
            message = f"{error.filename} can't be read: {error.strerror}"
            raise ConnectionFailed(message, code="FAILED_PRECONDITION") from None
        return grpc.ssl_channel_credentials(ca, key, cert)


def metadata(token: str | None) -> Metadata | None:
    return None if token is None else (("authorization", f"Bearer {token}"),)


class _TokenFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def read(self) -> str:
        """Raises Unauthenticated."""
        try:
            seen = _mark(self._path)
            if seen is None or seen != self._seen:
                self._token = _checked(self._path.read_bytes().decode(errors="replace").strip())
                self._seen = seen
        except OSError as error:
            message = f"the token in {self._path} can't be read: {error.strerror}"
            raise Unauthenticated(f"{message}; nothing was sent") from None
        except ValueError as error:
            raise Unauthenticated(f"{self._path}: {error}; nothing was sent") from None
        return self._token


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _content(path: Path | str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def _checked(token: Any) -> str:
    """Raises ValueError or TypeError for what can't be a token, without showing it."""
    if not isinstance(token, str):
        raise TypeError(f"a token is a text, not {type(token).__name__}")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("a token is printable ASCII without spaces: a key (psk_…) or a JWT")
    return token


def is_own_machine(target: str) -> bool:
    """Tells whether a target of gRPC is on this machine, as far as its name says so."""
    scheme, _, rest = target.partition(":")
    if scheme.lower() in ("unix", "unix-abstract"):
        return True
    if scheme.lower() in ("dns", "ipv4", "ipv6"):
        if rest.startswith("//") and not rest.startswith("///"):
            return False  # a name server of its own says where that is
        target = rest.rpartition("/")[2]
    host = target.rpartition(":")[0] if not target.endswith("]") else target
    host = (host or target).strip("[]")
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
