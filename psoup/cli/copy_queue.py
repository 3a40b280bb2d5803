"""psoup copy publish, send, move: rows that are queued in a file and sent later."""

from __future__ import annotations

from pathlib import Path

import click
import pyarrow as pa

from client_sdk import ConnectionFailed, Copies, Sent, Stream
from psoup.cli.connection import Connection
from psoup.cli.copy_file import (
    COPIES,
    NEW_COPIES,
    connection_of,
    opened,
    streams_with_edits,
    when_shown,
)
from psoup.cli.output import counted, note
from psoup.cli.problems import REFUSED, fail, refuse, show
from psoup.cli.progress import FileProgress
from psoup.cli.texts import FILE, column_options, instant, pairs
from psoup.source.readers import BadLine, Options, read

_SHOWN_LINES = 10


@click.command()
@click.argument("file", type=NEW_COPIES)
@click.argument("stream")
@click.argument("data", type=FILE, required=False)
@column_options("DATA")
@click.option("--skip-bad", is_flag=True, help="Leave out bad lines, and queue the good ones.")
@click.option("--seen", is_flag=True, help="Replace only the rows that the copies in FILE show.")
@click.option(
    "--heartbeat", metavar="INSTANT", help="Also, or only, move NOW of the stream to here."
)
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
    seen: bool,
    heartbeat: str | None,
) -> None:
    """Queue the rows of DATA (CSV, JSON lines or Parquet, also .gz) in FILE, to be sent later.

    The next psoup copy sync or send sends them, in the order of queuing and exactly once. All of
    DATA is queued or nothing; the same command again queues it again. FILE knows the columns of
    STREAM from an earlier contact, or asks the store now.

    With --seen, or a column _expected in DATA, an edit is refused if the store has another row of
    its key than the one that was seen: psoup copy conflicts shows it. All of DATA is one batch.

    \b
    psoup copy publish phone.db trades new.csv --rename time=at
    psoup copy send phone.db
    """
    until = None if heartbeat is None else instant(heartbeat)
    if data is None and until is None:
        fail("give DATA, or --heartbeat INSTANT")
    with opened(file) as copies:
        if data is not None:
            description = _stream(copies, stream, connection_of(context))
            options = Options(pairs(rename, "--rename"), frozenset(drop), null)
            table = _rows(data, description, options, skip_bad)
            copies.publish(stream, table, expected="seen" if seen else None)
            rows = counted(table.num_rows, "row")
            note(f"queued for {stream}: {rows}; {when_shown(stream, streams_with_edits(copies))}")
        if until is not None:
            copies.heartbeat(stream, until)
            note(f"queued for {stream}: a heartbeat")


def _stream(copies: Copies, name: str, connection: Connection) -> Stream:
    description = copies.known_stream(name)
    if description is not None:
        return description
    try:
        with connection.client() as client:
            return copies.learn(client, name)
    except ConnectionFailed as error:
        message = (
            f"the columns of {name} are not in the file yet, and no store answers: connect once, "
            f"with the same command or with a sync of a copy of {name}"
        )
        raise ConnectionFailed(f"{error.message}\n{message}", detail=error.detail) from None


def _rows(data: Path, stream: Stream, options: Options, skip_bad: bool) -> pa.Table:
    tables, bad = [stream.schema.empty_table()], list[BadLine]()
    with FileProgress("reading", data) as progress:
        for chunk in read(data, stream, options, progress.at):
            tables.append(chunk.table)
            bad += chunk.bad
    for line in bad[:_SHOWN_LINES]:
        note(str(line))
    if len(bad) > _SHOWN_LINES:
        note(f"… and {len(bad) - _SHOWN_LINES:,} more")
    if bad and not skip_bad:
        lines = counted(len(bad), "bad line")
        refuse(f"{lines}; nothing was queued. --skip-bad leaves out bad lines")
    # The empty table at the front gives a file without rows its columns.
    return pa.concat_tables([table for table in tables if table.num_rows] or tables[:1])


@click.command()
@click.argument("file", type=COPIES)
@click.pass_context
def send(context: click.Context, file: Path) -> None:
    """Send the queued batches of FILE, in order, each exactly once.

    A batch that the store refuses for good, say because its stream was dropped, is put aside:
    psoup copy rejected shows it. So is a batch that another copy of FILE may have sent: psoup
    copy doubtful shows it. After any other error the remaining batches stay queued.

    \b
    psoup copy send phone.db
    """
    with opened(file) as copies, connection_of(context).client() as client:
        sent = copies.send(client)
    report_sent(sent)
    if not (sent.batches or sent.rejected or sent.doubtful):
        note("nothing is queued")
    if sent.rejected or sent.doubtful:
        context.exit(REFUSED)


@click.command()
@click.argument("file", type=COPIES)
@click.pass_context
def move(context: click.Context, file: Path) -> None:
    """Move FILE from the store it belongs to, to the store at the target.

    The next sync or send sends the queued rows there, also those that the old store may have
    accepted without acknowledging them. The copies are replaced.

    \b
    psoup --target new.example:7181 copy move phone.db
    """
    with opened(file) as copies, connection_of(context).client() as client:
        store_id = copies.move(client)
        queued = counted(copies.queued.rows, "row")
    note(f"{file.name} belongs to store {store_id}; queued to be sent there: {queued}")


def report_sent(sent: Sent) -> None:
    """Show what was sent, refused or put aside."""
    if sent.batches:
        duplicates = f" ({sent.duplicates:,} already stored)" if sent.duplicates else ""
        batches = counted(sent.batches, "batch", "batches")
        note(f"sent {batches}, {counted(sent.rows, 'row')}{duplicates}")
    for batch in sent.rejected:
        note(f"refused: batch {batch.batch} for {batch.stream}: {batch.message}")
    if sent.rejected:
        note("psoup copy rejected shows refused batches; requeue or discard them")
    if any(batch.reason == "CONFLICT_ROW" for batch in sent.rejected):
        note("psoup copy conflicts shows what is there instead; psoup copy resolve decides")
    for doubt in sent.doubtful:
        note(f"doubtful: batch {doubt.batch} for {doubt.stream}: {doubt.message}")
    if sent.doubtful:
        note("psoup copy doubtful shows doubtful batches; resend or discard them")
    if sent.error is not None:
        show(sent.error)
        note("queued rows were not sent; the copies were synced")
