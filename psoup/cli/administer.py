"""psoup grant, psoup quota and psoup audit: for administrators of a tenant or the store."""

from __future__ import annotations

import itertools
from dataclasses import asdict

import click

from client_sdk import Quota
from psoup.cli.connection import Connection
from psoup.cli.drops import grantee
from psoup.cli.output import SentenceGroup, as_json, echo, grid, note
from psoup.cli.problems import Problem, fail
from psoup.cli.texts import first_words

# ---- grants

_PAST_TENSE = {"GRANT": "granted", "REVOKE": "revoked"}


@click.group(cls=SentenceGroup)
def grant() -> None:
    """Grants: what roles and owners of a tenant may do, beyond what built-in roles allow.

    Actions are define, publish, register, read and administer, on a stream, a view or ALL. The
    built-in roles are operator, monitor, administrator, developer, publisher and reader; any other
    name is a role that may do only what it was granted. `psoup key create` gives roles to a caller.

    \b
    psoup grant make "GRANT read, register ON orders TO ROLE field"
    psoup grant make "GRANT publish ON ALL TO OWNER gate"
    psoup grant make "REVOKE read ON orders FROM ROLE field"
    psoup grant list
    """


@grant.command("make")
@click.argument("sql")
@click.pass_obj
def make(connection: Connection, sql: str) -> None:
    """Run a GRANT or a REVOKE. It takes effect with the next call.

    After reading is revoked, the next sync removes the rows from copies.

    \b
    psoup grant make "GRANT read, register ON orders TO ROLE field"
    psoup grant make "REVOKE read ON orders FROM ROLE field"
    """
    verb = first_words(sql, 1)
    if verb not in _PAST_TENSE:
        fail("write GRANT … ON … TO …, or REVOKE … ON … FROM …; --help has examples")
    with connection.client() as client:
        client.define(sql)
    note(f"{_PAST_TENSE[verb]}; psoup grant list shows all grants")


@grant.command("list")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def list_grants(connection: Connection, as_json_: bool) -> None:
    """List the grants of the tenant.

    \b
    psoup grant list
    """
    with connection.client() as client:
        grants = client.grants()
    if as_json_:
        echo(as_json([asdict(entry) for entry in grants]))
        return
    grid(
        ["on", "action", "to"],
        [[entry.object or "ALL", entry.action, grantee(entry)] for entry in grants],
        empty="no grants; built-in roles need none",
    )


# ---- quotas


@click.group(cls=SentenceGroup)
def quota() -> None:
    """Quotas: how much a tenant, or an owner of it, may have and do.

    A call beyond a limit is refused and names the limit; `psoup status` shows what is used.

    \b
    psoup --tenant acme quota set registrations=100000 rows_per_second=50000
    psoup quota set --of alice watches=20
    psoup quota list
    """


@quota.command("set")
@click.argument("limits", nargs=-1, required=True, metavar="NAME=NUMBER…")
@click.option(
    "--of",
    "owner",
    default="",
    metavar="OWNER",
    show_default="the tenant",
    help="Set the limits of this owner.",
)
@click.pass_obj
def set_(connection: Connection, limits: tuple[str, ...], owner: str) -> None:
    """Set limits, or remove them with NAME=none.

    Limits are registrations, publishers, streams, views, keys, policies, grants, bytes,
    events_per_second, rows_per_second, work_per_second and watches; the last four hold for
    each server, grants and bytes only for tenants. Operators set the quotas of tenants.

    \b
    psoup --tenant acme quota set registrations=100000 rows_per_second=50000
    psoup quota set --of alice watches=20 registrations=none
    """
    limits_by_name, removed = _parse_limits(limits)
    with connection.client() as client:
        changed = client.set_quota(limits_by_name, remove=removed, owner=owner)
    _show([changed])


@quota.command("list")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def list_quotas(connection: Connection, as_json_: bool) -> None:
    """List the quotas of the tenant and its owners, and how much of them is used.

    \b
    psoup quota list
    """
    with connection.client() as client:
        quotas = client.quotas()
    if as_json_:
        echo(as_json([asdict(entry) for entry in quotas]))
    else:
        _show(quotas)


def _parse_limits(texts: tuple[str, ...]) -> tuple[dict[str, int], list[str]]:
    """Return the limits to set, and the names of those to remove."""
    limits, removed = dict[str, int](), list[str]()
    for text in texts:
        name, _, number = text.partition("=")
        if number.lower() == "none":
            removed.append(name)
        elif number.replace("_", "").isdecimal():
            limits[name] = int(number)
        else:
            raise Problem(f"{text!r} is not a limit; write NAME=NUMBER or NAME=none")
    return limits, removed


def _show(quotas: list[Quota]) -> None:
    rows = [
        [quota.owner or "(the tenant)", limit.name, f"{limit.limit:,}", f"{limit.used:,}"]
        for quota in quotas
        for limit in quota.limits
    ]
    grid(["of", "limit", "most", "used"], rows, empty="no quotas")


# ---- the audit


@click.command()
@click.option(
    *("--limit", "-n"),
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Show at most this number, the newest.",
)
@click.option("--all-tenants", is_flag=True, help="Show the whole store; for operators.")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def audit(connection: Connection, limit: int, all_tenants: bool, as_json_: bool) -> None:
    """Show what was administered, newest first: streams, views, grants, keys, policies, quotas.

    `deny` is an attempt by a caller without the right, with the number of attempts in a minute.

    Administrators see their tenant. A caller of another tenant is named TENANT/OWNER; `-` is a
    change made in the store's folder.

    \b
    psoup audit -n 20
    psoup audit --all-tenants
    """
    with connection.client() as client:
        entries = list(itertools.islice(client.audit(all_tenants=all_tenants), limit))
    if as_json_:
        echo(as_json([asdict(entry) for entry in entries]))
        return
    grid(
        ["at", "tenant", "who", "action", "on", "detail"],
        [
            [
                f"{entry.at:%F %T}",
                entry.tenant,
                entry.actor or "-",
                entry.action,
                entry.object,
                entry.detail,
            ]
            for entry in entries
        ],
        empty="nothing was administered",
    )
