"""A pull: its query, its store, its output and its schedule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from client_sdk._client import DEFAULT_TIMEOUT_SECONDS, Client
from client_sdk._credentials import Credentials
from client_sdk._exceptions import BadPull
from client_sdk._key_file import read_key_file
from client_sdk._session import DEFAULT_TARGET
from client_sdk._wire.values import Scalar
from client_sdk.pulls._http_changes import is_url
from client_sdk.pulls._receivers import Receivers
from client_sdk.pulls._schedule import ZERO, Schedule
from client_sdk.pulls._sinks import FORMATS, format_of

_NAME = re.compile(r"(?!sqlite_)[A-Za-z][A-Za-z0-9_.-]{0,62}", re.IGNORECASE)
_HANDLE = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class Store:
    """The store of a pull, and the caller: that of the credentials, unless a tenant or owner is
    named.

    Pulls of one store and state file share a round trip.
    """

    target: str = DEFAULT_TARGET
    tenant: str | None = None
    owner: str | None = None
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    credentials: Credentials | None = None

    def client(self) -> Client:
        """Return a client of the store."""
        return Client(
            self.target,
            tenant=self.tenant,
            owner=self.owner,
            timeout=self.timeout,
            credentials=self.credentials,
        )

    @property
    def names(self) -> tuple[str, str]:
        """The tenant and the owner, as far as they are known without asking the store."""
        default = "main" if self.credentials is None else ""
        tenant, owner = self.tenant, self.owner
        return default if tenant is None else tenant, default if owner is None else owner


@dataclass(frozen=True, slots=True)
class Hook:
    """A shell command to run after a change, in `folder` or the working directory.

    It is ended after `limit`. With `must_succeed` the pull fails if the hook fails.
    """

    command: str
    limit: timedelta = timedelta(minutes=5)
    must_succeed: bool = False
    folder: Path | None = None


@dataclass(frozen=True)
class Pull:
    """An answer to keep up to date in the output `to`.

    Give `sql`, which the pull registers itself, with a client key kept in its state; or `key`, the
    client key of a registration of the owner, which with `sql` too is registered if there is none;
    or `handle`, in hexadecimal. `state` is the file of the offline copy, by default beside the
    output; it is encrypted if `key_file` has a key. Changes of the answer are appended to
    `changes_to`, if it is given: JSON lines, a Delta table, or the URL of a receiver, signed by the
    secret in `changes_secret_file`, at an address that `receivers` permits. With `every_point` they
    are those of each refresh point of a query with REFRESH. With `always` the
    output is written even if it has the answer already. With `csv_safe` a TEXT in CSV that a
    spreadsheet would take for a formula has an apostrophe before it.

    Raises BadPull, whose message begins with the field, if the values don't fit together.
    """

    name: str
    to: Path
    sql: str | None = None
    key: str | None = None
    handle: str | None = None
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    lease: timedelta | None = None
    window: str | None = None
    priority: int = 0
    format: str = ""
    state: Path | None = None
    key_file: Path | None = None
    schedule: Schedule | None = None
    always: bool = False
    csv_safe: bool = False
    changes_to: Path | str | None = None
    changes_secret_file: Path | None = None
    every_point: bool = False
    receivers: Receivers = field(default_factory=Receivers)
    hook: Hook | None = None
    store: Store = field(default_factory=Store)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadPull(
                f"name: {self.name!r} is not allowed; up to 63 letters, digits, _ . and -, begin "
                "with a letter, and not with sqlite_"
            )
        object.__setattr__(self, "to", Path(self.to))
        object.__setattr__(self, "format", self.format or format_of(self.to))
        if self.format not in FORMATS:
            raise BadPull(f"format: {self.format!r} is no format; one of {', '.join(FORMATS)}")
        if self.state_path.resolve() == self.to.resolve():
            raise BadPull("state: can't be the output itself")
        if self.changes_to is not None and not is_url(self.changes_to):
            object.__setattr__(self, "changes_to", Path(self.changes_to))
            if self.changes_path in (self.state_path.resolve(), self.to.resolve()):
                raise BadPull("changes_to: can't be the output or the state itself")
        if self.changes_secret_file is not None and not is_url(self.changes_to):
            raise BadPull("changes_secret_file: is for changes that go to a URL")
        if self.every_point and self.changes_to is None:
            raise BadPull("every_point: is of changes; give changes_to")
        self._check_source()

    def _check_source(self) -> None:
        if self.handle is not None and (self.key is not None or self.sql is not None):
            raise BadPull("handle: names a registration already; leave out key and sql")
        if self.handle is None and self.key is None and self.sql is None:
            raise BadPull("sql: missing; give sql, key or handle")
        if self.handle is not None and not _HANDLE.fullmatch(self.handle):
            raise BadPull(
                f"handle: {self.handle!r} is not a handle, which has 32 hexadecimal digits"
            )
        if self.sql is None and (self.parameters or self.lease is not None):
            raise BadPull("sql: missing; parameters and lease belong to a text")
        if self.lease is not None and self.lease <= ZERO:
            raise BadPull("lease: must be longer than nothing")

    @property
    def changes(self) -> bool | Literal["every point"]:
        """The changes that its copy keeps."""
        return "every point" if self.every_point else self.changes_to is not None

    @property
    def changes_path(self) -> Path | None:
        """The file that changes are appended to; None if they go nowhere, or to a URL."""
        return self.changes_to.resolve() if isinstance(self.changes_to, Path) else None

    @property
    def state_path(self) -> Path:
        return self.state or self.to.with_name(f"{self.to.name}.psoup")

    def state_key(self) -> bytes | None:
        """Return the key of the state, 32 bytes or 64 hexadecimal digits in `key_file`; None for a
        plain state. Raises BadPull.
        """
        if self.key_file is None:
            return None
        try:
            return read_key_file(self.key_file)
        except OSError as error:
            raise BadPull(f"key_file: {self.key_file}: {error.strerror}") from None
        except ValueError as error:
            raise BadPull(f"key_file: {error}") from None

    @property
    def receipt_path(self) -> Path:
        """The file beside the output that says what was last written there, and locks it."""
        place = self.to.resolve()
        suffix = f".{self.name}" if self.format == "sqlite" else ""
        return place.with_name(f"{place.name}{suffix}.pull")


def name_from(text: str) -> str:
    """Return a name for a pull, made of any text."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:63]
    return plain if _NAME.fullmatch(plain) else f"p_{plain}"[:63]
