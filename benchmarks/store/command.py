"""The command `benchmarks/run store` and its options."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks.store import plot as plotting
from benchmarks.store.measure import Amount, Bench, Measurement, ReportProgress
from benchmarks.store.memory import resident
from benchmarks.store.result import Result
from benchmarks.store.temporary_store import temporary_store
from benchmarks.store.workload import Workload, traffic, user_workload
from psoup.cli import credentials
from psoup.cli.connection import Connection
from psoup.cli.output import note
from psoup.cli.problems import reported_problems
from psoup.cli.texts import FILE

TRAFFIC_QUERIES = 100
WHOLE = Amount(rows=1_000_000, invokes=2_000, batches=100, seconds=60.0)
QUICK = Amount(rows=100_000, invokes=300, batches=20, seconds=10.0)
_NEW_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


class _Command(click.Command):
    """A command that shows the SDK's errors as `psoup` does."""

    def invoke(self, ctx: click.Context) -> Any:
        with reported_problems(ctx):
            return super().invoke(ctx)


@click.command(
    "store",
    cls=_Command,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--quick", is_flag=True, help="A tenth of the rows, fewer calls.")
@click.option(
    "--stream",
    metavar="DDL",
    show_default="made-up traffic",
    help="Your CREATE STREAM, or a file with it.",
)
@click.option("--queries", type=FILE, help="Your queries, each ended by a semicolon.")
@click.option("--data", type=FILE, help="Your rows, as `psoup publish` takes them.")
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    show_default="1,000,000; 100,000 with --quick",
    help="Publish at most this number of rows.",
)
@click.option(
    "--server",
    metavar="HOST:PORT",
    show_default="a new store in a temporary folder",
    help="Measure this running store.",
)
@click.option("--tenant", help="With --server: the tenant to measure as.")
@click.option("--owner", help="With --server: the owner to measure as.")
@click.option("--no-engine", is_flag=True, help="Without Spark: the server computes answers.")
@click.option("--master", metavar="URL", show_default="local[*]", help="The engine's Spark master.")
@click.option(
    "--json", "json_path", type=_NEW_FILE, help="Write everything that was measured to this file."
)
@click.option(
    "--plot",
    "plot_path",
    type=_NEW_FILE,
    metavar="FILE.png",
    help="Draw the measurements; needs matplotlib.",
)
@credentials.options
def measure_store(
    quick: bool,
    stream: str | None,
    queries: Path | None,
    data: Path | None,
    rows: int | None,
    server: str | None,
    tenant: str | None,
    owner: str | None,
    no_engine: bool,
    master: str | None,
    json_path: Path | None,
    plot_path: Path | None,
    **credential_options: Any,
) -> None:
    """Measure how fast a store is on this machine, with your own queries if you like.

    Starts a store in a temporary folder, publishes rows into it, asks its queries, and removes
    the store again, also after Ctrl-C. Without --stream, --queries and --data it uses
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
    benchmarks/run store --quick
    benchmarks/run store --json today.json --plot today.png
    benchmarks/run store --stream trades.sql --queries queries.sql --data day.csv.gz
    benchmarks/run store --server store.example:7181 --quick

    With --server the stream is made in that store and dropped again. Other work of that store
    is measured too; its memory is not.
    """
    if plot_path is not None:
        plotting.require_matplotlib()
    workload = traffic(TRAFFIC_QUERIES)
    if stream or queries or data:
        workload = user_workload(stream, queries, data)
    amount = QUICK if quick else WHOLE
    amount = replace(amount, rows=rows) if rows else amount
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _progress() as report_progress:
        if server is None:
            result = _on_temporary_store(workload, amount, not no_engine, master, report_progress)
        else:
            connection = Connection(
                server, tenant, owner, credentials=credentials.read(**credential_options)
            )
            measured = _measure(connection, workload, amount, not no_engine, report_progress)
            result = _result(measured, workload, {})
    note(result.setting())
    result.show()
    if json_path is not None:
        result.write(json_path)
    if plot_path is not None:
        plotting.plot(result, plot_path)


def _on_temporary_store(
    workload: Workload,
    amount: Amount,
    engine: bool,
    master: str | None,
    report_progress: ReportProgress,
) -> Result:
    report_progress("starting a store", 0, 1)
    with temporary_store(engine, master) as store:
        connection = Connection(store.target)
        measured = _measure(connection, workload, amount, engine, report_progress)
        processes = {"server": store.server, "engine": store.engine}
        memory = {name: resident(child.pid) for name, child in processes.items() if child}
    return _result(measured, workload, memory)


def _measure(
    connection: Connection,
    workload: Workload,
    amount: Amount,
    engine: bool,
    report_progress: ReportProgress,
) -> Measurement:
    with connection.client() as client:
        return Bench(client, workload, amount, engine, report_progress).run()


def _result(measured: Measurement, workload: Workload, memory: dict[str, int]) -> Result:
    return Result(measured, len(workload.queries), workload.stream, memory)


@contextmanager
def _progress() -> Iterator[ReportProgress]:
    """Show a bar for each step, if standard error is a terminal."""
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

    def report_progress(step: str, done: int, total: int) -> None:
        if step not in tasks:
            tasks[step] = bar.add_task(step, total=total)
        bar.update(tasks[step], completed=done, total=total)

    with bar:
        yield report_progress
