"""psoup key: access keys, which callers send as a token."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from client_sdk import AccessKey, NewKey
from psoup.cli.connection import Connection
from psoup.cli.output import SentenceGroup, as_json, echo, grid, note
from psoup.cli.problems import fail, refuse
from psoup.cli.serve import require
from psoup.cli.texts import duration
from psoup.umask import set_umask

STORE = click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    show_default="call the server",
    help="Work in the store's folder, without a server. Needs the right to write it.",
)


@click.group(cls=SentenceGroup)
def key() -> None:
    """Access keys: how callers authenticate. Administrators make and revoke those of their tenant.

    Make the first one in the store's folder. As soon as there is one, servers ask every caller for
    an access key, unless they run with another --auth.

    \b
    psoup key create root --role operator --store ./store --to root.key
    psoup --token-file root.key --tenant acme key create ann --role administrator --to ann.key
    psoup --token-file ann.key key create bob --role reader --claims '{"region": "north"}'
    psoup --token-file ann.key key list
    psoup --token-file ann.key key revoke 0f1e2d3c4b5a6978
    """


@key.command()
@click.argument("owner")
@click.option(
    "--role",
    "roles",
    multiple=True,
    help="operator, monitor, administrator, developer, publisher, reader, or a role with grants. "
    "May be repeated.",
)
@click.option(
    "--claims",
    default="",
    metavar="JSON",
    show_default="none",
    help="The caller's claims for row policies, as an object.",
)
@click.option(
    "--expires",
    metavar="DURATION",
    show_default="never",
    help="When the access key ends: after this time, as 90d.",
)
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    show_default="the terminal",
    help="Write the access key to a new file that only you can read.",
)
@STORE
@click.pass_obj
def create(
    connection: Connection,
    owner: str,
    roles: tuple[str, ...],
    claims: str,
    expires: str | None,
    to: Path | None,
    store: Path | None,
) -> None:
    """Make an access key with which a caller acts as OWNER of the tenant. It is shown once.

    \b
    psoup key create root --role operator --store ./store --to root.key
    psoup --token-file root.key key create bob --role reader --claims '{"region": "north"}'
    """
    until = None if expires is None else datetime.now(UTC) + duration(expires)
    values = _claims(claims)
    with _Output(to) as output:
        if store is not None:
            new = _create_in(store, connection.tenant or "main", owner, roles, claims, until)
        else:
            with connection.client() as client:
                new = client.create_key(owner, roles=roles, claims=values, expires=until)
        output.write(new.secret)
    access_key = new.key
    ends = (
        f"until {access_key.expires:%Y-%m-%dT%H:%M:%SZ}"
        if access_key.expires
        else "until it is revoked"
    )
    note(f"key {access_key.id}: owner {access_key.owner} of tenant {access_key.tenant}, {ends}")


@key.command("list")
@click.option("--json", "lines", is_flag=True, help="Print a JSON object a line, for programs.")
@STORE
@click.pass_obj
def list_(connection: Connection, lines: bool, store: Path | None) -> None:
    """List the access keys of the tenant, without their secrets.

    \b
    psoup key list
    psoup key list --store ./store
    """
    if store is not None:
        keys = _keys_in(store, connection.tenant or "main")
    else:
        with connection.client() as client:
            keys = client.access_keys()
    if lines:
        for access_key in keys:
            echo(as_json(access_key))
        return
    grid(
        ["key", "owner", "roles", "claims", "created", "expires"],
        [_line(access_key) for access_key in keys],
        empty="no access keys yet; psoup key create makes one",
    )


@key.command()
@click.argument("id", metavar="KEY")
@STORE
@click.pass_obj
def revoke(connection: Connection, id: str, store: Path | None) -> None:
    """Revoke an access key, named by its 16 digits. Servers refuse it, and end its watches, within
    seconds.

    \b
    psoup key revoke 0f1e2d3c4b5a6978
    """
    if store is not None:
        _revoke_in(store, connection.tenant or "main", id)
    else:
        with connection.client() as client:
            client.revoke_key(id)
    note(f"revoked {id}")


def _line(access_key: AccessKey) -> list[Any]:
    expires = f"{access_key.expires:%Y-%m-%d %H:%MZ}" if access_key.expires else "never"
    claims = json.dumps(dict(access_key.claims)) if access_key.claims else ""
    created = f"{access_key.created:%Y-%m-%d %H:%MZ}"
    return [access_key.id, access_key.owner, ", ".join(access_key.roles), claims, created, expires]


def _claims(text: str) -> dict[str, Any]:
    try:
        claims = json.loads(text or "{}")
    except ValueError:
        fail(f'--claims {text!r} is not JSON; write an object, as \'{{"region": "north"}}\'')
    if not isinstance(claims, dict):
        fail("--claims must be a JSON object")
    return claims


class _Output:
    """Writes a secret to standard output, or to a file that only its user can read.

    The file is made first, so that no key is made whose secret can't be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._written = False
        self._file = -1

    def __enter__(self) -> _Output:
        if self._path is not None:
            try:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except OSError as error:
                fail(f"--to {self._path}: {error.strerror}")
        return self

    def write(self, secret: str) -> None:
        if self._path is None:
            echo(secret)
        else:
            os.write(self._file, f"{secret}\n".encode())
        self._written = True

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            os.close(self._file)
            if not self._written:
                self._path.unlink()


# ---- in the store's folder


def _create_in(
    folder: Path,
    tenant: str,
    owner: str,
    roles: Iterable[str],
    claims: str,
    expires: datetime | None,
) -> NewKey:
    require("server")
    set_umask(store=folder)
    from datastem.instants import to_micros
    from psoup.access.keys import new_key
    from psoup.errors import ServerError
    from psoup.store import Store, StoreError
    from psoup.write.keys import append_key

    now = to_micros(datetime.now(UTC))
    try:
        until = None if expires is None else to_micros(expires)
        new, secret = new_key(tenant, owner, tuple(roles), claims, now, until)
        append_key(Store.open(folder, create=True), new)
    except (StoreError, ServerError, OSError) as error:
        refuse(str(error))
    return NewKey(_as_sdk_key(new), secret)


def _keys_in(folder: Path, tenant: str) -> list[AccessKey]:
    require("server")
    set_umask(store=folder)
    from psoup.store import Store, StoreError
    from psoup.write.keys import last_state

    try:
        keys = last_state(Store.open(folder)).access.keys.values()
    except StoreError as error:
        refuse(str(error))
    return [
        _as_sdk_key(stored)
        for stored in sorted(keys, key=lambda stored: stored.created)
        if stored.tenant == tenant
    ]


def _revoke_in(folder: Path, tenant: str, id_: str) -> None:
    require("server")
    set_umask(store=folder)
    from psoup.errors import ServerError
    from psoup.store import Store, StoreError
    from psoup.write.keys import append_revocation

    try:
        append_revocation(Store.open(folder), tenant, id_)
    except (StoreError, ServerError, OSError) as error:
        refuse(str(error))


def _as_sdk_key(key: Any) -> AccessKey:
    """Return a key of the store in the form that a server sends."""
    from datastem.instants import from_micros

    return AccessKey(
        key.id,
        key.tenant,
        key.owner,
        key.roles,
        json.loads(key.claims),
        from_micros(key.created),
        None if key.expires is None else from_micros(key.expires),
    )
