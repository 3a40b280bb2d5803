"""psoup grant, psoup quota and psoup audit: for those who administer a tenant or the store."""

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

_DONE = {"GRANT": "granted", "REVOKE": "revoked"}


@click.group(cls=SentenceGroup)
def grant() -> None:
    """Grants: what roles and owners of a tenant may do, besides what built-in roles allow.

    Actions are define, publish, register, read and administer, on a stream, a view or ALL. The
    built-in roles are operator, administrator, developer, publisher and reader; any other name is
    a role that may do what it was granted. `psoup key create` gives roles to a caller.

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
    """Run a GRANT or a REVOKE. It holds from the next call on.

    When reading is revoked, copies of the rows are emptied by their next sync.

    \b
    psoup grant make "GRANT read, register ON orders TO ROLE field"
    psoup grant make "REVOKE read ON orders FROM ROLE field"
    """
    verb = first_words(sql, 1)
    if verb not in _DONE:
        fail("write GRANT … ON … TO …, or REVOKE … ON … FROM …; --help has examples")
    with connection.client() as client:
        client.define(sql)
    note(f"{_DONE[verb]}; psoup grant list shows all grants")


@grant.command("list")
@click.option("--json", "as_json_", is_flag=True, help="For programs.")
@click.pass_obj
def list_grants(connection: Connection, as_json_: bool) -> None:
    """The grants of the tenant."""
    with connection.client() as client:
        found = client.grants()
    if as_json_:
        echo(as_json([asdict(each) for each in found]))
        return
    grid(
        ["on", "action", "to"],
        [[each.object or "ALL", each.action, grantee(each)] for each in found],
        empty="no grants; built-in roles need none",
    )


# ---- quotas


@click.group(cls=SentenceGroup)
def quota() -> None:
    """Quotas: how much a tenant, or an owner of it, may have and do.

    What is past a limit is refused, and says which; `psoup status` tells what is used.

    \b
    psoup --tenant acme quota set registrations=100000 rows_per_second=50000
    psoup quota set --of alice watches=20
    psoup quota list
    """


@quota.command("set")
@click.argument("limits", nargs=-1, required=True, metavar="NAME=NUMBER…")
@click.option("--of", "owner", default="", metavar="OWNER", help="One owner; else the tenant.")
@click.pass_obj
def set_(connection: Connection, limits: tuple[str, ...], owner: str) -> None:
    """Set limits, or take them away with NAME=none.

    Limits are registrations, publishers, streams, views, keys, policies, grants, bytes,
    events_per_second, rows_per_second, work_per_second and watches; the last four are of each
    server, grants and bytes of tenants only. Quotas of tenants are set by operators.

    \b
    psoup --tenant acme quota set registrations=100000 rows_per_second=50000
    psoup quota set --of alice watches=20 registrations=none
    """
    wanted, removed = _limits(limits)
    with connection.client() as client:
        found = client.set_quota(wanted, remove=removed, owner=owner)
    _show([found])


@quota.command("list")
@click.option("--json", "as_json_", is_flag=True, help="For programs.")
@click.pass_obj
def list_quotas(connection: Connection, as_json_: bool) -> None:
    """The quotas of the tenant and its owners, and what is used of them."""
    with connection.client() as client:
        found = client.quotas()
    if as_json_:
        echo(as_json([asdict(each) for each in found]))
    else:
        _show(found)


def _limits(texts: tuple[str, ...]) -> tuple[dict[str, int], list[str]]:
    """The limits to set, and the names of those to take away."""
    wanted, removed = dict[str, int](), list[str]()
    for text in texts:
        name, _, number = text.partition("=")
        if number.lower() == "none":
            removed.append(name)
        elif number.replace("_", "").isdecimal():
            wanted[name] = int(number)
        else:
            raise Problem(f"{text!r} is no limit; write NAME=NUMBER or NAME=none")
    return wanted, removed


def _show(quotas: list[Quota]) -> None:
    rows = [
        [each.owner or "(the tenant)", limit.name, f"{limit.limit:,}", f"{limit.used:,}"]
        for each in quotas
        for limit in each.limits
    ]
    grid(["of", "limit", "most", "used"], rows, empty="no quotas")


# ---- the audit


@click.command()
@click.option(
    *("--limit", "-n"),
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="At most so many, the newest.",
)
@click.option("--all-tenants", is_flag=True, help="Of the whole store; for operators.")
@click.option("--json", "as_json_", is_flag=True, help="For programs.")
@click.pass_obj
def audit(connection: Connection, limit: int, all_tenants: bool, as_json_: bool) -> None:
    """Show what was administered, newest first: streams, views, grants, keys, policies, quotas.

    `deny` is what somebody tried to administer who may not, with how often in a minute.

    Of the tenant, for those who administer it. Somebody of another tenant is named TENANT/OWNER;
    `-` is whoever could write the store's folder.

    \b
    psoup audit -n 20
    psoup audit --all-tenants
    """
    with connection.client() as client:
        found = list(itertools.islice(client.audit(all_tenants=all_tenants), limit))
    if as_json_:
        echo(as_json([asdict(each) for each in found]))
        return
    grid(
        ["at", "tenant", "who", "action", "on", "detail"],
        [
            [f"{one.at:%F %T}", one.tenant, one.actor or "-", one.action, one.object, one.detail]
            for one in found
        ],
        empty="nothing was administered",
    )
