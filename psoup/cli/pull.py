"""psoup pull: write answers to files, once or on a schedule."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from client_sdk import Client, PsoupError
from client_sdk.pulls import (
    FORMATS,
    BadPull,
    Hook,
    Pull,
    Puller,
    PullReport,
    Receivers,
    Schedule,
    Store,
    change_sink_for,
    format_of,
    load_pulls,
    name_from,
    sink_for,
    watch_pull,
)
from psoup.cli.connection import Connection
from psoup.cli.metrics import metrics_options, metrics_settings, served_metrics
from psoup.cli.output import echo
from psoup.cli.problems import TERMINATED, fail
from psoup.cli.pull_reports import Reporter, code_of, code_of_all, describe
from psoup.cli.texts import FILE, duration, is_handle, parameters
from psoup.monitoring.settings import MonitoringSettings

if TYPE_CHECKING:
    from psoup.cli.pull_metrics import PullMetrics

PATH = click.Path(path_type=Path)


class Terminated(BaseException):
    """Raised by SIGTERM."""


def duration_option(
    option: str, help: str, default_text: str | bool = False
) -> Callable[[Any], Any]:
    """Return an option that takes a duration, as 15m."""

    def convert(context: click.Context, option: click.Parameter, value: str | None) -> Any:
        return None if value is None else duration(value)

    return click.option(
        option, metavar="DURATION", callback=convert, show_default=default_text, help=help
    )


@click.command()
@click.argument("query", metavar="[HANDLE|CLIENT_KEY]", required=False)
@click.option("--sql", help="Register this query, under CLIENT_KEY if there is one.")
@click.option("--param", multiple=True, metavar="NAME[:TYPE]=VALUE", help="A value for :name.")
@click.option("--window", show_default="the query's", help='A window such as "RANGE 1 HOUR".')
@duration_option("--lease", "End the registration after this time without contact.", "30d")
@click.option("--to", type=PATH, metavar="OUTPUT", help="The file or folder to keep up to date.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    show_default="by the suffix of OUTPUT",
    help="The format of OUTPUT.",
)
@click.option(
    "--csv-safe",
    is_flag=True,
    help="Put ' before texts of CSV that a spreadsheet would read as formulas.",
)
@click.option(
    "--name",
    show_default="by CLIENT_KEY or OUTPUT",
    help="The name of the pull, and of its table in SQLite.",
)
@click.option(
    "--state",
    type=PATH,
    metavar="FILE",
    show_default="OUTPUT.psoup",
    help="The file of the copy that the pull syncs.",
)
@duration_option("--every", "How often to pull.", "once")
@duration_option("--jitter", "Delay each pull by a random time up to this.", "none")
@click.option(
    "--aligned", is_flag=True, help="Pull at multiples of --every in UTC: full hours, quarters, …"
)
@duration_option("--backoff", "The first pause after a failure; it doubles.", "5s")
@duration_option("--backoff-cap", "The longest pause after failures.", "--every")
@click.option(
    "--changes-to",
    metavar="FILE|URL",
    help="Append each change once, to changes.jsonl or changes.delta, or post it to a URL.",
)
@click.option(
    "--changes-secret-file", type=FILE, help="A file with the secret that signs posts to the URL."
)
@click.option(
    "--every-point",
    is_flag=True,
    help="With --changes-to: of every refresh point, for a query with REFRESH.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="NETWORK",
    help="Post changes to public addresses and this network only, such as 10.0.0.0/8.",
)
@click.option(
    "--watch", is_flag=True, help="Stay connected, and pull as soon as there is something new."
)
@click.option("--always", is_flag=True, help="Write OUTPUT even if nothing changed.")
@click.option("--on-change", metavar="COMMAND", help="Run a hook in a shell after a change.")
@duration_option("--hook-limit", "The most time for the hook.", "5m")
@click.option("--hook-must-succeed", is_flag=True, help="Fail the pull if the hook fails.")
@click.option("--file", "-f", type=FILE, metavar="PULLS.TOML", help="Run the pulls of this file.")
@click.option("--once", is_flag=True, help="Run each pull once, for cron and systemd timers.")
@click.option(
    "--changed-code",
    type=click.IntRange(0, 255),
    default=0,
    metavar="N",
    help="The exit code of --once if an answer changed.",
)
@click.option("--check", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
@click.option("--json", "lines", is_flag=True, help="Print a JSON object a line, for programs.")
@metrics_options
@click.pass_context
def pull(
    context: click.Context,
    /,
    file: Path | None,
    once: bool,
    changed_code: int,
    check: bool,
    quiet: bool,
    lines: bool,
    watch: bool,
    metrics: str | None,
    metrics_token_file: Path | None,
    allow: tuple[str, ...],
    **pull_options: Any,
) -> None:
    """Keep the answer of a query up to date in a file.

    Transfers only what changed, and writes the file only if the answer changed. A reader of the
    file sees the old answer or the new one, never a mix.

    \b
    psoup pull dear --every 15m --to dear.parquet
    psoup pull --sql "SELECT * FROM trades RANGE 1 HOUR" --to trades.csv --once
    psoup pull dear --to answers.sqlite --every 1h --jitter 5m --on-change ./load.sh
    psoup pull dear --to dear.csv --every 1m --changes-to changes.jsonl
    psoup pull dear --to dear.csv --watch --changes-to https://hooks.example/dear
    psoup pull --file pulls.toml
    psoup pull --file pulls.toml --check
    psoup pull --file pulls.toml --metrics 127.0.0.1:9184

    \b
    Exit codes: 0 pulled, 1 refused, 2 wrong usage, 3 no store at the target,
    4 another pull has the output, 5 the hook failed (--hook-must-succeed),
    75 try again later, 130 ended with Ctrl-C, 143 with SIGTERM in the middle of --once.
    """
    connection: Connection = context.obj
    default_store = Store(
        connection.target,
        connection.tenant,
        connection.owner,
        connection.timeout,
        connection.credentials,
    )
    try:
        receivers = Receivers.only(allow) if allow else None
        pulls = (
            _from_file(file, default_store, pull_options)
            if file
            else (_from_options(_PullOptions(**pull_options), default_store),)
        )
        if receivers is not None:
            pulls = tuple(replace(planned, receivers=receivers) for planned in pulls)
        if watch and (file or once or pulls[0].schedule is not None):
            fail("--watch goes without --file, --once and --every")
        plan = PullPlan(
            pulls, once or all(planned.schedule is None for planned in pulls), connection
        )
        settings = metrics_settings(metrics, metrics_token_file)
        if settings is not None and plan.once and not watch:
            fail("--metrics is for pulls that go on: give --every or --watch")
        if check:
            plan.check()
            return
        with _reporting(Reporter(quiet=quiet, lines=lines), settings, pulls, watch) as report:
            code = plan.watch(report) if watch else plan.run(report, changed_code)
        context.exit(code)
    except BadPull as error:
        fail(error.message)


@contextmanager
def _reporting(
    reporter: Reporter,
    settings: MonitoringSettings | None,
    pulls: tuple[Pull, ...],
    stays_connected: bool,
) -> Iterator[Callable[[PullReport], None]]:
    """Yield what takes the reports of pulls: it prints them, and counts them for scrapes."""

    def make_metrics() -> PullMetrics:
        from psoup.cli.pull_metrics import PullMetrics

        return PullMetrics(pulls, stays_connected)

    with served_metrics(settings, make_metrics) as metrics:

        def report(result: PullReport) -> None:
            if metrics is not None:
                metrics.note(result)
            reporter(result)

        yield report


@dataclass(frozen=True)
class PullPlan:
    """The pulls to run, once or on their schedules."""

    pulls: tuple[Pull, ...]
    once: bool
    connection: Connection

    def check(self) -> None:
        for pull in self.pulls:
            _check_outputs(pull)
            for line in describe(replace(pull, schedule=None) if self.once else pull):
                echo(line)

    def run(self, reporter: Callable[[PullReport], None], changed_code: int) -> int:
        """Return the exit code; raise BadPull for an output that can't be one."""
        for pull in self.pulls:
            # All outputs before the first pull: a wrong path must not be found hours later.
            _check_outputs(pull)
        with Puller(self.pulls, on_report=reporter, connect=self._client) as puller, _terminating():
            try:
                if self.once:
                    return code_of_all(puller.once(), changed_code)
                puller.run()
            except Terminated:
                return TERMINATED if self.once else 0
        return max(map(code_of, puller.given_up.values()))

    def watch(self, reporter: Callable[[PullReport], None]) -> int:
        """Return the exit code of the only pull, which stays connected."""
        (pull,) = self.pulls
        _check_outputs(pull)
        error: PsoupError | None = None
        with self._client(pull.store) as client, _terminating():
            try:
                for report in watch_pull(client, pull):
                    reporter(report)
                    error = report.error
            except Terminated:
                return 0
        return 0 if error is None else code_of(error)

    def _client(self, store: Store) -> Client:
        return replace(
            self.connection,
            target=store.target,
            tenant=store.tenant,
            owner=store.owner,
            timeout=store.timeout,
            credentials=store.credentials,
        ).client()


def _check_outputs(pull: Pull) -> None:
    """Raise BadPull for an output that can't be one."""
    sink_for(pull.to, pull.format, pull.name)
    if pull.changes_to is not None:
        change_sink_for(pull.changes_to, pull.changes_secret_file, pull.receivers)


@contextmanager
def _terminating() -> Iterator[None]:
    """Raise Terminated on SIGTERM, as Ctrl-C raises KeyboardInterrupt; outputs stay whole."""

    def end(number: int, frame: Any) -> NoReturn:
        raise Terminated

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@dataclass(frozen=True)
class _PullOptions:
    """The options that describe one pull."""

    query: str | None
    sql: str | None
    param: tuple[str, ...]
    window: str | None
    lease: timedelta | None
    to: Path | None
    form: str | None
    csv_safe: bool
    name: str | None
    state: Path | None
    every: timedelta | None
    jitter: timedelta | None
    aligned: bool
    backoff: timedelta | None
    backoff_cap: timedelta | None
    changes_to: str | None
    changes_secret_file: Path | None
    every_point: bool
    always: bool
    on_change: str | None
    hook_limit: timedelta | None
    hook_must_succeed: bool


def _from_file(file: Path, default_store: Store, pull_options: dict[str, Any]) -> tuple[Pull, ...]:
    for name, value in pull_options.items():
        if value:
            option = "CLIENT_KEY" if name == "query" else f"--{name.replace('_', '-')}"
            option = option.replace("--form", "--format")
            fail(f"{option} does not go with --file; write it into {file}")
    return load_pulls(file, default_store)


def _from_options(options: _PullOptions, default_store: Store) -> Pull:
    if options.to is None:
        fail("give --to OUTPUT, or --file PULLS.TOML")
    if options.query is None and options.sql is None:
        fail("give the client key or handle of a registration, or --sql, or --file PULLS.TOML")
    if options.csv_safe and (options.form or format_of(options.to)) != "csv":
        fail("--csv-safe is for the format csv")
    handle = options.query if options.query is not None and is_handle(options.query) else None
    key = None if handle else options.query
    return Pull(
        options.name or name_from(key or options.to.stem),
        options.to,
        sql=options.sql,
        key=key,
        handle=handle,
        parameters=parameters(options.param),
        lease=options.lease,
        window=options.window,
        format=options.form or "",
        csv_safe=options.csv_safe,
        state=options.state,
        schedule=_schedule(options),
        always=options.always,
        changes_to=options.changes_to,
        changes_secret_file=options.changes_secret_file,
        every_point=options.every_point,
        hook=_hook(options),
        store=default_store,
    )


def _schedule(options: _PullOptions) -> Schedule | None:
    durations = {
        "jitter": options.jitter,
        "backoff": options.backoff,
        "backoff_cap": options.backoff_cap,
    }
    intervals: dict[str, Any] = {
        name: value for name, value in durations.items() if value is not None
    }
    if options.every is None:
        if intervals or options.aligned:
            fail("--jitter, --aligned and --backoff need --every")
        return None
    try:
        return Schedule(options.every, aligned=options.aligned, **intervals)
    except ValueError as error:
        fail(f"--{str(error).replace('_', '-')}")


def _hook(options: _PullOptions) -> Hook | None:
    if options.on_change is None:
        if options.hook_limit is not None or options.hook_must_succeed:
            fail("--hook-limit and --hook-must-succeed need --on-change")
        return None
    hook = Hook(options.on_change, must_succeed=options.hook_must_succeed)
    return hook if options.hook_limit is None else replace(hook, limit=options.hook_limit)
