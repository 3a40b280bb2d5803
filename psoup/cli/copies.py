"""psoup copy: answers kept in a file, synced when there is a connection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import click

from client_sdk import Change, Copies, Sent, Synced, Unauthenticated, Verified
from psoup.cli.copy_aside import discard, doubtful, rejected, requeue, resend
from psoup.cli.copy_changes import changes
from psoup.cli.copy_conflicts import conflicts, resolve
from psoup.cli.copy_file import COPIES, connection_of, opened, streams_with_edits, when_shown
from psoup.cli.copy_key import add_key_file, encrypt
from psoup.cli.copy_leaving import clear, log_out
from psoup.cli.copy_queue import move, publish, report_sent, send
from psoup.cli.copy_rows import pending, query, rows
from psoup.cli.output import SentenceGroup, as_json, counted, echo, grid, note
from psoup.cli.problems import REFUSED, fail, show
from psoup.cli.texts import FILE, duration, parameters, size, sql_text


@click.group(cls=SentenceGroup)
def copy() -> None:
    """Copies: answers kept in a FILE, synced when there is a connection, read at any time.

    \b
    psoup copy keep phone.db dear "SELECT symbol, price FROM trades WHERE price > 100
                                   RANGE 10 MINUTES"
    psoup copy sync phone.db                 the whole answer; later only what changed
    psoup copy rows phone.db dear            the answer now, without any connection
    psoup copy changes phone.db dear         what changed in it, each change once
    psoup copy publish phone.db trades new.csv        is queued in the file, and shown at once
                                             in copies that are kept with --edits …
    psoup copy sync phone.db                 … and is sent, exactly once, before the sync
    """


@copy.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("name")
@click.argument("sql", required=False)
@click.option("--file", "-f", "text", type=FILE, help="Read the SQL from a file.")
@click.option("--handle", help="Keep the answer of this registration, instead of SQL.")
@click.option("--param", multiple=True, metavar="NAME[:TYPE]=VALUE", help="A value for :name.")
@click.option("--window", show_default="the query's", help='A window such as "RANGE 1 HOUR".')
@click.option(
    "--priority",
    type=int,
    default=0,
    show_default=True,
    help="Sync copies with a greater number first.",
)
@click.option(
    "--lease",
    metavar="DURATION",
    show_default="30d",
    help="End the registration after this time without contact.",
)
@click.option(
    "--base-rows",
    is_flag=True,
    help="Keep the rows that joins, groups, DISTINCT, LIMIT or REFRESH EVERY are computed from, so "
    "that the answer follows the clock while offline. Needs pip install 'psoup[offline]'.",
)
@click.option(
    "--changes", "with_changes", is_flag=True, help="Record changes for `psoup copy changes`."
)
@click.option(
    "--without-left",
    is_flag=True,
    help="With --changes: leave out rows that leave their window by time.",
)
@click.option(
    "--edits",
    is_flag=True,
    help="Show queued rows in the answer at once. Needs pip install 'psoup[offline]'.",
)
@click.option("--with-own", is_flag=True, help="With --changes and --edits: report own edits too.")
@click.option(
    "--every-point",
    is_flag=True,
    help="With --changes: of every refresh point since the last sync, for a query with REFRESH.",
)
@click.option("--pinned", is_flag=True, help="Never evict it: see psoup copy sync --most-bytes.")
def keep(
    file: Path,
    name: str,
    sql: str | None,
    text: Path | None,
    handle: str | None,
    param: tuple[str, ...],
    window: str | None,
    priority: int,
    lease: str | None,
    base_rows: bool,
    with_changes: bool,
    without_left: bool,
    edits: bool,
    with_own: bool,
    every_point: bool,
    pinned: bool,
) -> None:
    """Declare that FILE keeps the answer of a query as NAME. Needs no connection.

    FILE is created if it is missing. The same command again changes nothing; another text under
    the same name replaces the copy.

    \b
    psoup copy keep phone.db dear "SELECT * FROM trades WHERE price > :p RANGE 1 HOUR" --param p=100
    psoup copy keep phone.db counts "SELECT symbol, count(*) AS n FROM trades GROUP BY symbol
                                     RANGE 1 HOUR" --base-rows --priority 5
    psoup copy keep phone.db fleet --handle 0f1e2d3c4b5a69788796a5b4c3d2e1f0
    psoup copy keep phone.db hot "SELECT room, temp FROM rooms WHERE temp > 80" --changes
    psoup copy keep phone.db orders "SELECT id, item FROM orders" --edits
    """
    if without_left and not with_changes:
        fail("--without-left needs --changes")
    if with_own and not (with_changes and edits):
        fail("--with-own needs --changes and --edits")
    if every_point and not with_changes:
        fail("--every-point needs --changes")
    if with_own + without_left + every_point > 1:
        fail("give one of --with-own, --without-left and --every-point")
    if handle is None:
        sql = sql_text(sql, text)
    elif sql is not None or text is not None or param:
        fail("give SQL or --handle, not both")
    with opened(file) as copies:
        copies.keep(
            name,
            sql,
            handle=handle,
            parameters=parameters(param),
            window=window,
            priority=priority,
            lease=None if lease is None else duration(lease),
            base_rows=base_rows,
            changes=_kept_changes(with_changes, without_left, with_own, every_point),
            edits=edits,
            pinned=pinned,
        )
    note(f"{file.name} keeps {name}; psoup copy sync {file} brings it up to date")


def _kept_changes(
    with_changes: bool, without_left: bool, with_own: bool, every_point: bool
) -> bool | Literal["without left", "with own", "every point"]:
    if with_own:
        return "with own"
    if every_point:
        return "every point"
    return "without left" if without_left else with_changes


@copy.command()
@click.argument("file", type=COPIES)
@click.argument("name")
def forget(file: Path, name: str) -> None:
    """Drop a copy from FILE. Its registration ends with its lease, or by psoup unregister.

    \b
    psoup copy forget phone.db dear
    """
    with opened(file) as copies:
        handle = copies[name].handle
        copies.forget(name)
    note(f"forgot {name}", *([f"psoup unregister {handle.hex()} ends it now"] if handle else []))


@copy.command()
@click.argument("file", type=COPIES)
@click.argument("names", nargs=-1)
@click.option("--budget", metavar="SIZE", help="Stop after about this number of bytes, as 100kB.")
@click.option(
    "--away", metavar="DURATION", help="Fetch the rows that enter a window within this time, as 8h."
)
@click.option("--one-position", is_flag=True, help="Bring all copies to one position of the log.")
@click.option("--keep-queue", is_flag=True, help="Do not send queued rows.")
@click.option(
    "--most-bytes",
    metavar="SIZE",
    help="Evict the copies that were not read for the longest time if FILE is larger, as 50MB.",
)
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@click.pass_context
def sync(
    context: click.Context,
    file: Path,
    names: tuple[str, ...],
    budget: str | None,
    away: str | None,
    one_position: bool,
    keep_queue: bool,
    most_bytes: str | None,
    as_json_: bool,
) -> None:
    """Bring the copies of FILE (or only NAMES) up to date, in one round trip.

    Sends queued rows first, and registers queries that are not registered yet. With --budget the
    remaining rows come with the next sync; until a copy is complete, its old answer stays.
    Give --away if you will be offline: rows may enter a window by time alone. Copies that were
    evicted are received again if you name them.

    \b
    psoup copy sync phone.db
    psoup copy sync phone.db --budget 100kB --away 8h
    psoup copy sync phone.db dear fleet --one-position
    """
    limit = None if most_bytes is None else size(most_bytes)
    with opened(file, limit) as copies, connection_of(context).client() as client:
        try:
            synced = copies.sync(
                client,
                only=list(names) or None,
                byte_budget=None if budget is None else size(budget),
                away=None if away is None else duration(away),
                one_position=one_position,
                send=not keep_queue,
            )
        except Unauthenticated as error:
            show(error)
            note("nothing was synced: the copies and the queue stay as they were")
            context.exit(REFUSED)
    if as_json_:
        echo(_json(synced))
    else:
        _report(synced)
    sent = synced.sent
    if sent.error or sent.doubtful or any(change.error for change in synced.values()):
        context.exit(REFUSED)


@copy.command()
@click.argument("file", type=COPIES)
@click.argument("names", nargs=-1)
@click.option("--every", metavar="DURATION", help="Sync at most this often, as 10s.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    show_default="until Ctrl-C",
    help="End after this number of rounds with changes.",
)
@click.pass_context
def watch(
    context: click.Context,
    file: Path,
    names: tuple[str, ...],
    every: str | None,
    rounds: int | None,
) -> None:
    """Stay connected, and sync whenever an answer changes. Ctrl-C ends it.

    \b
    psoup copy watch phone.db --every 10s
    """
    with opened(file) as copies, connection_of(context).client() as client:
        syncs = copies.watch(
            client, only=list(names) or None, every=None if every is None else duration(every)
        )
        refused: set[str] = set()
        for number, synced in enumerate(syncs, 1):
            for name, change in synced.items():
                if change.status != "unchanged" and name not in refused:
                    echo(f"{datetime.now():%H:%M:%S} {name}: {_change_text(change)}")
                if change.error is not None:
                    refused.add(name)
            if number == rounds:
                break
        syncs.close()


@copy.command()
@click.argument("file", type=COPIES)
@click.option("--json", "as_json_", is_flag=True, help="Print one JSON object, for programs.")
def status(file: Path, as_json_: bool) -> None:
    """Show the copies of FILE, how fresh they are, and what is queued.

    \b
    slides         whether rows leave and enter by this machine's clock
    fresh until    after this the store would answer differently, even without new rows
    lease until    the registration ends if it is not synced until then
    clock          how far this machine's clock is ahead of the store's (-: behind)
    staged         a part of the next answer has arrived; sync again

    \b
    psoup copy status phone.db
    psoup copy status phone.db --json
    """
    with opened(file) as copies:
        statuses = [_status(copies, name) for name in copies]
        queued = copies.queued
        shown_streams = streams_with_edits(copies)
    if as_json_:
        queue = {"batches": queued.batches, "rows": queued.rows, "bytes": queued.bytes}
        aside = {"rejected": queued.rejected, "doubtful": queued.doubtful}
        echo(as_json({"copies": statuses, "queue": {**queue, **aside}}))
        return
    heads = ["name", "rows", "now", "slides", "fresh until", "lease until", "clock", "staged"]
    lines = [[fields[head.replace(" ", "_")] for head in heads] for fields in statuses]
    grid(heads, [[_cell_text(value) for value in line] for line in lines], empty="no copies yet")
    for name, stream in queued.streams.items():
        batches, rows = _batches(stream.batches), counted(stream.rows, "row")
        note(f"queued for {name}: {batches}, {rows}; {when_shown(name, shown_streams)}")
    if queued.rejected:
        note(f"refused: {_batches(queued.rejected)}; psoup copy rejected {file} shows them")
    if queued.doubtful:
        note(f"doubtful: {_batches(queued.doubtful)}; psoup copy doubtful {file} shows them")


@copy.command()
@click.argument("file", type=COPIES)
@click.argument("names", nargs=-1)
@click.option("--json", "as_json_", is_flag=True, help="Print one JSON object, for programs.")
@click.pass_context
def verify(context: click.Context, file: Path, names: tuple[str, ...], as_json_: bool) -> None:
    """Read every row of the copies of FILE (or only NAMES), and report damage.

    Needs no connection. A sync verifies once a day, and whenever the file looks wrong; the next
    sync repairs damage. The exit code is 1 if anything is damaged.

    \b
    psoup copy verify phone.db
    psoup copy verify phone.db dear --json
    """
    with opened(file) as copies:
        verdicts = copies.verify(list(names) or None)
    sound = all(verdict.sound for verdict in verdicts.values())
    if as_json_:
        echo(
            as_json(
                {
                    name: {**asdict(verdict), "sound": verdict.sound}
                    for name, verdict in verdicts.items()
                }
            )
        )
    else:
        lines = [
            [name, f"{verdict.rows:,}", _verdict(verdict)] for name, verdict in verdicts.items()
        ]
        grid(["copy", "rows", ""], lines, empty="no copy has been synced yet")
    if not sound:
        note(f"psoup copy sync {file} repairs the damage")
        context.exit(REFUSED)


def _verdict(verified: Verified) -> str:
    problems = [f"{counted(verified.damaged, 'row')} damaged"] if verified.damaged else []
    problems += (
        [] if verified.complete else ["rows are missing, or differ from those that were sent"]
    )
    return "; ".join(problems) or "every row is as it was sent"


def _batches(count: int) -> str:
    return counted(count, "batch", "batches")


def _status(copies: Copies, name: str) -> dict[str, Any]:
    copy = copies[name]
    fields = {"name": name, "staged": copy.staged, "synced": copy.synced}
    if not copy.synced:
        unsynced = ("rows", "now", "slides", "fresh_until", "lease_until", "clock")
        return {**fields, **dict.fromkeys(unsynced), "base_rows": None}
    state = copy.state
    return {
        **fields,
        "rows": len(copy),
        "now": state.now,
        "slides": state.slides,
        "fresh_until": state.good_until,
        "lease_until": state.lease_until,
        "clock": None if state.clock_offset is None else -state.clock_offset.total_seconds(),
        "base_rows": state.base_rows,
    }


def _cell_text(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:+.1f} s"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value)


# ---- what a sync did


def _report(synced: Synced) -> None:
    report_sent(synced.sent)
    heads = ["copy", "status", "received", "removed", "repaired", ""]
    grid(heads, map(_line, synced.items()), empty="no copies yet; psoup copy keep declares one")
    note(f"{counted(synced.received_bytes, 'byte')} received")
    if synced.evicted:
        names = ", ".join(synced.evicted)
        note(f"evicted to make room: {names}; psoup copy sync FILE NAME receives one again")
    for name, change in synced.items():
        if change.error is not None:
            show(change.error)
        elif change.status == "changed" and change.reason == "PERMISSION":
            note(f"your permissions have changed: {name} now has only the rows you may see")
    if any(change.status == "incomplete" for change in synced.values()):
        note("the next sync brings the remaining rows; until then the old answers stay")


def _line(item: tuple[str, Change]) -> list[str]:
    name, change = item
    whole = f"whole: {change.reason}" if change.whole else ""
    counts = [f"{number:,}" for number in (change.rows, change.removed, change.repaired)]
    return [name, change.status, *counts, whole]


def _change_text(change: Change) -> str:
    if change.error is not None:
        return f"refused: {change.error}"
    return f"{change.status}, {counted(change.rows, 'row')} received, {change.removed:,} removed"


def _json(synced: Synced) -> str:
    received = synced.received_bytes
    copies, sent = _plain(synced.items()), _sent(synced.sent)
    evicted = list(synced.evicted)
    return as_json({"copies": copies, "sent": sent, "received_bytes": received, "evicted": evicted})


def _plain(changes: Iterable[tuple[str, Change]]) -> dict[str, Any]:
    return {
        name: {
            "status": change.status,
            "whole": change.whole,
            "reason": change.reason,
            "rows": change.rows,
            "removed": change.removed,
            "repaired": change.repaired,
            "error": None if change.error is None else str(change.error),
        }
        for name, change in changes
    }


def _sent(sent: Sent) -> dict[str, Any]:
    return {
        "batches": sent.batches,
        "rows": sent.rows,
        "rejected": [f"{batch.stream}: {batch.message}" for batch in sent.rejected],
        "doubtful": [f"{batch.stream}: {batch.message}" for batch in sent.doubtful],
        "error": None if sent.error is None else str(sent.error),
    }


for _command in (
    rows,
    pending,
    query,
    changes,
    publish,
    send,
    rejected,
    requeue,
    conflicts,
    resolve,
    doubtful,
    resend,
    discard,
    move,
    clear,
    log_out,
    encrypt,
):
    copy.add_command(_command)
for _command in copy.commands.values():
    add_key_file(_command)
