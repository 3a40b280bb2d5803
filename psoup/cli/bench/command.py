"""The command and its options."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from psoup.cli.bench import plot as plotting
from psoup.cli.bench.measure import Amount, Bench, Measurement, Tell
from psoup.cli.bench.memory import resident
from psoup.cli.bench.own_store import own_store
from psoup.cli.bench.result import Result
from psoup.cli.bench.workload import Workload, own, traffic
from psoup.cli.connection import Connection
from psoup.cli.output import note
from psoup.cli.texts import FILE

QUERIES = 100
WHOLE = Amount(rows=1_000_000, invokes=2_000, batches=100, seconds=60.0)
QUICK = Amount(rows=100_000, invokes=300, batches=20, seconds=10.0)
_NEW_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the rows, fewer calls.")
@click.option("--stream", metavar="DDL", help="Your CREATE STREAM, or a file with it.")
@click.option("--queries", type=FILE, help="Your queries, each ended by a semicolon.")
@click.option("--data", type=FILE, help="Your rows, as `psoup publish` takes them.")
@click.option("--rows", type=click.IntRange(min=1), help="Publish at most so many rows.")
@click.option("--server", metavar="HOST:PORT", help="Measure this running store instead.")
@click.option("--no-engine", is_flag=True, help="Without Spark: the server computes answers.")
@click.option("--master", metavar="URL", help="The engine's Spark master, as local[2].")
@click.option("--json", "json_", type=_NEW_FILE, help="Write everything measured to this file.")
@click.option("--plot", type=_NEW_FILE, metavar="FILE.png", help="Draw it; needs matplotlib.")
@click.pass_obj
def bench(
    connection: Connection,
    quick: bool,
    stream: str | None,
    queries: Path | None,
    data: Path | None,
    rows: int | None,
    server: str | None,
    no_engine: bool,
    master: str | None,
    json_: Path | None,
    plot: Path | None,
) -> None:
    """Measure how fast a store is on this machine, with your own queries if you like.

    Starts a store in a temporary folder, publishes rows into it, asks its queries, and removes
    it again; Ctrl-C too leaves nothing behind. Without --stream, --queries and --data it uses
    100 queries over made-up traffic.

    \b
    What the lines mean:
      rows published, acknowledged        how fast one publisher can send
      rows … matched by the engine        how fast that can go on for hours
      invoke                              one call, the answer read; beside the smallest call
      publish → acknowledged              a batch of 1,000 rows is durable
      publish → answer                    … is in the next answer
      publish → epoch                     … is matched and stored by the engine
    p99 is the time that one call in a hundred exceeds.

    \b
    psoup bench --quick
    psoup bench --json today.json --plot today.png
    psoup bench --stream trades.sql --queries mine.sql --data day.csv.gz
    psoup bench --server store.example:7181 --quick

    With --server the stream is made in that store and dropped again; what else goes on there is
    measured too, and its memory is not.
    """
    if plot is not None:
        plotting.require_matplotlib()
    workload = traffic(QUERIES)
    if stream or queries or data:
        workload = own(stream, queries, data)
    amount = QUICK if quick else WHOLE
    amount = replace(amount, rows=rows) if rows else amount
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _progress() as tell:
        if server is None:
            result = _on_own_store(connection, workload, amount, not no_engine, master, tell)
        else:
            here = replace(connection, target=server)
            result = _result(_measure(here, workload, amount, not no_engine, tell), workload, {})
    note(result.setting())
    result.show()
    if json_ is not None:
        result.write(json_)
    if plot is not None:
        plotting.plot(result, plot)


def _on_own_store(
    connection: Connection,
    workload: Workload,
    amount: Amount,
    engine: bool,
    master: str | None,
    tell: Tell,
) -> Result:
    tell("starting a store", 0, 1)
    with own_store(engine, master) as store:
        here = replace(connection, target=store.target)
        measured = _measure(here, workload, amount, engine, tell)
        processes = {"server": store.server, "engine": store.engine}
        memory = {name: resident(each.pid) for name, each in processes.items() if each}
    return _result(measured, workload, memory)


def _measure(
    connection: Connection, workload: Workload, amount: Amount, engine: bool, tell: Tell
) -> Measurement:
    with connection.client() as client:
        return Bench(client, workload, amount, engine, tell).run()


def _result(measured: Measurement, workload: Workload, memory: dict[str, int]) -> Result:
    return Result(measured, len(workload.queries), workload.stream, memory)


@contextmanager
def _progress() -> Iterator[Tell]:
    """A bar for each step; nothing where no one is looking."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def tell(step: str, done: int, total: int) -> None:
        if step not in tasks:
            tasks[step] = bar.add_task(step, total=total)
        bar.update(tasks[step], completed=done, total=total)

    with bar:
        yield tell
