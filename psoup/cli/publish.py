"""psoup publish: files, standard input and files that grow, into a stream."""

from __future__ import annotations

from pathlib import Path

import click

from client_sdk import Client, Stream
from psoup.cli.connection import Connection
from psoup.cli.inputs import expand
from psoup.cli.live import publish_live
from psoup.cli.load import FILE_LEASE, Load, publisher_name
from psoup.cli.problems import fail
from psoup.cli.texts import column_options, instant, pairs
from psoup.source.readers import FORMATS, Options


@click.command()
@click.argument("stream")
@click.argument("files", nargs=-1, metavar="[FILE…]")
@column_options("FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    show_default="by the file's name",
    help="The format; needed for standard input.",
)
@click.option(
    "--delimiter", metavar="CHARACTER", show_default=", or tab", help="What separates CSV."
)
@click.option(
    "--encoding", default="utf-8", show_default=True, help="The encoding of CSV and JSON lines."
)
@click.option("--skip-bad", is_flag=True, help="Publish the good lines, and report the bad ones.")
@click.option(
    "--follow", is_flag=True, help="Go on with lines that are still to be written, as tail -F does."
)
@click.option(
    "--heartbeat", metavar="INSTANT", help="Also, or only, move NOW of the stream to here."
)
@click.option(
    "--publisher",
    metavar="NAME",
    show_default="one for the content",
    help="The publisher's name, by which batches are recognized.",
)
@click.option("--once", is_flag=True, help="Do not publish a file that was published before.")
@click.pass_obj
def publish(
    connection: Connection,
    stream: str,
    files: tuple[str, ...],
    rename: tuple[str, ...],
    drop: tuple[str, ...],
    null: str,
    form: str | None,
    delimiter: str | None,
    encoding: str,
    skip_bad: bool,
    follow: bool,
    heartbeat: str | None,
    publisher: str | None,
    once: bool,
) -> None:
    """Publish files (CSV, JSON lines, Parquet or Arrow; .gz too) or standard input into STREAM.

    FILE is a file, a folder, a pattern in quotes, a FIFO, or - for standard input.

    All files are checked first, and nothing is published if a line is bad. A file is recognized by
    its content: the same command again after an interruption publishes the missing rows, and none
    twice.

    A stream without a KEY accepts the same file only once in 30 days; --publisher NAME publishes it
    again. A stream with a KEY accepts it again, since its rows may have changed since; not with
    --once.

    Standard input is published as it arrives, up to the first bad line. Each run publishes it
    again. With --publisher NAME, rows that an earlier run has published are passed over, so that
    the same input can be sent again after an interruption. --follow remembers how far it was by
    itself.

    For a stream with a KEY the file may have a column _op: "delete" for a line that deletes its
    stream key, "patch" for one that sets only the columns of the file and keeps the others, "row"
    or nothing for any other. A delete needs only its key and the event time, a patch its key. It
    may have a column _expected, too: the row_id of the row that a line may replace, -1 if there
    must be none. The file is published in pieces; if another row is there, that piece is refused.

    \b
    psoup publish trades day.csv.gz
    psoup publish trades day.csv --rename time=at --drop venue --null NA
    psoup publish trades 'drop/*.csv' --delimiter ';' --encoding latin-1
    some-program | psoup publish trades - --format jsonl
    psoup publish trades /var/log/trades.jsonl --follow
    psoup publish trades --heartbeat 2026-11-16T18:00
    """
    until = None if heartbeat is None else instant(heartbeat)
    if not files and until is None:
        fail("give a FILE, - for standard input, or --heartbeat INSTANT")
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii()):
        fail("--delimiter is one character of ASCII; write a tab as $'\\t', or --format tsv")
    options = Options(
        pairs(rename, "--rename"),
        frozenset(drop),
        null,
        format=form or "",
        delimiter=delimiter or "",
        encoding=encoding,
    )
    inputs = expand(files, options, follow)
    with connection.client() as client:
        description = client.stream(stream)
        for live in inputs:
            if live.is_live:
                publish_live(connection, live, description, options, publisher, skip_bad)
        paths = [entry.path for entry in inputs if not entry.is_live]
        if paths:
            _load(client, paths, description, options, publisher, skip_bad, once)
        if until is not None:
            client.heartbeat(stream, until)


def _load(
    client: Client,
    paths: list[Path],
    stream: Stream,
    options: Options,
    publisher: str | None,
    skip_bad: bool,
    once: bool,
) -> None:
    if publisher and len(paths) > 1:
        fail("--publisher is for one file; without it each file has a publisher of its own")
    loads = []
    for path in paths:
        name = publisher or publisher_name(path, stream, options, skip_bad)
        # A name that was chosen stays; those of files would be as many as there are files.
        lease = None if publisher else FILE_LEASE
        loads.append(Load(client, client.publisher(name, lease=lease), stream, path, options))
    if not skip_bad:
        for load in loads:
            load.check()
    for load in loads:
        if stream.key and not (publisher or once):
            load.begin_again()
        load.publish()
