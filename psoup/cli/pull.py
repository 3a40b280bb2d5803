"""psoup pull: answers into files, once or on a schedule."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import click

from client_sdk import Client
from client_sdk.pulls import (
    FORMATS,
    BadPull,
    Hook,
    Pull,
    Puller,
    Schedule,
    Store,
    change_sink_for,
    format_of,
    load_pulls,
    name_from,
    sink_for,
)
from psoup.cli.connection import Connection
from psoup.cli.output import echo
from psoup.cli.problems import TERMINATED, fail
from psoup.cli.pull_reports import Teller, code_of, code_of_all, describe
from psoup.cli.texts import FILE, duration, is_handle, parameters

PATH = click.Path(path_type=Path)


class Terminated(BaseException):
    """SIGTERM came."""


def span(option: str, help: str) -> Callable[[Any], Any]:
    """An option that is a duration, as 15m."""

    def convert(context: click.Context, option: click.Parameter, value: str | None) -> Any:
        return None if value is None else duration(value)

    return click.option(option, metavar="DURATION", callback=convert, help=help)


@click.command()
@click.argument("query", metavar="[HANDLE|KEY]", required=False)
@click.option("--sql", help="Register this query; with a KEY, under that key.")
@click.option("--param", multiple=True, metavar="NAME[:TYPE]=VALUE", help="A value for :name.")
@click.option("--window", help='Another window, as "RANGE 1 HOUR".')
@span("--lease", "How long the registration lives without contact.")
@click.option("--to", type=PATH, metavar="OUTPUT", help="The file, or folder, to keep up to date.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="By the suffix unless given.")
@click.option(
    "--csv-safe", is_flag=True, help="Put ' before texts of CSV that a spreadsheet would compute."
)
@click.option("--name", help="Of the pull, and of its table in SQLite.")
@click.option("--state", type=PATH, metavar="FILE", help="The offline copy; OUTPUT.psoup.")
@span("--every", "How often; without it, once.")
@span("--jitter", "Each time up to so much later.")
@click.option("--aligned", is_flag=True, help="At the full hours, quarters, … of UTC.")
@span("--backoff", "The first pause after a failure; 5s.")
@span("--backoff-cap", "The longest pause after failures; --every.")
@click.option(
    "--changes-to",
    type=PATH,
    metavar="FILE",
    help="Append what changed, each change once: changes.jsonl, or changes.delta.",
)
@click.option("--always", is_flag=True, help="Write the output also where nothing changed.")
@click.option("--on-change", metavar="COMMAND", help="Run it in a shell after a change.")
@span("--hook-limit", "The longest COMMAND may take; 5m.")
@click.option("--hook-must-succeed", is_flag=True, help="Its failure is the pull's.")
@click.option("--file", "-f", type=FILE, metavar="PULLS.TOML", help="Several pulls.")
@click.option("--once", is_flag=True, help="Each pull once, for cron and systemd timers.")
@click.option(
    "--changed-code",
    type=click.IntRange(0, 255),
    default=0,
    metavar="N",
    help="End with N where an answer of --once changed.",
)
@click.option("--check", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--quiet", "-q", is_flag=True, help="Say only what went wrong.")
@click.option("--json", "lines", is_flag=True, help="For programs: one object a line.")
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
    **one: Any,
) -> None:
    """Keep the answer of a query up to date in a file.

    Transfers only what changed, and writes only where the answer is another one; whoever reads
    the file sees the old answer or the new one.

    \b
    psoup pull dear --every 15m --to dear.parquet
    psoup pull --sql "SELECT * FROM trades RANGE 1 HOUR" --to trades.csv --once
    psoup pull dear --to answers.sqlite --every 1h --jitter 5m --on-change ./load.sh
    psoup pull dear --to dear.csv --every 1m --changes-to changes.jsonl
    psoup pull --file pulls.toml
    psoup pull --file pulls.toml --check

    \b
    Exit codes: 0 pulled, 1 refused, 2 wrong usage, 3 no store at the target,
    4 another pull has the output, 5 the hook failed (--hook-must-succeed),
    75 try again later, 130 ended with Ctrl-C, 143 with SIGTERM in the middle of --once.
    """
    connection: Connection = context.obj
    usual = Store(
        connection.target,
        connection.tenant,
        connection.owner,
        connection.timeout,
        connection.credentials,
    )
    try:
        pulls = _from_file(file, usual, one) if file else (_of_options(_One(**one), usual),)
        plan = PullPlan(pulls, once or all(each.schedule is None for each in pulls), connection)
        if check:
            plan.check()
        else:
            context.exit(plan.run(Teller(quiet=quiet, lines=lines), changed_code))
    except BadPull as error:
        fail(error.message)


@dataclass(frozen=True)
class PullPlan:
    """A plan says what is to be pulled, and whether once or on and on."""

    pulls: tuple[Pull, ...]
    once: bool
    connection: Connection

    def check(self) -> None:
        for each in self.pulls:
            _check_outputs(each)
            for line in describe(replace(each, schedule=None) if self.once else each):
                echo(line)

    def run(self, tell: Teller, changed_code: int) -> int:
        """The exit code. Raises BadPull for an output that can't be one."""
        for each in self.pulls:
            _check_outputs(each)
        with Puller(self.pulls, on_report=tell, connect=self._client) as puller, _terminating():
            try:
                if self.once:
                    return code_of_all(puller.once(), changed_code)
                puller.run()
            except Terminated:
                return TERMINATED if self.once else 0
        return max(map(code_of, puller.given_up.values()))

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
    """Raises BadPull for an output that can't be one."""
    sink_for(pull.to, pull.format, pull.name)
    if pull.changes_to is not None:
        change_sink_for(pull.changes_to)


@contextmanager
def _terminating() -> Iterator[None]:
    """SIGTERM ends it wherever it is, as Ctrl-C does; nothing is ever half."""

    def end(number: int, frame: Any) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class _One:
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
    changes_to: Path | None
    always: bool
    on_change: str | None
    hook_limit: timedelta | None
    hook_must_succeed: bool


def _from_file(file: Path, usual: Store, one: dict[str, Any]) -> tuple[Pull, ...]:
    for name, value in one.items():
        if value:
            option = "KEY" if name == "query" else f"--{name.replace('_', '-')}"
            option = option.replace("--form", "--format")
            fail(f"{option} is of one pull, and {file} has its own; write it there")
    return load_pulls(file, usual)


def _of_options(one: _One, usual: Store) -> Pull:
    if one.to is None:
        fail("give --to OUTPUT, or --file PULLS.TOML")
    if one.query is None and one.sql is None:
        fail("give the KEY or HANDLE of a registration, or --sql, or --file PULLS.TOML")
    if one.csv_safe and (one.form or format_of(one.to)) != "csv":
        fail("--csv-safe is for the format csv")
    handle = one.query if one.query is not None and is_handle(one.query) else None
    key = None if handle else one.query
    return Pull(
        one.name or name_from(key or one.to.stem),
        one.to,
        sql=one.sql,
        key=key,
        handle=handle,
        parameters=parameters(one.param),
        lease=one.lease,
        window=one.window,
        format=one.form or "",
        csv_safe=one.csv_safe,
        state=one.state,
        schedule=_schedule(one),
        always=one.always,
        changes_to=one.changes_to,
        hook=_hook(one),
        store=usual,
    )


def _schedule(one: _One) -> Schedule | None:
    spans = {"jitter": one.jitter, "backoff": one.backoff, "backoff_cap": one.backoff_cap}
    given: dict[str, Any] = {name: value for name, value in spans.items() if value is not None}
    if one.every is None:
        if given or one.aligned:
            fail("--jitter, --aligned and --backoff need --every")
        return None
    try:
        return Schedule(one.every, aligned=one.aligned, **given)
    except ValueError as error:
        fail(f"--{str(error).replace('_', '-')}")


def _hook(one: _One) -> Hook | None:
    if one.on_change is None:
        if one.hook_limit is not None or one.hook_must_succeed:
            fail("--hook-limit and --hook-must-succeed need --on-change")
        return None
    usual = Hook(one.on_change, must_succeed=one.hook_must_succeed)
    return usual if one.hook_limit is None else replace(usual, limit=one.hook_limit)
