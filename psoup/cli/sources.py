"""psoup source: rows from Kafka, PostgreSQL, Delta tables and folders into streams."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from client_sdk import Credentials, PsoupError
from psoup.cli.connection import Connection
from psoup.cli.metrics import metrics_options, metrics_settings, served_metrics
from psoup.cli.output import SentenceGroup, as_json, counted, echo, grid, note
from psoup.cli.problems import INTERRUPTED, REFUSED, TERMINATED, complain, fail, source_code
from psoup.cli.texts import FILE
from psoup.service_manager import ServiceManager
from psoup.source.connectors.partition import Context
from psoup.source.connectors.registry import make_connector
from psoup.source.errors import SourceAway, SourceError
from psoup.source.operations import check_source, lag_of, skip_to
from psoup.source.replay import replay_aside
from psoup.source.runner import SourceRunner, run_sources, source_stream
from psoup.source.settings import SourceSettings, load_settings
from psoup.source.status import StatusFile

if TYPE_CHECKING:
    from psoup.source.metrics import SourceMetrics

NAMES = click.argument("names", nargs=-1, metavar="[NAME…]")
SETTINGS = click.argument("file", type=FILE, metavar="SOURCES.TOML")
STATUS = click.option(
    "--status",
    "status_file",
    type=click.Path(dir_okay=False, path_type=Path),
    show_default="beside SOURCES.TOML",
    help="The file in which run notes the state of sources, and status reads it.",
)


@click.group(cls=SentenceGroup)
def source() -> None:
    """Sources: rows from files, Delta tables, PostgreSQL and Kafka into streams, each once.

    How far a source has read is in the store, in the commit of the rows. So a source may be killed,
    moved to another machine, or run twice. The file says where rows are and where they go.

    \b
    [defaults]
    target = "localhost:7181"
    [sources.doors]
    files = "drop/*.csv"
    stream = "doors"

    \b
    psoup source check sources.toml
    psoup source run sources.toml
    psoup source status sources.toml
    """


def _chosen(
    connection: Connection, file: Path, names: tuple[str, ...]
) -> dict[str, SourceSettings]:
    sources = load_settings(file)
    if missing := [name for name in names if name not in sources]:
        fail(f"{file} has no source {missing[0]}; it has {', '.join(sources)}")
    return {
        name: _with_store(settings, connection)
        for name, settings in sources.items()
        if not names or name in names
    }


def _status_of(file: Path, status_file: Path | None) -> StatusFile:
    return StatusFile.beside(file) if status_file is None else StatusFile(status_file)


def _with_store(settings: SourceSettings, connection: Connection) -> SourceSettings:
    """Return the settings with what the command says about the store and the file does not."""
    store, usual = settings.store, Connection()
    changes: dict[str, Any] = {}
    for name in ("target", "tenant", "owner"):
        value = getattr(connection, name)
        if getattr(store, name) == getattr(usual, name) and value != getattr(usual, name):
            changes[name] = value
    if store.credentials is None and isinstance(connection.credentials, Credentials):
        changes["credentials"] = connection.credentials
    return replace(settings, store=replace(store, **changes))


@source.command()
@SETTINGS
@NAMES
@click.option(
    "--from",
    "start",
    default="",
    metavar="earliest|latest|INSTANT|MARK",
    show_default="earliest, if the stream is empty",
    help="Where to begin if the store has no mark of a source.",
)
@click.option("--standby", is_flag=True, help="Wait while another process runs a source.")
@STATUS
@metrics_options
@click.pass_obj
def run(
    connection: Connection,
    file: Path,
    names: tuple[str, ...],
    start: str,
    standby: bool,
    status_file: Path | None,
    metrics: str | None,
    metrics_token_file: Path | None,
) -> None:
    """Run sources until Ctrl-C. A source that can't go on stops; the others run on.

    \b
    psoup source run sources.toml
    psoup source run sources.toml trades --from latest
    psoup source run sources.toml --metrics 127.0.0.1:9183
    """
    status = _status_of(file, status_file)
    status.notice = note
    sources = _chosen(connection, file, names).values()
    runners = [SourceRunner(settings, status, note, start, standby) for settings in sources]

    def make_metrics() -> SourceMetrics:
        from psoup.source.metrics import SourceMetrics

        return SourceMetrics(sources, status)

    settings = metrics_settings(metrics, metrics_token_file)
    with served_metrics(settings, make_metrics) as collector:
        number, outcome = asyncio.run(
            _run(runners, status, collector, ServiceManager.of_environment())
        )
    errors = {name: error for name, error in outcome.items() if error is not None}
    for name, error in errors.items():
        complain(f"{name} stopped: {error}")
    code = max((source_code(error) for error in errors.values()), default=0)
    if not code and number:
        code = INTERRUPTED if number == signal.SIGINT else TERMINATED
    click.get_current_context().exit(code)


async def _run(
    runners: list[SourceRunner],
    status: StatusFile,
    metrics: SourceMetrics | None,
    manager: ServiceManager,
) -> tuple[int, dict[str, Exception | None]]:
    """Return the number of the signal that ended the run, or 0; and the error of each source."""
    numbers = list[int]()

    def stop(number: int) -> None:
        numbers.append(number)
        manager.stopping()
        for runner in runners:
            runner.stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Only the main thread handles signals; tests have others.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop, number)
    # A source that waits for its other side, or for the store, has begun as well.
    manager.ready()
    tasks = [
        asyncio.create_task(status.write_regularly()),
        asyncio.create_task(manager.beat_by_loop()),
    ]
    if metrics is not None:
        tasks.append(asyncio.create_task(metrics.watch()))
    try:
        outcome = await run_sources(runners)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        status.write()
    return (numbers[0] if numbers else 0), outcome


@source.command()
@SETTINGS
@NAMES
@click.pass_obj
def check(connection: Connection, file: Path, names: tuple[str, ...]) -> None:
    """Connect to sources and show their first rows as the streams would get them.

    Publishes nothing.

    \b
    psoup source check sources.toml
    psoup source check sources.toml trades
    """
    code = 0
    for name, settings in _chosen(connection, file, names).items():
        try:
            checked = asyncio.run(check_source(settings))
        except (SourceError, SourceAway, PsoupError) as error:
            complain(f"{name}: {error}")
            code = max(code, source_code(error))
            continue
        note(f"{name} → {settings.stream}", *checked.lines)
        columns = checked.rows.column_names
        grid(columns, [list(row.values()) for row in checked.rows.to_pylist()], empty="no rows")
        for line in checked.bad:
            note(f"bad row: {line}")
            code = REFUSED
    click.get_current_context().exit(code)


@source.command()
@SETTINGS
@NAMES
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@STATUS
@click.pass_obj
def status(
    connection: Connection,
    file: Path,
    names: tuple[str, ...],
    as_json_: bool,
    status_file: Path | None,
) -> None:
    """Show how far sources have read, how far they are behind, and why one has stopped.

    \b
    psoup source status sources.toml
    psoup source status sources.toml trades --json
    """
    states = _status_of(file, status_file).read()
    rows, document = list[list[str]](), dict[str, Any]()
    for name, settings in _chosen(connection, file, names).items():
        try:
            publishers, whole_lag = asyncio.run(lag_of(settings))
        except (SourceError, SourceAway) as error:
            publishers, whole_lag = {}, {}
            note(f"{name}: {error}")
        state = states.get(name, {"state": "never run", "reason": ""})
        document[name] = {**state, "lag": whole_lag, "publishers": publishers}
        rows.append([name, state["state"], "", "", _lag(whole_lag), str(state["reason"])])
        if left_out := state.get("left_out"):
            fields = ", ".join(f"{field} ({count:,})" for field, count in left_out.items())
            note(f"{name}: fields that no column takes, with their records: {fields}")
        for publisher, record in publishers.items():
            lag = _lag(record["lag"])
            published = f"{record['published_at']:%F %T}"
            rows.append([publisher, "", f"{record['rows']:,}", published, lag, record["mark"]])
    if as_json_:
        echo(as_json(document))
        return
    grid(["source", "state", "rows", "last published", "lag", "mark or reason"], rows)


def _lag(amounts: dict[str, int]) -> str:
    return ", ".join(f"{value:,} {unit}" for unit, value in amounts.items())


@source.command()
@SETTINGS
@click.argument("name")
@click.option(
    "--to",
    "mark",
    required=True,
    metavar="earliest|latest|INSTANT|MARK",
    help="Where to go on; status shows marks.",
)
@click.option("--partition", default="", help="The partition, if there are several.")
@click.pass_obj
def skip(connection: Connection, file: Path, name: str, mark: str, partition: str) -> None:
    """Let a source go on at another place. What lies between is never read.

    \b
    psoup source skip sources.toml trades --partition trades/0 --to '{"offset": 18}'
    psoup source skip sources.toml orders --to latest
    """
    settings = _chosen(connection, file, (name,))[name]
    publisher, before = asyncio.run(skip_to(settings, mark, partition))
    note(f"{publisher} goes on at {mark}" + (f"; before: {before}" if before else ""))


@source.command("replay-aside")
@SETTINGS
@click.argument("name")
@click.pass_obj
def replay_aside_(connection: Connection, file: Path, name: str) -> None:
    """Publish rows that were put aside and fit by now, each once.

    Rows that still do not fit stay in the aside stream, and are not tried again.

    \b
    psoup source replay-aside sources.toml trades
    """
    settings = _chosen(connection, file, (name,))[name]
    count, problems = asyncio.run(replay_aside(settings))
    for problem in problems[:20]:
        note(problem)
    note(f"{counted(count, 'row')} in {settings.stream}, {counted(len(problems), 'row')} still bad")


@source.command()
@SETTINGS
@NAMES
@click.option("--print", "print_", is_flag=True, required=True, help="Print; nothing is run.")
@click.pass_obj
def setup(connection: Connection, file: Path, names: tuple[str, ...], print_: bool) -> None:
    """Print the statements that the other side needs, for a person to run there.

    \b
    psoup source setup sources.toml orders --print
    """
    for settings in _chosen(connection, file, names).values():
        if statements := asyncio.run(_setup(settings)):
            echo(statements)
        else:
            note(f"{settings.name} needs no statements on the other side")


async def _setup(settings: SourceSettings) -> str:
    async with settings.store.client() as client:
        stream = await source_stream(client, settings, validate_only=True)
        return make_connector(Context(settings, stream, client)).setup()
