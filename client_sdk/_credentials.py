"""Credentials: how a client identifies itself and recognises its store.

Files are read again when they change, so that a renewed token or certificate needs no new client.
"""

from __future__ import annotations

import inspect
import ipaddress
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from client_sdk._exceptions import ConnectionFailed, Unauthenticated

TokenSource: TypeAlias = Callable[[], str | Awaitable[str]]
Metadata: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Credentials:
    """The credentials of a client, and the authorities that it trusts.

    `token` is an access key (`psk_…`) or a JWT, or a function that returns one and is called before
    each call; with an AsyncClient it may be a coroutine function. `token_file` is a file that holds
    a token, and is read again when it changes.

    `ca` is a file with the certificates of the authorities that may have signed the store's
    certificate; with `tls` alone they are those of the system. `cert` and `key` are the client's
    own certificate and its private key. All files are PEM. With `ca`, `cert` or `tls` the
    connection is encrypted.

    A token is sent unencrypted only on the same machine, unless `plaintext_token` allows it: anyone
    on the network could use it. Raises ValueError if the parts don't fit together.
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
            _check_token(self.token)

    @property
    def encrypts(self) -> bool:
        """True if the connection is encrypted."""
        return self.tls or self.ca is not None or self.cert is not None

    @property
    def has_token(self) -> bool:
        return self.token is not None or self.token_file is not None


class TransportCredentials:
    """The credentials of one transport: the token of each call, the files of each channel."""

    def __init__(self, credentials: Credentials | None, targets: Iterable[str]) -> None:
        """Raise ValueError if a token would go to another machine in plain text."""
        self.settings = credentials or Credentials()
        others = [target for target in targets if not is_own_machine(target)]
        if (
            others
            and self.settings.has_token
            and not (self.settings.encrypts or self.settings.plaintext_token)
        ):
            raise ValueError(
                f"a token must not go to {others[0]} unencrypted, where anyone on the way could "
                "take it; give ca or tls (--tls-ca, --tls), or allow plaintext_token "
                "(--plaintext-token)"
            )
        self._file: _TokenFile | None = None
        if self.settings.token_file is not None:
            self._file = _TokenFile(Path(self.settings.token_file))

    def token(self) -> str | None:
        """Return the token for the next call; None if the credentials have none.

        Raises Unauthenticated if its file can't be read, and what the caller's function raises.
        """
        token = self._current_token()
        if inspect.isawaitable(token):
            # Closed, so that Python does not warn of a coroutine that was never awaited.
            if inspect.iscoroutine(token):
                token.close()
            raise TypeError("only an AsyncClient takes a token from a coroutine function")
        return token if token is None else _check_token(token)

    async def async_token(self) -> str | None:
        """Return the token for the next call as `token` does; its function may be a coroutine."""
        token = self._current_token()
        if inspect.isawaitable(token):
            token = await token
        return token if token is None else _check_token(token)

    def _current_token(self) -> Any:
        """Return a token that is not checked yet, None, or an awaitable of either."""
        if self._file is not None:
            return self._file.read()
        return self.settings.token() if callable(self.settings.token) else self.settings.token

    def is_renewed(self, files: object, used: str | None, token: str | None) -> bool:
        """Return whether the credentials have changed since a call.

        The call has `used` a token on a channel that was made with `files`; `token` is the present
        one.
        """
        return token != used or files != self.files()

    def files(self) -> object:
        """Return a value that changes when one of the certificate files does."""
        paths = (self.settings.ca, self.settings.cert, self.settings.key)
        return [None if path is None else _file_signature(Path(path)) for path in paths]

    def options(self) -> list[tuple[str, int]]:
        """Return options for a new channel: a token in plain text must not pass a proxy."""
        credentials = self.settings
        direct = (
            credentials.has_token and not credentials.encrypts and not credentials.plaintext_token
        )
        return [("grpc.enable_http_proxy", 0)] if direct else []

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """Return the credentials for a new channel; None for one without TLS.

        Raises ConnectionFailed if a file can't be read.
        """
        credentials = self.settings
        if not credentials.encrypts:
            return None
        try:
            ca, cert, key = map(_content, (credentials.ca, credentials.cert, credentials.key))
        except OSError as error:
            message = f"{error.filename} can't be read: {error.strerror}"
            raise ConnectionFailed(message, code="FAILED_PRECONDITION") from None
        return grpc.ssl_channel_credentials(ca, key, cert)


def metadata(token: str | None) -> Metadata | None:
    """Return the metadata of a call with this token."""
    return None if token is None else (("authorization", f"Bearer {token}"),)


class _TokenFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._signature: tuple[int, int, int] | None = None
        self._token = ""

    def read(self) -> str:
        """Return the token, from the file if that has changed. Raises Unauthenticated."""
        try:
            # Taken before the content: a change in between is then noticed by the next call.
            signature = _file_signature(self._path)
            if signature is None or signature != self._signature:
                self._token = _check_token(self._path.read_bytes().decode(errors="replace").strip())
                self._signature = signature
        except OSError as error:
            message = f"the token in {self._path} can't be read: {error.strerror}"
            raise Unauthenticated(f"{message}; nothing was sent") from None
        except ValueError as error:
            raise Unauthenticated(f"{self._path}: {error}; nothing was sent") from None
        return self._token


def _file_signature(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes when the file does; None if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _content(path: Path | str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def _check_token(token: Any) -> str:
    """Return the token. Raises ValueError or TypeError, which don't show it, if it can't be one."""
    if not isinstance(token, str):
        raise TypeError(f"a token is a text, not {type(token).__name__}")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("a token is printable ASCII without spaces: a key (psk_…) or a JWT")
    return token


def is_own_machine(target: str) -> bool:
    """Return whether a gRPC target is certainly on this machine, by its name alone."""
    scheme, _, endpoint = target.partition(":")
    if scheme.lower() in ("unix", "unix-abstract"):
        return True
    if scheme.lower() in ("dns", "ipv4", "ipv6"):
        if endpoint.startswith("//") and not endpoint.startswith("///"):
            return False  # a name server of the target's choice says where that is
        target = endpoint.rpartition("/")[2]
    host = target.rpartition(":")[0] if not target.endswith("]") else target
    host = (host or target).strip("[]")
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
