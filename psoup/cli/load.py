"""The loading of one file into one stream, even if it is interrupted and begun again."""

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
from psoup.cli.output import counted, note
from psoup.cli.problems import refuse
from psoup.cli.progress import FileProgress
from psoup.source.errors import BadInput
from psoup.source.readers import BadLine, Options, read

SHOWN_LINES = 20
# How long the store recognizes a file after its last batch.
FILE_LEASE = timedelta(days=30)
# After these the store has certainly not accepted the batch.
REFUSALS = (Conflict, InvalidRequest, LimitExceeded, NotFound, PreconditionFailed)


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
        options.format,
        options.delimiter,
        options.encoding,
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
            except (PsoupError, KeyboardInterrupt, click.ClickException, BadInput) as error:
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
