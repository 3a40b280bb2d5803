"""psoup publisher: the names under which owners have published."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from datetime import timedelta

import click

from client_sdk import Client
from psoup.cli.connection import Connection
from psoup.cli.output import SentenceGroup, as_json, counted, echo, grid, note
from psoup.cli.problems import fail
from psoup.cli.texts import duration

# The most names that the store forgets in one call.
_NAMES_PER_CALL = 1000
_SHOWN_MARK_CHARACTERS = 40

OF = click.option(
    "--of",
    "owner",
    default="",
    show_default="you, or all owners if you administer the tenant",
    metavar="OWNER",
    help="Only publishers of this owner.",
)


@click.group(cls=SentenceGroup)
def publisher() -> None:
    """Publishers: names whose batches are numbered, so that none is stored twice.

    A name belongs to the owner who published under it. The store keeps a name until you forget
    it, or for as long as its lease says after its last batch. A quota may limit how many there
    are.

    \b
    psoup publisher list
    psoup publisher forget nightly-2024 nightly-2025
    psoup publisher forget --idle 90d --of gate
    """


@publisher.command("list")
@click.argument("prefix", default="")
@OF
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def list_(connection: Connection, prefix: str, owner: str, as_json_: bool) -> None:
    """List publishers whose names begin with PREFIX: their rows, and the last batch with its mark.

    \b
    psoup publisher list
    psoup publisher list file-
    """
    with connection.client() as client:
        publishers = list(client.publishers(owner=owner, prefix=prefix))
    if as_json_:
        echo(as_json([asdict(record) for record in publishers]))
        return
    grid(
        ["owner", "name", "sequence", "rows", "last published", "kept until", "mark"],
        [
            [
                record.owner,
                record.name,
                f"{record.sequence:,}",
                f"{record.row_count:,}",
                f"{record.published_at:%F %T}",
                "" if record.lease is None else f"{record.published_at + record.lease:%F %T}",
                _shown_mark(record.mark),
            ]
            for record in publishers
        ],
        empty="no publishers",
    )


@publisher.command()
@click.argument("names", nargs=-1, metavar="[NAME…]")
@click.option(
    "--idle", metavar="DURATION", help="All that published nothing for this time, as 90d."
)
@OF
@click.pass_obj
def forget(connection: Connection, names: tuple[str, ...], idle: str | None, owner: str) -> None:
    """Forget publishers that are done; their sequences begin again with 1.

    Forget only names under which no program will repeat a batch: a batch that is sent again under
    a forgotten name is stored twice, or refused with SEQUENCE_GAP. The rows stay.

    \b
    psoup publisher forget nightly-2024
    psoup publisher forget --idle 90d --of gate
    """
    if bool(names) == (idle is not None):
        fail("give names, or --idle DURATION")
    with connection.client() as client:
        by_owner = {owner: [*names]} if idle is None else _idle(client, duration(idle), owner)
        for publisher_owner, owned_names in by_owner.items():
            for start in range(0, len(owned_names), _NAMES_PER_CALL):
                client.forget_publishers(
                    owned_names[start : start + _NAMES_PER_CALL], owner=publisher_owner
                )
    note(f"forgot {counted(sum(map(len, by_owner.values())), 'publisher')}")


def _shown_mark(mark: bytes) -> str:
    """Return a mark as text, or in hexadecimal if it is none, cut to what fits a line."""
    try:
        text = mark.decode()
    except UnicodeDecodeError:
        text = mark.hex()
    return text if len(text) <= _SHOWN_MARK_CHARACTERS else text[:_SHOWN_MARK_CHARACTERS] + "…"


def _idle(client: Client, idle: timedelta, owner: str) -> dict[str, list[str]]:
    """Return the names that published nothing for `idle`, by the store's clock, by owner."""
    before, names = client.status().now - idle, defaultdict[str, list[str]](list)
    for record in client.publishers(owner=owner):
        if record.published_at <= before:
            names[record.owner].append(record.name)
    return names
