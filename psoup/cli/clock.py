"""psoup clock: the servers' clocks, and jumps of the store's time to confirm."""

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
    help="Confirm the jump with this number. May be repeated.",
)
@click.option("--confirm-all", is_flag=True, help="Confirm every jump.")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def clock(
    connection: Connection, numbers: tuple[int, ...], confirm_all: bool, as_json_: bool
) -> None:
    """Show unconfirmed jumps of the store's time, and servers with a wrong clock.

    A jump is an unexplained step of more than an hour: an outage, or a wrong clock. Until it is
    confirmed, rows that only the jump made old are not deleted. Confirm a jump if the time really
    passed. If it did not, correct the clock, stop every server and the engine, and run
    `psoup repair STORE --clock`.

    \b
    psoup clock
    psoup clock --confirm 3
    """
    if numbers and confirm_all:
        raise Problem("give --confirm NUMBER or --confirm-all, not both")
    with connection.client() as client:
        store_clock = client.clock(confirm=numbers)
        if confirm_all:
            store_clock = client.clock(confirm=unconfirmed(store_clock))
    if as_json_:
        echo(as_json(store_clock))
        return
    pair_table(f"clocks at {connection.target}", _pairs(store_clock))
    for line in warnings(store_clock):
        note(line)


def unconfirmed(store_clock: StoreClock) -> list[int]:
    """Return the numbers of the unconfirmed jumps."""
    return [jump.number for jump in store_clock.jumps if not jump.confirmed]


def warnings(store_clock: StoreClock) -> list[str]:
    """Return a line for each thing that an operator should act upon."""
    lines = [f"this server accepts no rows: {store_clock.problem}"] if store_clock.problem else []
    if store_clock.unconfirmed:
        lines.append(
            f"{_length(store_clock.unconfirmed)} of the store's time are unconfirmed; look at "
            "`psoup clock`, then --confirm what really passed, or undo the jump with "
            "`psoup repair STORE --clock`"
        )
    return lines


def _pairs(store_clock: StoreClock) -> list[tuple[str, str]]:
    pairs = [
        ("this server", f"{store_clock.server}, {store_clock.clock}"),
        ("last stamp", str(store_clock.stamp or "none yet")),
        ("unconfirmed", _length(store_clock.unconfirmed) if store_clock.unconfirmed else "nothing"),
    ]
    pairs += [(f"jump {jump.number}", _jump(jump)) for jump in store_clock.jumps]
    return pairs + [
        (f"server {name}", _difference(ahead)) for name, ahead in store_clock.others.items()
    ]


def _jump(jump: ClockJump) -> str:
    by = f"confirmed by {jump.confirmed}" if jump.confirmed else "unconfirmed"
    length = _length(jump.to - jump.before)
    return f"from {jump.before} to {jump.to} ({length}) by {jump.server}: {by}"


def _difference(ahead: timedelta) -> str:
    seconds = ahead.total_seconds()
    return f"this server is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} it"


def _length(span: timedelta) -> str:
    """Return days and hours, or minutes if it is less than an hour."""
    minutes = round(span.total_seconds() / 60)
    days, hours = minutes // 1440, minutes % 1440 // 60
    parts = [f"{days:,} d"] * bool(days) + [f"{hours} h"] * bool(hours)
    return " ".join(parts) or f"{minutes} min"
