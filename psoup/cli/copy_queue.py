"""psoup copy publish, send, move: what waits in a file to be sent."""

from __future__ import annotations

from pathlib import Path

import click
import pyarrow as pa

from client_sdk import ConnectionFailed, Copies, Sent, Stream
from psoup.cli.connection import Connection
from psoup.cli.copy_file import COPIES, NEW_COPIES, connection_of, opened
from psoup.cli.output import note
from psoup.cli.problems import REFUSED, fail, refuse, show
from psoup.cli.progress import FileProgress
from psoup.cli.readers import BadLine, Options, read
from psoup.cli.texts import FILE, instant, pairs

_SHOWN = 10


@click.command()
@click.argument("file", type=NEW_COPIES)
@click.argument("stream")
@click.argument("data", type=FILE, required=False)
@click.option("--rename", multiple=True, metavar="THEIRS=OURS", help="A column of the file.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Leave a column of the file out.")
@click.option("--null", default="", help="What stands for NULL in a CSV.")
@click.option("--skip-bad", is_flag=True, help="Leave bad lines out, and queue the rest.")
@click.option("--heartbeat", metavar="INSTANT", help="Then, or alone, move NOW of event time.")
@click.pass_context
def publish(
    context: click.Context,
    file: Path,
    stream: str,
    data: Path | None,
    rename: tuple[str, ...],
    drop: tuple[str, ...],
    null: str,
    skip_bad: bool,
    heartbeat: str | None,
) -> None:
    """Queue the rows of DATA (CSV, JSON lines or Parquet, also .gz) in FILE, to be sent later.

    They are sent by the next psoup copy sync or send, in the order of queuing and exactly once.
    All of the file is queued or nothing; the same command again queues it again. What STREAM
    looks like is known to FILE from an earlier contact, or asked now.

    \b
    psoup copy publish phone.db trades new.csv --rename time=at
    psoup copy send phone.db
    """
    until = None if heartbeat is None else instant(heartbeat)
    if data is None and until is None:
        fail("give DATA, or --heartbeat INSTANT")
    with opened(file) as copies:
        if data is not None:
            known = _stream(copies, stream, connection_of(context))
            options = Options(pairs(rename, "--rename"), frozenset(drop), null)
            table = _rows(data, known, options, skip_bad)
            copies.publish(stream, table)
            note(f"{table.num_rows:,} rows wait for {stream}; no copy has them before a sync")
        if until is not None:
            copies.heartbeat(stream, until)
            note(f"a heartbeat waits for {stream}")


def _stream(copies: Copies, name: str, connection: Connection) -> Stream:
    known = copies.known_stream(name)
    if known is not None:
        return known
    try:
        with connection.client() as client:
            return copies.learn(client, name)
    except ConnectionFailed as error:
        message = (
            f"what {name} looks like is not known here yet, and no store can be asked: "
            f"connect once, with the same command or with a sync of a copy of {name}"
        )
        raise ConnectionFailed(f"{error.message}\n{message}", detail=error.detail) from None


def _rows(data: Path, stream: Stream, options: Options, skip_bad: bool) -> pa.Table:
    tables, bad = [stream.schema.empty_table()], list[BadLine]()
    with FileProgress("reading", data) as progress:
        for chunk in read(data, stream, options, progress.at):
            tables.append(chunk.table)
            bad += chunk.bad
    for line in bad[:_SHOWN]:
        note(str(line))
    if len(bad) > _SHOWN:
        note(f"… and {len(bad) - _SHOWN:,} more")
    if bad and not skip_bad:
        refuse(f"{len(bad):,} bad lines; nothing was queued. --skip-bad leaves them out")
    return pa.concat_tables([table for table in tables if table.num_rows] or tables[:1])


@click.command()
@click.argument("file", type=COPIES)
@click.pass_context
def send(context: click.Context, file: Path) -> None:
    """Send what waits in FILE, in order, each batch exactly once.

    A batch that is refused for good, say because its stream was dropped, is put aside and blocks
    nothing: psoup copy rejected shows it. So is one that may have been sent by another copy of
    FILE: psoup copy doubtful. Whatever else goes wrong, the rest waits on.
    """
    with opened(file) as copies, connection_of(context).client() as client:
        sent = copies.send(client)
    tell_sent(sent)
    if not (sent.batches or sent.rejected or sent.doubtful):
        note("nothing waits")
    if sent.rejected or sent.doubtful:
        context.exit(REFUSED)


@click.command()
@click.argument("file", type=COPIES)
@click.pass_context
def move(context: click.Context, file: Path) -> None:
    """Let FILE belong to the store at the target, where it belongs to another one.

    What waits is sent there by the next sync or send, also what the other store may have taken
    without saying so; the copies are replaced.
    """
    with opened(file) as copies, connection_of(context).client() as client:
        store_id = copies.move(client)
        waiting = copies.queued.rows
    note(f"{file.name} belongs to store {store_id}; {waiting:,} rows wait to be sent there")


def tell_sent(sent: Sent) -> None:
    if sent.batches:
        there = f" ({sent.duplicates:,} had been there)" if sent.duplicates else ""
        note(f"sent {sent.batches:,} batches, {sent.rows:,} rows{there}")
    for one in sent.rejected:
        note(f"refused: batch {one.batch} for {one.stream}: {one.message}")
    if sent.rejected:
        note("psoup copy rejected, requeue and discard say what becomes of what was refused")
    for doubt in sent.doubtful:
        note(f"doubtful: batch {doubt.batch} for {doubt.stream}: {doubt.message}")
    if sent.doubtful:
        note("psoup copy doubtful, resend and discard say what becomes of what is doubtful")
    if sent.error is not None:
        show(sent.error)
        note("what waits was not sent; the copies were synced")
