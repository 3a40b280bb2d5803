"""psoup publish: a whole file into a stream, even if the command is interrupted and run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import click
import pyarrow as pa

from client_sdk import (
    Client,
    Conflict,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    PsoupError,
    Published,
    Publisher,
    Stream,
)
from psoup.cli.connection import Connection
from psoup.cli.output import counted, note
from psoup.cli.problems import fail, refuse
from psoup.cli.progress import FileProgress
from psoup.cli.readers import BadLine, Options, read
from psoup.cli.texts import FILE, column_options, instant, pairs

SHOWN_LINES = 20
# How long the store recognizes a file after its last batch.
FILE_LEASE = timedelta(days=30)
# After these the store has certainly not accepted the batch.
REFUSALS = (Conflict, InvalidRequest, LimitExceeded, NotFound, PreconditionFailed)


@click.command()
@click.argument("stream")
@click.argument("file", required=False, type=FILE)
@column_options("FILE")
@click.option("--skip-bad", is_flag=True, help="Publish the good lines, and report the bad ones.")
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
    file: Path | None,
    rename: tuple[str, ...],
    drop: tuple[str, ...],
    null: str,
    skip_bad: bool,
    heartbeat: str | None,
    publisher: str | None,
    once: bool,
) -> None:
    """Publish FILE (CSV, JSON lines or Parquet; .gz too) into STREAM.

    The whole file is checked first, and nothing is published if a line is bad. A file is
    recognized by its content: the same command again after an interruption publishes the missing
    rows, and none twice.

    A stream without a KEY accepts the same file only once in 30 days; --publisher NAME publishes it
    again. A stream with a KEY accepts it again, since its rows may have changed since; not with
    --once.

    For a stream with a KEY the file may have a column _op: "delete" for a line that deletes its
    stream key, "row" or nothing for any other. A delete needs only its key and the event time. It
    may have a column _expected, too: the row_id of the row that a line may replace, -1 if there
    must be none. The file is published in pieces; if another row is there, that piece is refused.

    \b
    psoup publish trades day.csv.gz
    psoup publish trades day.csv --rename time=at --drop venue --null NA
    psoup publish trades day.jsonl --skip-bad
    psoup publish trades --heartbeat 2026-11-16T18:00
    """
    until = None if heartbeat is None else instant(heartbeat)
    if file is None and until is None:
        fail("give a FILE, or --heartbeat INSTANT")
    with connection.client() as client:
        description = client.stream(stream)
        if file is None:
            if until is not None:
                client.heartbeat(stream, until)
            return
        options = Options(pairs(rename, "--rename"), frozenset(drop), null)
        name = publisher or publisher_name(file, description, options, skip_bad)
        # A name that was chosen stays; those of files would be as many as there are files.
        lease = None if publisher else FILE_LEASE
        load = Load(client, client.publisher(name, lease=lease), description, file, options)
        if not skip_bad:
            load.check()
        if description.key and not (publisher or once):
            load.begin_again()
        load.publish()
        if until is not None:
            load.publisher.heartbeat(stream, until)


def publisher_name(file: Path, stream: Stream, options: Options, skip_bad: bool) -> str:
    """Return a name that is the same only for the same content, options and stream."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    # Options that change the rows or their batches are part of the name. Otherwise a batch with
    # other rows would be taken for one that the store has.
    how = [
        digest,
        "".join(file.suffixes).lower(),
        stream.id,
        sorted(options.rename.items()),
        sorted(options.drop),
        options.null,
        skip_bad,
    ]
    return "file-" + hashlib.sha256(json.dumps(how).encode()).hexdigest()[:32]


@dataclass
class Load:
    """The publishing of one file into one stream.

    `accepted` counts the rows that the store has acknowledged, `duplicate` those of them that it
    had already.
    """

    client: Client
    publisher: Publisher
    stream: Stream
    file: Path
    options: Options
    accepted: int = 0
    duplicate: int = 0
    bad: list[BadLine] = field(default_factory=list)
    bad_count: int = 0

    def check(self) -> None:
        """Read the whole file without publishing; refuse if a line is bad."""
        before = self._stamp()
        with FileProgress("checking", self.file) as progress:
            for _ in self._tables(progress):
                if self.bad_count >= SHOWN_LINES:
                    break
        if self.bad_count:
            self._report_bad()
            refuse("nothing was published; correct the file, or use --skip-bad")
        # The publishing run reads the file again, and would send lines that were not checked.
        if self._stamp() != before:
            refuse(f"{self.file.name} changed while it was read; nothing was published")

    def begin_again(self) -> None:
        """Choose the publisher's name if the file was published before.

        It is the next one, such as NAME/2, if the store has the whole file; the last one if that
        run was interrupted.
        """
        first = self.publisher.name
        sequences = self._sequences(first)
        if not sequences:
            return
        times = max(sequences)
        with FileProgress("counting", self.file) as progress:
            count = self.publisher.count_batches(self.stream.name, self._tables(progress))
        # The last run has sent every batch. Otherwise it was interrupted, and is continued under
        # its name.
        if sequences[times] >= count:
            times += 1
            note(
                f"{self.file.name} was published before: publishing it again, time {times} "
                "(not with --once)"
            )
        if times > 1:
            self.publisher = self.client.publisher(f"{first}/{times}", lease=FILE_LEASE)

    def _sequences(self, first: str) -> dict[int, int]:
        """Return the last sequence of each time the file was published, by its number from 1 on."""
        owner, sequences = self.client.owner(), {}
        for record in self.client.publishers(owner=owner, prefix=first):
            name, _, times = record.name.partition("/")
            if name == first and (not times or times.isdecimal()):
                sequences[int(times or 1)] = record.sequence
        return sequences

    def publish(self) -> None:
        """Publish the file, and report bad lines and what was accepted."""
        # The reads to check and to count the file have collected its bad lines already.
        self.bad, self.bad_count = [], 0
        with FileProgress("publishing", self.file) as progress:
            try:
                self.publisher.publish_many(
                    self.stream.name,
                    self._tables(progress),
                    progress=lambda published: self._count(published, progress),
                )
            except (PsoupError, KeyboardInterrupt, click.ClickException) as error:
                self._report_partial(certain=isinstance(error, REFUSALS))
                raise
        self._report_bad()
        self._report_accepted()

    def _tables(self, progress: FileProgress) -> Iterator[pa.Table]:
        for chunk in read(self.file, self.stream, self.options, progress.at):
            self.bad_count += len(chunk.bad)
            self.bad += chunk.bad[: SHOWN_LINES - len(self.bad)]
            yield chunk.table

    def _count(self, published: Published, progress: FileProgress) -> None:
        self.accepted += published.row_count
        self.duplicate += published.row_count if published.duplicate else 0
        progress.rows(self.accepted)

    def _stamp(self) -> tuple[int, int]:
        stat = self.file.stat()
        return stat.st_size, stat.st_mtime_ns

    def _report_bad(self) -> None:
        for line in self.bad:
            note(str(line))
        if self.bad_count > len(self.bad):
            note(f"… and {self.bad_count - len(self.bad):,} more")

    def _report_partial(self, certain: bool) -> None:
        """Report how much of the file the store has, if it is not all of it.

        It is `certain` after a refusal; after an interruption the store may have more batches.
        """
        if certain and not self.accepted:
            note(f"nothing of {self.file.name} was published")
            return
        fresh = self.accepted - self.duplicate
        uncertain = "" if certain else "; it may have one or two more batches"
        note(
            f"{self.file.name} is only partly in {self.stream.name}: the store has acknowledged "
            f"{counted(self.accepted, 'row')} ({fresh:,} of this run){uncertain}.",
            "Run the same command again to continue from there.",
        )

    def _report_accepted(self) -> None:
        if self.accepted and self.duplicate == self.accepted:
            note(
                f"{self.file.name} was published before, and is not stored twice; --publisher NAME "
                "publishes it again"
            )
        duplicates = f" ({self.duplicate:,} already stored)" if self.duplicate else ""
        skipped = f", {counted(self.bad_count, 'bad line')} skipped" if self.bad_count else ""
        note(f"{counted(self.accepted, 'row')} in {self.stream.name}{duplicates}{skipped}")
