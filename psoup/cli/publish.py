"""psoup publish: a file into a stream, whole, however often the command is cut and run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from psoup.cli.output import note
from psoup.cli.problems import fail, refuse
from psoup.cli.progress import FileProgress
from psoup.cli.readers import BadLine, Options, read
from psoup.cli.texts import FILE, instant, pairs

SHOWN = 20
REFUSALS = (Conflict, InvalidRequest, LimitExceeded, NotFound, PreconditionFailed)


@click.command()
@click.argument("stream")
@click.argument("file", required=False, type=FILE)
@click.option("--rename", multiple=True, metavar="THEIRS=OURS", help="A column of the file.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Leave a column of the file out.")
@click.option("--null", default="", metavar="TEXT", help="What stands for NULL in CSV; nothing.")
@click.option("--skip-bad", is_flag=True, help="Publish the good lines, report the others.")
@click.option("--heartbeat", metavar="INSTANT", help="Then move NOW of the stream to here.")
@click.option("--publisher", metavar="NAME", help="Publish under this name instead of the file's.")
@click.option("--once", is_flag=True, help="Do not publish a file again that is there already.")
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

    The whole file is checked first, and not published where a line is bad. A file is known by
    its content: running the same command again after a cut publishes what is missing and
    nothing twice.

    A file that is there already is not published again into a stream without a KEY;
    --publisher NAME publishes it once more. Into a stream with a KEY it is, since other values may
    have come for its keys since; --once leaves it.

    For a stream with a KEY the file may have a column _op: "delete" for a line that deletes its
    key, "row" or nothing for any other. A delete needs no more than its key and the event time.

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
        found = client.stream(stream)
        if file is None:
            if until is not None:
                client.heartbeat(stream, until)
            return
        options = Options(pairs(rename, "--rename"), frozenset(drop), null)
        name = publisher or publisher_name(file, found, options, skip_bad)
        load = Load(client, client.publisher(name), found, file, options)
        if not skip_bad:
            load.check()
        if found.key and not (publisher or once):
            load.begin_again()
        load.publish()
        if until is not None:
            load.publisher.heartbeat(stream, until)


def publisher_name(file: Path, stream: Stream, options: Options, skip_bad: bool) -> str:
    """Equal for equal content read in the same way into the same stream, and only then."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
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
    """One file on its way into one stream. `accepted` counts what the store has acknowledged."""

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
        """Reads the whole file and publishes nothing. Fails where a line is bad."""
        before = self._stamp()
        with FileProgress("checking", self.file) as progress:
            for _ in self._tables(progress):
                if self.bad_count >= SHOWN:
                    break
        if self.bad_count:
            self._report_bad()
            refuse("nothing was published; mend the file, or --skip-bad")
        if self._stamp() != before:
            refuse(f"{self.file.name} changed while it was read; nothing was published")

    def begin_again(self) -> None:
        """Takes the next name if the file is there already, as NAME/2; that of a run that was cut
        if it is not all there.
        """
        first = self.publisher.name
        sequences = self._sequences(first)
        if not sequences:
            return
        times = max(sequences)
        with FileProgress("counting", self.file) as progress:
            count = self.publisher.count_batches(self.stream.name, self._tables(progress))
        if sequences[times] >= count:
            times += 1
            note(
                f"{self.file.name} was published before: publishing it again, time {times} "
                "(--once leaves it)"
            )
        if times > 1:
            self.publisher = self.client.publisher(f"{first}/{times}")

    def _sequences(self, first: str) -> dict[int, int]:
        """Return the last sequence of each time the file was published, by its number from 1 on."""
        owner, sequences = self.client.owner(), {}
        for record in self.client.publishers(owner=owner, prefix=first):
            name, _, times = record.name.partition("/")
            if name == first and (not times or times.isdecimal()):
                sequences[int(times or 1)] = record.sequence
        return sequences

    def publish(self) -> None:
        self.bad, self.bad_count = [], 0
        with FileProgress("publishing", self.file) as progress:
            try:
                self.publisher.publish_many(
                    self.stream.name,
                    self._tables(progress),
                    progress=lambda published: self._count(published, progress),
                )
            except (PsoupError, KeyboardInterrupt, click.ClickException) as error:
                self._half(certain=isinstance(error, REFUSALS))
                raise
        self._report_bad()
        self._done()

    def _tables(self, progress: FileProgress) -> Iterator[pa.Table]:
        for chunk in read(self.file, self.stream, self.options, progress.at):
            self.bad_count += len(chunk.bad)
            self.bad += chunk.bad[: SHOWN - len(self.bad)]
            yield chunk.table

    def _count(self, published: Published, progress: FileProgress) -> None:
        self.accepted += published.row_count
        self.duplicate += published.row_count if published.duplicate else 0
        progress.rows(self.accepted)

    def _stamp(self) -> tuple[int, int]:
        found = self.file.stat()
        return found.st_size, found.st_mtime_ns

    def _report_bad(self) -> None:
        for line in self.bad:
            note(str(line))
        if self.bad_count > len(self.bad):
            note(f"… and {self.bad_count - len(self.bad):,} more")

    def _half(self, certain: bool) -> None:
        """Tells how much of the file the store has, when it is not all of it.

        That is `certain` after a refusal; after a cut, batches may be there unacknowledged.
        """
        if certain and not self.accepted:
            note(f"nothing of {self.file.name} was published")
            return
        fresh = self.accepted - self.duplicate
        more = "" if certain else "; one or two batches more may be there"
        note(
            f"{self.file.name} is in {self.stream.name} only in part: {self.accepted:,} rows are "
            f"acknowledged ({fresh:,} by this run){more}.",
            "The same command again carries on from there.",
        )

    def _done(self) -> None:
        if self.accepted and self.duplicate == self.accepted:
            note(
                f"{self.file.name} had been published before, and nothing is published twice; "
                "--publisher NAME publishes it once more"
            )
        there = f" ({self.duplicate:,} had been there)" if self.duplicate else ""
        skipped = f", {self.bad_count:,} bad lines skipped" if self.bad_count else ""
        note(f"{self.accepted:,} rows in {self.stream.name}{there}{skipped}")
