"""psoup publisher: the names under which an owner has published."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from datetime import timedelta

import click

from client_sdk import Client
from psoup.cli.connection import Connection
from psoup.cli.output import SentenceGroup, as_json, echo, grid, note
from psoup.cli.problems import fail
from psoup.cli.texts import duration

# As many as the store forgets in one call.
_NAMES_PER_CALL = 1000

OF = click.option("--of", "owner", default="", metavar="OWNER", help="Publishers of this owner.")


@click.group(cls=SentenceGroup)
def publisher() -> None:
    """Publishers: names whose batches are numbered, so that none is stored twice.

    A name belongs to the owner who published under it. The store remembers every name until it is
    forgotten, and a quota may limit how many there are.

    \b
    psoup publisher list
    psoup publisher forget nightly-2024 nightly-2025
    psoup publisher forget --idle 90d --of gate
    """


@publisher.command("list")
@click.argument("prefix", default="")
@OF
@click.option("--json", "as_json_", is_flag=True, help="For programs.")
@click.pass_obj
def list_(connection: Connection, prefix: str, owner: str, as_json_: bool) -> None:
    """List publishers whose names begin with PREFIX, with their last sequence.

    Your own, or those of all owners if you administer the tenant.

    \b
    psoup publisher list file-
    """
    with connection.client() as client:
        publishers = list(client.publishers(owner=owner, prefix=prefix))
    if as_json_:
        echo(as_json([asdict(each) for each in publishers]))
        return
    grid(
        ["owner", "name", "sequence", "last published"],
        [
            [each.owner, each.name, f"{each.sequence:,}", f"{each.published_at:%F %T}"]
            for each in publishers
        ],
        empty="no publishers",
    )


@publisher.command()
@click.argument("names", nargs=-1, metavar="[NAME…]")
@click.option("--idle", metavar="DURATION", help="All that have been idle so long, as 90d.")
@OF
@click.pass_obj
def forget(connection: Connection, names: tuple[str, ...], idle: str | None, owner: str) -> None:
    """Forget publishers that are done; their sequences begin again with 1.

    Forget only what no program will repeat: a batch that is sent again under a name that was
    forgotten is stored twice, or refused with SEQUENCE_GAP. Rows stay. With --idle, those of all
    owners if you administer the tenant and leave --of out.

    \b
    psoup publisher forget nightly-2024
    psoup publisher forget --idle 90d --of gate
    """
    if bool(names) == (idle is not None):
        fail("give names, or --idle DURATION")
    with connection.client() as client:
        by_owner = {owner: [*names]} if idle is None else _idle(client, duration(idle), owner)
        for whose, done in by_owner.items():
            for start in range(0, len(done), _NAMES_PER_CALL):
                client.forget_publishers(done[start : start + _NAMES_PER_CALL], owner=whose)
    note(f"{sum(map(len, by_owner.values())):,} forgotten")


def _idle(client: Client, idle: timedelta, owner: str) -> dict[str, list[str]]:
    """Return the names that published nothing for so long, by owner. The store's clock counts."""
    before, names = client.status().now - idle, defaultdict[str, list[str]](list)
    for each in client.publishers(owner=owner):
        if each.published_at <= before:
            names[each.owner].append(each.name)
    return names
