"""What changed in an answer, appended to a file of JSON lines, a Delta table or a receiver.

The output itself says how far it has come: a line has the number of its change, a commit of Delta
that of its last one. So a batch that comes again, because the process died before it was left, is
appended from there on.

| column                  |                                                                      |
|-------------------------|----------------------------------------------------------------------|
| `_number`               | ascends                                                              |
| `_tag`                  | `+`, `u` or `-`; `reset` if there is nothing to compare with         |
| `_why`, `_at`           | as of a change; of `reset` the reason                                |
| those of the answer     | the row now, and of `-` the row before                               |

A line of `u` also has `_old`, the row before. After a reset the answer begins again: its line has
all `rows`, and a Delta table has them as rows with the tag `=`.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa

from client_sdk._exceptions import BadPull, OutputFailed
from client_sdk._wire.values import schema_of
from client_sdk.copies import ChangeBatch, Copies
from client_sdk.pulls._change_lines import (
    CHANGE_COLUMNS,
    change_fields,
    change_lines,
    change_rows,
)
from client_sdk.pulls._http_changes import ANY_RECEIVER, HttpChanges, is_url
from client_sdk.pulls._receipt import ReceiptFile
from client_sdk.pulls._receivers import Receivers
from client_sdk.pulls._sinks.delta import delta_module

_SUFFIXES = (".jsonl", ".ndjson", ".delta")
_TAIL_BYTES = 1 << 16


class ChangeSink(Protocol):
    """A sink for changes, for one writer at a time. If the output fails, `append` raises one of
    `failures`.
    """

    @property
    def failures(self) -> tuple[type[Exception], ...]: ...

    def append(self, batch: ChangeBatch, *, goes_on: bool) -> None:
        """Append the changes that the output does not have yet.

        Append all of them if its last change is not of the same series as the batch.
        """


def change_sink_for(
    target: Path | str, secret_file: Path | None = None, receivers: Receivers = ANY_RECEIVER
) -> ChangeSink:
    """Return the sink for a URL, or for a path by its suffix. Raises BadPull.

    `secret_file` has the secret by which deliveries to a URL are signed; `receivers` are the
    addresses that it may have.
    """
    if is_url(target):
        return HttpChanges(str(target), secret_file, receivers)
    path = Path(target)
    if path.suffix.lower() not in _SUFFIXES:
        raise BadPull(
            f"changes_to: {path}: changes are appended to JSON lines or a Delta table; end it in "
            f"{', '.join(_SUFFIXES)}"
        )
    if not path.resolve().parent.is_dir():
        raise BadPull(f"changes_to: {path}: there is no folder {path.resolve().parent}")
    delta = path.suffix.lower() == ".delta"
    if path.is_file() if delta else path.is_dir():
        raise BadPull(f"changes_to: {path} is a {'file' if delta else 'folder'}")
    try:
        return DeltaChanges(path) if delta else JsonLineChanges(path)
    except ImportError as error:
        raise BadPull(str(error)) from error


def append_changes(copies: Copies, name: str, sink: ChangeSink, file: ReceiptFile) -> int:
    """Append the changes of a copy to `sink`, and return how many there were.

    Raises OutputFailed; then the next pull appends them.
    """
    with copies.changes(name) as batch:
        if batch.last:
            receipt = file.load()
            goes_on = receipt.changes_of == batch.series
            # Saved before appending, so that a batch that is cut is continued, and not appended
            # again.
            if not goes_on:
                file.save(replace(receipt, changes_of=batch.series))
            try:
                sink.append(batch, goes_on=goes_on)
            except sink.failures as error:
                raise OutputFailed(f"changes of {name} could not be appended: {error}") from error
    return len(batch)


class JsonLineChanges:
    """A file with one JSON object per change."""

    failures: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()

    def append(self, batch: ChangeBatch, *, goes_on: bool) -> None:
        with self._path.open("a+b") as file:
            since = self._cut(file) if goes_on else self._apart(file)
            for _, line in change_lines(batch, since):
                file.write(line + b"\n")
            file.flush()
            # On the disk before the batch is left, which deletes the changes from the state file.
            os.fsync(file.fileno())

    @staticmethod
    def _apart(file: IO[bytes]) -> int:
        """Begin a new line, and return 0 as the number of the last change."""
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        return 0

    @staticmethod
    def _cut(file: IO[bytes]) -> int:
        """Cut off a line that a killed writer left, and return the number of the last whole one."""
        end = file.seek(0, os.SEEK_END)
        tail, begin = b"", end
        # Read backwards until `tail` holds the last whole line: two line ends, or the whole file.
        # The steps double, because a line with all rows of an answer may be long.
        while begin and tail.count(b"\n") < 2:
            step = min(begin, max(_TAIL_BYTES, len(tail)))
            begin -= step
            file.seek(begin)
            tail = file.read(step) + tail
        whole = tail[: tail.rfind(b"\n") + 1]
        file.truncate(end - len(tail) + len(whole))
        file.seek(0, os.SEEK_END)
        return _number_of(whole.splitlines()[-1] if whole else b"")


def _number_of(line: bytes) -> int:
    """Return the number of a line; 0 if it is not a line of changes."""
    try:
        content = json.loads(line)
    except ValueError:
        return 0
    number = content.get("_number") if isinstance(content, dict) else None
    return number if isinstance(number, int) else 0


class DeltaChanges:
    """A Delta table of changes, to which a batch is appended in one commit.

    Raises ImportError, which says what to install, without `deltalake`.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path.resolve())
        self._delta = delta_module()
        self.failures: tuple[type[Exception], ...] = (
            OSError,
            self._delta.exceptions.DeltaError,
        )

    def append(self, batch: ChangeBatch, *, goes_on: bool) -> None:
        since = self._since(batch.series)
        if since >= batch.last:
            return
        if batch.reset:
            first = [change_fields(batch.last, "reset", batch.reset)]
            again = change_fields(batch.last, "=", batch.reset)
            rows = [*first, *({**again, **row} for row in batch.answer or ())]
        else:
            rows = change_rows(batch, since)
        # The last number is in the same commit as the rows, so a repeat finds both or neither.
        done = self._delta.Transaction(app_id=f"psoup {batch.series}", version=batch.last)
        self._delta.write_deltalake(
            self._path,
            pa.Table.from_pylist(rows, schema=schema_of((*CHANGE_COLUMNS, *batch.columns))),
            mode="append",
            schema_mode="merge",
            commit_properties=self._delta.CommitProperties(app_transactions=[done]),
        )

    def _since(self, series: str) -> int:
        """Return the number of the last change that the table has of a series."""
        if not self._delta.DeltaTable.is_deltatable(self._path):
            return 0
        table = self._delta.DeltaTable(self._path)
        return int(table.transaction_version(f"psoup {series}") or 0)
