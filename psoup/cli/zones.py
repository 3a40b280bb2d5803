"""psoup zone: the rules of time zones that a store has, and renewing them."""

from __future__ import annotations

import click

from client_sdk import StoreZones
from psoup.cli.connection import Connection
from psoup.cli.output import SentenceGroup, as_json, counted, echo, grid, note


@click.group(cls=SentenceGroup)
def zone() -> None:
    """Time zones: the rules that the store computes their days and hours by.

    The store gets the rules of a zone when a text first names it, from the machine of the server
    that takes the text. They stay until they are renewed, so that all answers agree.

    \b
    psoup zone list
    psoup zone renew Europe/Madrid
    """


@zone.command("list")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def list_(connection: Connection, as_json_: bool) -> None:
    """List the zones that the store has rules of, and whether the server's machine has others.

    \b
    psoup zone list
    """
    with connection.client() as client:
        _show(client.zones(), as_json_)


@zone.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def renew(connection: Connection, names: tuple[str, ...], as_json_: bool) -> None:
    """Give zones the rules of the server's machine, if they differ. This is for operators.

    Answers are by the new rules from then on. Conditions that compute with the zone are matched
    again, and copies of such queries come whole with their next sync.

    \b
    psoup zone renew Europe/Madrid America/New_York
    """
    with connection.client() as client:
        renewed = client.zones(renew=names)
        _show(renewed, as_json_)
    if renewed.registration_count and not as_json_:
        note(f"{counted(renewed.registration_count, 'registration')} matched again")


def _show(listed: StoreZones, as_json_: bool) -> None:
    if as_json_:
        echo(as_json(listed))
        return
    grid(
        ["zone", "version", "the server's machine"],
        [
            [
                stored.name,
                str(stored.version),
                "has other rules" if stored.outdated else "has the same",
            ]
            for stored in listed.zones
        ],
        empty="no zones",
    )
