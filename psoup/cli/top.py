"""psoup top: a store at work, refreshed every second."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from client_sdk import Client, ConnectionFailed, StoreStatus, Stream
from psoup.cli.connection import Connection
from psoup.cli.output import as_json, console, draw, echo
from psoup.escaping import escaped

_MOST_STREAMS = 20


@dataclass(frozen=True, slots=True)
class StreamRate:
    """A stream, the rows it got each second since the last look, and how far its NOW is behind the
    clock of the store."""

    name: str
    rows: int
    rows_per_second: float
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class Look:
    """A store at an instant. `streams` are the busiest first."""

    status: StoreStatus
    streams: tuple[StreamRate, ...]


@click.command()
@click.option("--once", is_flag=True, help="Look for one interval, print, and end.")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs; needs --once.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.pass_obj
def top(connection: Connection, once: bool, as_json_: bool, every: float) -> None:
    """Watch a store at work: rows by stream, the engine, memory, the registrations that cost most.

    Ctrl-C ends it.

    \b
    psoup top
    psoup top --once --json
    """
    if as_json_ and not once:
        raise click.UsageError("--json prints one look: add --once")
    with connection.client() as client:
        looks = _Looks(client, every)
        if once:
            look = next(looks)
            if as_json_:
                echo(as_json(look))
            else:
                draw(_screen(look, connection.target))
            return
        _watch(looks, connection.target)


def _watch(looks: Iterator[Look], target: str) -> None:
    """Show looks until Ctrl-C. A store that is away is waited for."""
    with Live(Text(f"looking at {target} …"), console=console(), screen=True) as live:
        try:
            while True:
                try:
                    live.update(_screen(next(looks), target))
                except ConnectionFailed as error:
                    live.update(Text(f"{escaped(error.message)}; trying again"))
                    time.sleep(1)
        except KeyboardInterrupt:
            return


class _Looks(Iterator[Look]):
    """Looks at a store, each an interval after the one before; an error does not end them."""

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._rows: dict[int, int] | None = None
        self._at = 0.0

    def __next__(self) -> Look:
        if self._rows is None:
            self._rows = _row_counts(self._client.streams())
            self._at = time.monotonic()
        time.sleep(max(0.0, self._at + self._seconds - time.monotonic()))
        before, began = self._rows, self._at
        status, streams = self._client.status(), self._client.streams()
        self._rows, self._at = _row_counts(streams), time.monotonic()
        elapsed = self._at - began
        rates = [_rate(stream, before, elapsed, status.now) for stream in streams]
        rates.sort(key=lambda rate: (-rate.rows_per_second, rate.name))
        return Look(status, tuple(rates))


def _row_counts(streams: Sequence[Stream]) -> dict[int, int]:
    return {stream.id: stream.row_count for stream in streams}


def _rate(stream: Stream, before: dict[int, int], seconds: float, now: datetime) -> StreamRate:
    new_rows = stream.row_count - before.get(stream.id, 0)
    lag = None if stream.now is None else max(0.0, (now - stream.now).total_seconds())
    return StreamRate(stream.name, stream.row_count, new_rows / seconds, lag)


# ---- the screen


def _screen(look: Look, target: str) -> RenderableType:
    status = look.status
    return Group(
        Text(f"store {status.store_id} at {escaped(target)}   {status.now:%Y-%m-%d %H:%M:%S}"),
        Text(_engine_line(status)),
        Text(_memory_line(status)),
        Text(),
        _stream_table(look.streams),
        Text(),
        _work_table(status),
    )


def _engine_line(status: StoreStatus) -> str:
    runs = status.engine is not None and status.engine.running
    name = "engine runs" if runs else "no engine runs"
    behind = f"{status.behind_rows:,} rows, {status.behind.total_seconds():.1f} s behind"
    return f"{name}; epoch {status.epoch}; {behind}; back-fill {status.backfill_rows:,} rows"


def _memory_line(status: StoreStatus) -> str:
    used, limit = status.cache_bytes, max(1, status.cache_limit_bytes)
    filled = round(20 * min(1.0, used / limit))
    bar = "█" * filled + "░" * (20 - filled)
    counts = f"{status.stream_count:,} streams, {status.registration_count:,} registrations"
    return f"memory {bar} {used >> 20:,} of {limit >> 20:,} MiB; {counts}"


def _stream_table(rates: Sequence[StreamRate]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("stream")
    for title in ("rows/s", "rows", "NOW is behind"):
        table.add_column(title, justify="right")
    for rate in rates[:_MOST_STREAMS]:
        lag = "" if rate.lag_seconds is None else f"{rate.lag_seconds:,.1f} s"
        name, rows = escaped(rate.name), f"{rate.rows:,}"
        table.add_row(Text(name), f"{rate.rows_per_second:,.1f}", rows, lag)
    if len(rates) > _MOST_STREAMS:
        table.add_row(f"… and {len(rates) - _MOST_STREAMS:,} more", "", "", "")
    return table


def _work_table(status: StoreStatus) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("most work in the last minute")
    table.add_column("owner")
    for title in ("ms", "pieces"):
        table.add_column(title, justify="right")
    for entry in status.top_registrations:
        name, owner = escaped(entry.key or entry.hex), escaped(entry.owner)
        table.add_row(Text(name), Text(owner), f"{entry.work / 1e6:,.1f}", f"{entry.pieces:,}")
    return table
