"""psoup key: static keys, which callers show as a token."""

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
    help="The store's folder itself, in place of a server: for whoever may write it.",
)


@click.group(cls=SentenceGroup)
def key() -> None:
    """Keys that callers show: made and revoked by those who administer their tenant.

    The first one is made in the store's folder. From then on servers that were told nothing else
    ask every caller for a key.

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
    help="operator, administrator, developer, publisher, reader, or one that has grants. May be "
    "repeated.",
)
@click.option("--claims", default="", metavar="JSON", help="For row policies, as an object.")
@click.option("--expires", metavar="DURATION", help="After so long, as 90d; else never.")
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it to a new file that only you can read, and not to the terminal.",
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
    """Make a key with which its bearer acts as OWNER of the tenant. It is shown once."""
    until = None if expires is None else datetime.now(UTC) + duration(expires)
    values = _claims(claims)
    with _Output(to) as output:
        if store is not None:
            made = _create_in(store, connection.tenant or "main", owner, roles, claims, until)
        else:
            with connection.client() as client:
                made = client.create_key(owner, roles=roles, claims=values, expires=until)
        output.write(made.secret)
    what = made.key
    ends = f"until {what.expires:%Y-%m-%dT%H:%M:%SZ}" if what.expires else "until it is revoked"
    note(f"key {what.id}: owner {what.owner} of tenant {what.tenant}, {ends}")


@key.command("list")
@click.option("--json", "lines", is_flag=True, help="For programs: one object a line.")
@STORE
@click.pass_obj
def list_(connection: Connection, lines: bool, store: Path | None) -> None:
    """The keys of the tenant, without what would let anyone show one."""
    if store is not None:
        found = _keys_in(store, connection.tenant or "main")
    else:
        with connection.client() as client:
            found = client.access_keys()
    if lines:
        for each in found:
            echo(as_json(each))
        return
    grid(
        ["key", "owner", "roles", "claims", "created", "expires"],
        [_line(each) for each in found],
        empty="no keys yet; psoup key create makes one",
    )


@key.command()
@click.argument("id", metavar="KEY")
@STORE
@click.pass_obj
def revoke(connection: Connection, id: str, store: Path | None) -> None:
    """End a key, named by its 16 digits. Servers refuse it within seconds, and end its watches."""
    if store is not None:
        _revoke_in(store, connection.tenant or "main", id)
    else:
        with connection.client() as client:
            client.revoke_key(id)
    note(f"revoked {id}")


def _line(each: AccessKey) -> list[Any]:
    expires = f"{each.expires:%Y-%m-%d %H:%MZ}" if each.expires else "never"
    claims = json.dumps(dict(each.claims)) if each.claims else ""
    created = f"{each.created:%Y-%m-%d %H:%MZ}"
    return [each.id, each.owner, ", ".join(each.roles), claims, created, expires]


def _claims(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        fail(f'--claims {text!r} is no JSON; write an object, as \'{{"region": "north"}}\'')
    if not isinstance(found, dict):
        fail("--claims must be a JSON object")
    return found


class _Output:
    """Takes a secret to standard output, or to a file that only its user can read. The file is made
    first, so that no key is made whose secret has nowhere to go."""

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
        made, secret = new_key(tenant, owner, tuple(roles), claims, now, until)
        append_key(Store.open(folder, create=True), made)
    except (StoreError, ServerError, OSError) as error:
        refuse(str(error))
    return NewKey(_told(made), secret)


def _keys_in(folder: Path, tenant: str) -> list[AccessKey]:
    require("server")
    set_umask(store=folder)
    from psoup.store import Store, StoreError
    from psoup.write.keys import last_state

    try:
        known = last_state(Store.open(folder)).access.keys.values()
    except StoreError as error:
        refuse(str(error))
    return [
        _told(one) for one in sorted(known, key=lambda one: one.created) if one.tenant == tenant
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


def _told(key: Any) -> AccessKey:
    """A key of the store, as a server would tell of it."""
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
