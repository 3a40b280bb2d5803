"""psoup clock: what the servers' clocks say, and which jumps of the store's time are true."""

from __future__ import annotations

from datetime import timedelta

import click

from client_sdk import ClockJump, StoreClock
from psoup.cli.connection import Connection
from psoup.cli.output import as_json, echo, note, pair_table
from psoup.cli.problems import Problem


@click.command()
@click.option(
    "--confirm",
    "numbers",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="NUMBER",
    help="Say that the jump with this number is true. May be repeated.",
)
@click.option("--confirm-all", is_flag=True, help="The same for every unconfirmed jump.")
@click.option("--json", "as_json_", is_flag=True, help="For programs.")
@click.pass_obj
def clock(
    connection: Connection, numbers: tuple[int, ...], confirm_all: bool, as_json_: bool
) -> None:
    """The store's time: jumps that nobody has confirmed yet, and servers with a wrong clock.

    A jump is a step of more than an hour that nothing accounted for: an outage, or a wrong clock.
    Until it is confirmed nothing is deleted that only the jump has made old. Confirm one where the
    time between really passed. Where it did not, put the clock right, stop every server and the
    engine, and run `psoup repair STORE --clock`.

    \b
    psoup clock
    psoup clock --confirm 3
    """
    if numbers and confirm_all:
        raise Problem("--confirm NUMBER or --confirm-all, not both")
    with connection.client() as client:
        found = client.clock(confirm=numbers)
        if confirm_all:
            found = client.clock(confirm=waiting(found))
    if as_json_:
        echo(as_json(found))
        return
    pair_table(f"clocks at {connection.target}", _pairs(found))
    for line in warnings(found):
        note(line)


def waiting(found: StoreClock) -> list[int]:
    """The numbers of the unconfirmed jumps."""
    return [jump.number for jump in found.jumps if not jump.confirmed]


def warnings(found: StoreClock) -> list[str]:
    """Lists what an operator should do something about, a line each."""
    lines = [f"this server appends nothing: {found.problem}"] if found.problem else []
    if found.unconfirmed:
        lines.append(
            f"{_length(found.unconfirmed)} of the store's time are unconfirmed; look at "
            "`psoup clock`, then --confirm what is true, or take it back with "
            "`psoup repair STORE --clock`"
        )
    return lines


def _pairs(found: StoreClock) -> list[tuple[str, str]]:
    pairs = [
        ("this server", f"{found.server}, {found.clock}"),
        ("last stamp", str(found.stamp or "none yet")),
        ("unconfirmed", _length(found.unconfirmed) if found.unconfirmed else "nothing"),
    ]
    pairs += [(f"jump {jump.number}", _jump(jump)) for jump in found.jumps]
    return pairs + [(f"server {name}", _other(ahead)) for name, ahead in found.others.items()]


def _jump(jump: ClockJump) -> str:
    by = f"confirmed by {jump.confirmed}" if jump.confirmed else "unconfirmed"
    length = _length(jump.to - jump.before)
    return f"from {jump.before} to {jump.to} ({length}) by {jump.server}: {by}"


def _other(ahead: timedelta) -> str:
    seconds = ahead.total_seconds()
    return f"this server is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} it"


def _length(span: timedelta) -> str:
    """Days and hours where there are some, else minutes."""
    minutes = round(span.total_seconds() / 60)
    days, hours = minutes // 1440, minutes % 1440 // 60
    parts = [f"{days:,} d"] * bool(days) + [f"{hours} h"] * bool(hours)
    return " ".join(parts) or f"{minutes} min"
